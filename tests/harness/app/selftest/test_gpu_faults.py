"""Faults of the gpu tier, without a GPU: what their patches do, what the checks say of that, what is not run here."""

from __future__ import annotations

import ast
import importlib.util
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from harness.app.cpu_tier import CpuRun
from harness.app.gpu_tier import GpuRequest
from harness.app.recorder import Progress
from harness.app.selftest import case_runs
from harness.app.selftest import run as selftest_run
from harness.app.selftest.case_runs import CaseRuns, Made
from harness.app.selftest.catalogue import CATALOGUE, Case, load_catalogue
from harness.app.selftest.gpu_asks import EVERY, RESTS_ON
from harness.app.selftest.gpu_room import GpuMemory
from harness.app.selftest.judging import answer
from harness.app.selftest.report import report_of
from harness.app.selftest.run import Selftest
from harness.app.selftest.table import render_table
from harness.app.selftest.workplace import Workplace
from harness.config import load_manifest
from harness.model.errors import ConfigurationError, FasttrackError
from harness.model.evidence import AnyEvidence, ProbeEvidence
from harness.model.finding import Finding
from harness.model.selftest import CaseVerdict
from harness.model.words import ExitCode, Outcome, Tier
from harness.options import CommandResult, ValidateOptions
from tests.harness.app import test_example_gpu_bundle as recorded
from tests.harness.app.selftest.test_catalogue import TEXT, one_fault
from tests.harness.app.selftest.test_run import OPTIONS, ROOT
from tests.harness.checks import test_cor012_hand_over_on_a_gpu as handed_over
from tests.harness.checks import test_iso012_rows_on_a_gpu as rows

CASES = [case for case in load_catalogue(ROOT / CATALOGUE) if case.fault.tier is Tier.GPU]
FAULTS = [case for case in CASES if not case.is_twin]
ON_GPU = replace(OPTIONS, tier=Tier.GPU)
PAGE = 4
"""Rows of a made cache's page."""


def with_fall_back(record: AnyEvidence) -> AnyEvidence:
    """A step of 64 requests that vLLM's own forward computes, decided as before."""
    if not isinstance(record, ProbeEvidence):
        return record
    full, beyond = recorded.first_steps_of(record, 64, 65)
    full += 1  # The first is the prefill.
    assert record.steps[full].row.graph_replayed
    row = record.steps[full].row.model_copy(update={"ran": record.steps[beyond].row.ran})
    return recorded.with_step(record, full, row=row)


def of_recorded(breach: Callable[[AnyEvidence], AnyEvidence]) -> Callable[[str], Mapping[str, Finding]]:
    return lambda check: {f.subject: f for f in recorded.findings_with(check, breach)}


SHOWN: Mapping[str, Callable[[str], Mapping[str, Finding]]] = {
    "batch-beyond-the-limit-on-a-gpu": of_recorded(recorded.with_other_way),
    "falls-back-in-large-graphs": of_recorded(with_fall_back),
    "on-when-unset-on-a-gpu": of_recorded(recorded.with_other_kernel),
    "row-behind-the-last-written": lambda _: rows.findings_of(num_bytes_beyond={"attn.3": 1152}),
    "rows-of-the-neighbour-read": lambda _: handed_over.findings_of(0.5),
    "state-kept-in-a-free-slot": of_recorded(recorded.with_foreign_write),
    "workspace-renewed-under-graphs": of_recorded(recorded.with_lost_memory),
}
"""By fault: what its expected check says of evidence with what the patch does, recorded on an H200 or made."""


@pytest.mark.parametrize("case", FAULTS, ids=lambda case: case.id)
def test_the_expected_check_fails_on_evidence_of_what_the_fault_does(case: Case) -> None:
    found = SHOWN[case.id](case.fault.expected[0])
    failed = {subject for subject, finding in found.items() if finding.outcome is Outcome.FAIL}
    assert failed and case.fault.subject in {"", *failed}


def test_each_of_them_has_evidence_of_what_it_does() -> None:
    assert SHOWN.keys() == {case.id for case in FAULTS}


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Workplace:
    place = Workplace(root=ROOT, folder=tmp_path_factory.mktemp("selftest"))
    place.copy_tree()
    return place


