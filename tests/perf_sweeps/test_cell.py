"""Laws of cells and presets: names tell them apart, the scope bounds them, published rows are each one cell."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from harness.model.errors import ConfigurationError
from harness.model.manifest import ScopeSection
from perf_sweeps.cell import (
    Axes,
    Cell,
    Engine,
    Workload,
    find_misfits,
    mark_beyond,
    require_in_scope,
)
from perf_sweeps.presets import PRESETS, preset_cells

SCOPE = ScopeSection(
    platforms=("cpu",), tensor_parallel=(1,), max_batch=8, max_context=128, max_draft_tokens=3
)


def cell(batch: int = 1, **changed: object) -> Cell:
    return Cell.model_validate(
        {"workload": "decode", "batch": batch, "input_len": 16, "output_len": 8} | changed
    )


@pytest.mark.parametrize("name", PRESETS)
def test_no_two_cells_of_a_preset_have_one_name(name: str) -> None:
    names = [c.name for c in preset_cells(name, SCOPE)]
    assert len(set(names)) == len(names)


def test_every_axis_is_part_of_a_cells_name() -> None:
    engine = Engine(draft_tokens=2)
    varied = [
        cell(),
        cell(batch=2),
        cell(input_len=17),
        cell(output_len=9),
        cell(prompts="random"),
        cell(workload="mixed"),
        cell(engine=Engine(tensor_parallel=2)),
        cell(engine=Engine(tensor_parallel=2, decode_context_parallel=2)),
        cell(workload="speculative", engine=engine),
        cell(workload="speculative", engine=Engine(draft_tokens=2, acceptance_length=1.5)),
    ]
    assert len({c.name for c in varied}) == len(varied)


def test_the_batches_of_a_scope_reach_one_beyond_its_limit() -> None:
    scope = ScopeSection(platforms=("cpu",), max_batch=12, max_context=64)
    assert scope.edge_batches == (1, 2, 4, 8, 12, 13)


def test_one_batch_beyond_the_scope_is_asked_on_purpose_only() -> None:
    plain = (cell(9),)
    assert find_misfits(plain, SCOPE)
    assert not find_misfits(mark_beyond(plain, SCOPE), SCOPE)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"batch": 10}, "batch 10"),
        ({"input_len": 128}, "136 tokens of context"),
        ({"engine": Engine(tensor_parallel=8)}, "tensor parallel 8"),
        ({"workload": "speculative", "engine": Engine(draft_tokens=4)}, "4 drafts"),
    ],
)
def test_a_cell_outside_the_scope_is_refused_with_the_bound_that_it_breaks(
    changed: dict[str, object], said: str
) -> None:
    with pytest.raises(ConfigurationError, match=said):
        require_in_scope((cell(), cell(**changed)), SCOPE)  # type: ignore[arg-type]


def test_prefill_cells_ask_for_one_token_and_meet_once_per_prompt_length() -> None:
    cells = Axes(workloads=(Workload.PREFILL,), batches=(1,), shapes=((8, 4), (8, 5), (9, 4))).cells()
    assert [(c.input_len, c.output_len) for c in cells] == [(8, 1), (9, 1)]


def test_drafts_without_the_speculative_workload_are_no_cell() -> None:
    with pytest.raises(ValidationError, match="go together"):
        cell(engine=Engine(draft_tokens=1))


def test_the_published_table_has_a_cell_for_each_of_its_fourteen_rows() -> None:
    rows = {
        (c.engine.tensor_parallel, c.batch): c.published.speedup
        for c in preset_cells("k3-article", None)
        if c.published
    }
    assert len(rows) == 14
    assert (rows[8, 1], rows[16, 64]) == (1.58, 1.62)


def test_an_unknown_preset_is_refused_with_the_one_that_was_meant() -> None:
    with pytest.raises(ConfigurationError) as caught:
        preset_cells("k3-artcle", SCOPE)
    assert "k3-article" in caught.value.advice


def test_a_glob_that_takes_no_cell_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="No cell"):
        preset_cells("cpu-quick", SCOPE, "decode/*/b99/*")


@pytest.mark.parametrize(("declared", "within"), [(0, set()), (3, {1, 3}), (5, {1, 3, 5})])
def test_drafts_within_the_scope_are_required_and_more_are_asked_beyond_it(
    declared: int, within: set[int]
) -> None:
    scope = SCOPE.model_copy(update={"max_draft_tokens": declared})
    cells = preset_cells("drafts", scope)
    assert not find_misfits(cells, scope)
    required = {c.engine.draft_tokens for c in cells if c.is_required}
    beyond = {c.engine.draft_tokens for c in cells if c.is_beyond_scope}
    assert (required, beyond) == (within, {1, 3, 7} - within)
    lengths = {c.engine.draft_tokens: c.engine.acceptance_length for c in cells}
    assert all(length is not None and 1 < length <= count + 1 for count, length in lengths.items())


@pytest.mark.parametrize(
    "asked",
    [
        {"acceptance_length": 1.5},
        {"draft_tokens": 2, "acceptance_length": 3.5},
        {"decode_context_parallel": 2},
        {"tensor_parallel": 4, "decode_context_parallel": 3},
    ],
)
def test_an_engine_that_cannot_be_is_refused(asked: dict[str, float]) -> None:
    with pytest.raises(ValidationError):
        Engine.model_validate(asked)


def test_the_scopes_own_preset_needs_a_scope() -> None:
    with pytest.raises(ConfigurationError, match="made of a manifest's scope"):
        preset_cells("scope", None)
