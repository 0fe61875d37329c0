"""Laws of the hand-over watch: from the scheduler's plan alone, two arms are compared at every step."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from harness.engine.probe.handover_watch import HandoverWatch
from harness.engine.probe.lockstep import compare_engines
from harness.engine.probe.recording import Observed, Recording
from harness.model.probe import HandoverStep
from tests.harness.engine.probe.made_recording import MadeStep, write_recording

PAGES, PAGE_WORDS, BLOCK = 8, 64, 4
BLOCKS = {"r0-x": [[2], [3]], "r1-x": [[4], [5]]}
"""By group: the state's, then the rows'."""


class MadeEngine:
    """Two requests decode; layers lie one behind the other in one storage."""

    def __init__(self, folder: Path) -> None:
        self.raw = torch.zeros(2 * PAGES * PAGE_WORDS)
        states = self.raw[: PAGES * PAGE_WORDS].view(PAGES, 4, 16)
        rows = self.raw[PAGES * PAGE_WORDS :].view(PAGES, BLOCK, 16).view(torch.float32)
        layers = {"kda": SimpleNamespace(kv_cache=[states]), "mla": SimpleNamespace(kv_cache=rows)}
        groups = [
            SimpleNamespace(
                layer_names=["kda"], kv_cache_spec=SimpleNamespace(mamba_cache_mode="none", block_size=99)
            ),
            SimpleNamespace(layer_names=["mla"], kv_cache_spec=SimpleNamespace(block_size=BLOCK)),
        ]
        config = SimpleNamespace(
            num_speculative_tokens=0,
            compilation_config=SimpleNamespace(static_forward_context=layers),
            model_config=SimpleNamespace(dtype=torch.bfloat16),
        )
        self.runner: Any = SimpleNamespace(
            vllm_config=config, kv_cache_config=SimpleNamespace(kv_cache_groups=groups)
        )
        self.running = [SimpleNamespace(request_id=name) for name in BLOCKS]
        self.computed = 0
        folder.mkdir(parents=True)
        self.watch = HandoverWatch(self.runner, folder / "changes-plain.bin", seed=5)
        self.watch.follow(self, BLOCKS.__getitem__)

    def schedule(self) -> Any:
        """Of a prompt's token first, then of decodes, for both requests."""
        count, self.computed = self.computed, self.computed + 1
        new = [SimpleNamespace(req_id=name, num_computed_tokens=0) for name in BLOCKS] if not count else []
        cached = list(BLOCKS) if count else []
        return SimpleNamespace(
            num_scheduled_tokens=dict.fromkeys(BLOCKS, 1),
            scheduled_new_reqs=new,
            scheduled_cached_reqs=SimpleNamespace(
                req_ids=cached[::-1], num_computed_tokens=[count] * len(cached)
            ),
        )

    def step(self, write: Callable[[torch.Tensor, int], None]) -> dict[str, Any]:
        number = self.computed
        self.schedule()
        write(self.raw.view(2, PAGES, PAGE_WORDS), number)
        found = self.watch.end()
        assert found is not None
        return found


def right(raw: torch.Tensor, number: int) -> None:
    """Each request's state anew, and the row of its token."""
    for groups in BLOCKS.values():
        raw[0, groups[0][0]] = torch.arange(PAGE_WORDS) + 2.0**number
        raw[1, groups[1][0], 16 * number : 16 * number + 16] = number + 1.0


@pytest.fixture(autouse=True)
def no_vllm(monkeypatch: pytest.MonkeyPatch) -> None:
    module = SimpleNamespace(is_conv_state_dim_first=lambda: False)
    monkeypatch.setitem(sys.modules, "vllm.model_executor.layers.mamba.mamba_utils", module)