@cache
def tree_of(workplace: Workplace, name: str) -> Path:
    """A commit with the patch of a case."""
    (case,) = (case for case in CASES if case.name == name)
    return workplace.commit_on_top(name, [case.edit], case.base)


def function_of(tree: Path, file: str, name: str, **names: object) -> Callable[..., Any]:
    """A function or method as the tree has it, with these names around it: its module needs a GPU's vLLM."""
    text = (tree / "specialized_path/kimi_k3" / file).read_text()
    (found,) = (n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.FunctionDef) and n.name == name)
    found.returns = None
    for argument in found.args.args:
        argument.annotation = None
    exec(compile(ast.Module([found], type_ignores=[]), file, "exec"), names)
    function = names[name]
    assert callable(function)
    return function


def rows_after_a_step(tree: Path) -> tuple[torch.Tensor, torch.Tensor]:
    """The cache after a step of two requests, and the block table that its attention was given."""
    cache = torch.arange(6.0 * PAGE).view(6, PAGE, 1)
    given: list[torch.Tensor] = []

    def attention(_query: object, _cache: object, table: torch.Tensor, *_: object) -> None:
        given.append(table)

    run = function_of(
        *(tree, "decode.py", "_mla"),
        **{"mla_query": lambda *_, out: out, "mla_value_merged": lambda *_, **__: None},
        **{"mla_attention_partial": attention, "Q_RANK": 1, "ROW": 1},
    )
    space = SimpleNamespace(query=torch.zeros(2, 1), partial=lambda _: None, y=torch.zeros(2, 1))
    layer = SimpleNamespace(weights=None, w_uv=None, module=SimpleNamespace(kv_cache=cache))
    decode = SimpleNamespace(seq_lens=torch.tensor([6, 2]), block_table=torch.tensor([[1, 2], [3, 0]]))
    slots = torch.tensor([2 * PAGE + 1, 3 * PAGE + 3])
    run(SimpleNamespace(_workspace=space), torch.zeros(2, 3), layer, decode, slots)
    return cache, given[0]


CLEAN_ROWS = torch.arange(6.0 * PAGE).view(6, PAGE, 1)


@pytest.mark.parametrize(("suffix", "touched"), [("", [[2, 2]]), ("-twin", [])], ids=["fault", "twin"])
def test_the_row_behind_is_written_within_the_page_by_the_fault_alone(
    workplace: Workplace, suffix: str, touched: list[list[int]]
) -> None:
    after, _ = rows_after_a_step(tree_of(workplace, f"row-behind-the-last-written{suffix}"))
    assert (after != CLEAN_ROWS)[..., 0].nonzero().tolist() == touched


@pytest.mark.parametrize(
    ("suffix", "table"), [("", [[3, 0], [1, 2]]), ("-twin", [[1, 2], [3, 0]])], ids=["fault", "twin"]
)
def test_the_neighbours_pages_are_read_by_the_fault_alone(
    workplace: Workplace, suffix: str, table: list[list[int]]
) -> None:
    after, given = rows_after_a_step(tree_of(workplace, f"rows-of-the-neighbour-read{suffix}"))
    assert given.tolist() == table and torch.equal(after, CLEAN_ROWS)


@pytest.mark.parametrize(("suffix", "touched"), [("", [5]), ("-twin", [])], ids=["fault", "twin"])
def test_a_slot_that_nobody_has_is_written_by_the_fault_alone(
    workplace: Workplace, suffix: str, touched: list[int]
) -> None:
    run = function_of(
        *(tree_of(workplace, f"state-kept-in-a-free-slot{suffix}"), "decode.py", "_kda"),
        **{"is_conv_state_dim_first": lambda: True, "kda_decode": lambda *_, out: out},
    )
    state = torch.arange(6.0).view(6, 1)
    layer = SimpleNamespace(weights=None, module=SimpleNamespace(kv_cache=(torch.zeros(6, 1), state)))
    slots = SimpleNamespace(non_spec_state_indices_tensor=torch.tensor([2, 3], dtype=torch.int32))
    space = SimpleNamespace(_workspace=SimpleNamespace(y=torch.zeros(2, 1)))
    run(space, torch.zeros(2, 3), layer, slots)
    assert (state[:, 0] != torch.arange(6.0)).nonzero()[:, 0].tolist() == touched


@pytest.mark.parametrize(("suffix", "stays"), [("", False), ("-twin", True)], ids=["fault", "twin"])
@pytest.mark.parametrize("is_own", [True, False], ids=["the path's own step", "another's"])
def test_a_step_of_others_has_the_buffer_renewed_by_the_fault_alone(
    workplace: Workplace, suffix: str, stays: bool, is_own: bool
) -> None:
    run = function_of(
        *(tree_of(workplace, f"workspace-renewed-under-graphs{suffix}"), "decode.py", "plan"),
        **{"is_forward_context_available": lambda: False, "torch": torch},
        **{"decide_step": lambda *_: ("reason", object() if is_own else None)},
    )
    space = SimpleNamespace(hidden=torch.ones(2))
    before = space.hidden
    run(SimpleNamespace(_workspace=space, _planner=None, decisions={"reason": 1}), 1, True)
    assert (space.hidden is before) is (stays or is_own)


@contextmanager
def module_of(tree: Path, file: str) -> Iterator[ModuleType]:
    """A module of the tree, under a name of its own."""
    spec = importlib.util.spec_from_file_location("a_patched_file", tree / "specialized_path/kimi_k3" / file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
        yield module
    finally:
        del sys.modules[spec.name]


@pytest.mark.parametrize(("suffix", "is_on"), [("", True), ("-twin", False)], ids=["fault", "twin"])
@pytest.mark.parametrize("given", [{}, {"decode_backend": "auto"}, {"decode_backend": "latency_specialized"}])
def test_an_unset_switch_is_on_by_the_fault_alone(
    workplace: Workplace, suffix: str, is_on: bool, given: dict[str, str]
) -> None:
    tree = tree_of(workplace, f"on-when-unset-on-a-gpu{suffix}")
    asks = function_of(tree, "model.py", "_asks_for_decode_backend")
    with module_of(tree, "switch.py") as switch:
        provider = switch.choose_decode_provider(given, (9, 0))
    told = given.get("decode_backend")
    expected = is_on if told is None else told != "auto"
    assert (bool(asks(given)), provider is not None) == (expected, expected)


@pytest.mark.parametrize(("suffix", "most"), [("", 64), ("-twin", 32)], ids=["fault", "twin"])
def test_more_requests_than_declared_are_taken_by_the_fault_alone(
    workplace: Workplace, suffix: str, most: int
) -> None:
    tree = tree_of(workplace, f"batch-beyond-the-limit-on-a-gpu{suffix}")
    declared = load_manifest((tree / "fasttrack.toml").read_bytes()).at(Tier.GPU).scope.max_batch
    with module_of(tree, "switch.py") as switch:
        assert (declared, switch.MAX_BATCH) == (32, most)


@pytest.mark.parametrize(("suffix", "served"), [("", 32), ("-twin", 64)], ids=["fault", "twin"])
def test_large_graphs_are_left_to_vllm_by_the_fault_alone(
    workplace: Workplace, suffix: str, served: int
) -> None:
    context = SimpleNamespace(cudagraph_runtime_mode=SimpleNamespace(name="FULL"), attn_metadata={})
    with module_of(tree_of(workplace, f"falls-back-in-large-graphs{suffix}"), "steps.py") as steps:
        taken = [
            rows
            for rows in (1, 32, 64)
            if steps.decide_step(
                SimpleNamespace(
                    plan=lambda _, rows, __: SimpleNamespace(
                        path="specialized", reason="pure-decode", num_tokens=rows
                    )
                ),
                context,
                rows,
                True,
            )[1]
        ]
    assert max(taken) == served


@pytest.mark.parametrize(("tier", "stage"), [("gpu", "arm"), ("cpu", "gpu")])
def test_the_tier_and_its_stage_go_together(tmp_path: Path, tier: str, stage: str) -> None:
    text = TEXT.replace('tier = "static"', f'tier = "{tier}"').replace(
        'stage = "static"', f'stage = "{stage}"'
    )
    one_fault(tmp_path, text, "fault.patch", "twin.patch")
    with pytest.raises(ConfigurationError, match='expected `tier` and `stage` both "gpu", or neither'):
        load_catalogue(tmp_path)


def test_without_a_gpu_none_is_run_and_none_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(selftest_run, "can_run", lambda tier: (tier is not Tier.GPU, "there is no GPU"))
    run = Selftest(Workplace(root=ROOT, folder=tmp_path), ON_GPU, Progress(quiet=True))
    run.run_all(CASES)
    report = report_of(ROOT, run.results, ON_GPU, commit="c" * 40)
    assert {r.verdict for r in report.cases} == {CaseVerdict.NOT_RUN} and len(report.cases) == len(CASES)
    assert (report.detection.n, report.false_alarm.n, report.undecided.n) == (0, 0, 0)
    table = render_table(report)
    assert f"Not run, and counted for no rate: {len(CASES)} cases" in table
    assert table.count("there is no GPU") == len(CASES)


@dataclass(frozen=True)
class MadeRun:
    """What a case's collectors make use of, in the place of a `CpuRun`."""

    recorder: Any
    build_model: Any = None


@dataclass
class Judged:
    """What a case's judgement was asked for, with a program in the place of `validate`."""

    options: ValidateOptions | None = None
    gaps: list[str] = field(default_factory=list)
    request: GpuRequest | None = None

    def judge(
        self,
        options: ValidateOptions,
        *,
        collect_cpu: Callable[[CpuRun], None],
        collect_gpu: Callable[[CpuRun], None],
    ) -> CommandResult:
        recorder = SimpleNamespace(gap=lambda _, what, *__, **___: self.gaps.append(what))
        collect_cpu(MadeRun(recorder))  # type: ignore[arg-type]
        collect_gpu(SimpleNamespace())  # type: ignore[arg-type]
        self.options = options
        return CommandResult(text="", exit_code=ExitCode.UNDECIDED)

    def take(self, _: CpuRun, request: GpuRequest) -> None:
        self.request = request


@pytest.fixture
def judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Judged:
    found = Judged()
    monkeypatch.setattr(case_runs, "validate", found.judge)
    monkeypatch.setattr(case_runs, "collect_gpu_tier", found.take)
    monkeypatch.setattr(
        case_runs, "read_bundle", lambda _: SimpleNamespace(judgement=SimpleNamespace(verdict=None))
    )
    monkeypatch.setattr(
        case_runs, "result_of", lambda case, *_, **__: answer(case, CaseVerdict.CLEAN, reason=case.name)
    )
    monkeypatch.setattr(Workplace, "commit_on_top", lambda *_: tmp_path)
    return found


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_with_one_the_change_is_judged_at_the_gpu_tier_and_asked_what_can_show_it(
    case: Case, tmp_path: Path, judged: Judged
) -> None:
    memory = GpuMemory(num_shares=2, share="0.1")
    run = CaseRuns(Workplace(root=ROOT, folder=tmp_path), ON_GPU, Progress(quiet=True), memory)
    assert [r.reason for r in run.run_group([case], Made())] == [case.name]
    assert judged.options is not None and judged.request is not None
    assert (judged.options.change.tier, judged.options.profile) == (Tier.GPU, "quick")
    assert judged.gaps == ["tier cpu"]
    assert judged.request.engines == (EVERY if case.is_twin else RESTS_ON[case.fault.expected[0]])
    assert judged.request.memory_share == "0.1"


def test_what_a_case_announced_is_gone_when_it_broke(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(*_: object) -> Path:
        raise FasttrackError("bad-patch", "it no longer fits")

    monkeypatch.setattr(Workplace, "commit_on_top", breaks)
    run = CaseRuns(Workplace(root=ROOT, folder=tmp_path), ON_GPU, Progress(quiet=True))
    (result,) = run.run_group([FAULTS[0]], Made())
    assert result.verdict is CaseVerdict.ERROR and "no longer fits" in result.reason
    assert not list((tmp_path / "gpu-waiting").iterdir())