def recorded(folder: Path, write: Callable[[torch.Tensor, int], None], steps: int = 3) -> Recording:
    """What a probe of such an engine leaves, read back."""
    engine = MadeEngine(folder / "engine")
    seen = [json.loads(json.dumps(engine.step(write))) for _ in range(steps)]
    engine.watch.close()
    made = write_recording(folder / "made", [MadeStep(computed=number) for number in range(steps)])
    observed = [
        Observed(
            writable=found["writable"],
            starts=found["starts"],
            history=found["history"],
            owners={int(page): tuple(owner) for page, owner in found["owners"].items()},
            buffers=(),
        )
        for found in seen
    ]
    return replace(
        made,
        folder=folder / "engine",
        layouts={"plain": engine.watch.layout | {"seed": 5}},
        steps=tuple(replace(s, observed=o) for s, o in zip(made.steps, observed, strict=True)),
    )


def compared(tmp_path: Path, write: Callable[[torch.Tensor, int], None]) -> list[HandoverStep]:
    ours = recorded(tmp_path / "ours", write)
    return list(compare_engines(ours, recorded(tmp_path / "twin", right), "plain"))


def test_arms_that_write_alike_are_no_bit_apart(tmp_path: Path) -> None:
    steps = compared(tmp_path, right)
    assert [(s.states.num_words, s.caches.num_words) for s in steps] == [(0, 0), (128, 32), (128, 64)]
    assert not any(s.states.num_differing or s.caches.num_differing for s in steps)


def not_written(raw: torch.Tensor, number: int) -> None:
    kept = raw[0, 4].clone()
    right(raw, number)
    if number == 1:
        raw[0, 4] = kept


def wrong_slot(raw: torch.Tensor, number: int) -> None:
    kept = raw[0, 2].clone()
    right(raw, number)
    if number == 1:
        raw[0, 6], raw[0, 2] = raw[0, 2].clone(), kept


def no_row(raw: torch.Tensor, number: int) -> None:
    kept = raw[1, 5].clone()
    right(raw, number)
    if number == 1:
        raw[1, 5] = kept


@pytest.mark.parametrize("write", [not_written, wrong_slot])
def test_a_state_that_a_step_does_not_leave_is_seen_where_the_next_begins(
    tmp_path: Path, write: Callable[[torch.Tensor, int], None]
) -> None:
    assert [s.states.num_differing > 0 for s in compared(tmp_path, write)] == [False, False, True]


def test_a_row_that_a_step_does_not_leave_is_seen_where_the_next_begins(tmp_path: Path) -> None:
    assert [s.caches.num_differing > 0 for s in compared(tmp_path, no_row)] == [False, False, True]


def test_a_row_beyond_the_steps_own_is_told(tmp_path: Path) -> None:
    def beyond(raw: torch.Tensor, number: int) -> None:
        right(raw, number)
        raw[1, 3, 48:50] = 9.0 + number

    assert [s.num_bytes_beyond for s in compared(tmp_path, beyond)] == [{"mla": 8}] * 3


def test_a_step_starts_from_pages_in_the_plans_order_and_of_computed_tokens_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(BLOCKS, "r1-x", [[4], [5, 6]])
    engine = MadeEngine(tmp_path / "engine")
    engine.step(right)
    found = engine.step(right)
    assert found["starts"] == {"kda": [(2, 2, 0), (4, 4, 0)]}
    assert found["history"] == {"mla": [PAGES + 3, PAGES + 5]}
    assert found["writable"]["mla"] == [PAGES + 3, PAGES + 5, PAGES + 6]


def test_a_plan_that_schedules_nothing_is_no_step(tmp_path: Path) -> None:
    engine = MadeEngine(tmp_path / "engine")
    assert engine.watch.end() is None


@pytest.mark.parametrize("fault", ["drafts", "cached states"])
def test_an_engine_with_several_states_of_a_request_is_refused(tmp_path: Path, fault: str) -> None:
    runner = MadeEngine(tmp_path / "engine").runner
    if fault == "drafts":
        runner.vllm_config.num_speculative_tokens = 1
    else:
        runner.kv_cache_config.kv_cache_groups[0].kv_cache_spec.mamba_cache_mode = "align"
    with pytest.raises(ValueError, match="more than one state"):
        HandoverWatch(runner, tmp_path / "changes", seed=5)
