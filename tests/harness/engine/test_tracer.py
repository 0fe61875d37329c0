"""The tracer writes what it saw, proves that it sees, and says what it could not see."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.engine import tracer as tracer_module
from harness.engine.arm_spec import BOOTSTRAP, ArmSpec
from harness.engine.ledger_reader import LedgerReading, read_ledger
from harness.engine.step_recorder import StepRecorder, read_decision
from harness.engine.trace_settings import SETTINGS_ENV, DecisionTarget, read_settings, write_settings
from harness.engine.tracer import Tracer

ENGINE = """
class GPUModelRunner:
    max_model_len = 64
    def __init__(self):
        import toy_subject.planner, toy_subject.paths
        self.planner, self.paths = toy_subject.planner.Planner(), toy_subject.paths
    def warm_up(self):
        self.paths.fast(None)
        self.planner.plan(1)
    def execute_model(self, scheduler_output, dummy_run=False):
        if dummy_run:
            return None
        if scheduler_output.fails:
            raise RuntimeError("out of memory")
        self.output = scheduler_output.output
        plan = self.planner.plan(len(scheduler_output.num_scheduled_tokens))
        for _ in range(2):
            (self.paths.fast if plan.path == "fast" else self.paths.slow)(None)
        return scheduler_output.at_once
    def sample_tokens(self, grammar_output):
        return self.output

class Worker:
    def compile_or_warm_up_model(self, runner, output):
        runner.execute_model(output)
        runner.sample_tokens(None)
"""


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module that stands in for vLLM's model runner; its name."""
    (tmp_path / "engine").mkdir()
    (tmp_path / "engine/fake_runner.py").write_text(ENGINE)
    monkeypatch.syspath_prepend(str(tmp_path / "engine"))
    monkeypatch.setattr(tracer_module, "RUNNER_MODULES", ("fake_runner",))
    monkeypatch.setattr(tracer_module, "WARM_UPS", ("fake_runner:Worker.compile_or_warm_up_model",))
    return "fake_runner"


@pytest.fixture
def install(spec: ArmSpec, engine: str) -> Iterator[Callable[..., Tracer]]:
    """Installs a tracer for the toy subject in this process."""
    before = list(sys.meta_path)
    spec.ledger_dir.mkdir()

    def make(other: ArmSpec | None = None) -> Tracer:
        return tracer_module.install((other or spec).trace_settings)

    yield make
    sys.meta_path[:] = before
    for name in [n for n in sys.modules if n.partition(".")[0] in ("toy_subject", engine)]:
        del sys.modules[name]


def scheduled(*request_ids: str, output: Any = None, at_once: Any = None, fails: bool = False) -> Any:
    params = SimpleNamespace(max_tokens=9, stop_token_ids=[], eos_token_id=None)
    return SimpleNamespace(
        scheduled_new_reqs=[
            SimpleNamespace(req_id=r, prompt_token_ids=[1, 2], num_computed_tokens=0, sampling_params=params)
            for r in request_ids
        ],
        scheduled_cached_reqs=SimpleNamespace(req_ids=[], resumed_req_ids=set()),
        num_scheduled_tokens=dict.fromkeys(request_ids, 2),
        scheduled_spec_decode_tokens={},
        finished_req_ids=set(request_ids),
        output=output or sampled(*request_ids),
        at_once=at_once,
        fails=fails,
    )


def sampled(*request_ids: str) -> Any:
    return SimpleNamespace(
        sampled_token_ids=[[5]] * len(request_ids), req_id_to_index={r: i for i, r in enumerate(request_ids)}
    )


def runner() -> Any:
    return importlib.import_module("fake_runner").GPUModelRunner()


def serve(engine_runner: Any, output: Any) -> None:
    engine_runner.execute_model(output)
    engine_runner.sample_tokens(None)


def read(spec: ArmSpec) -> LedgerReading:
    return read_ledger(spec.ledger_dir, spec.nonce)


def test_a_step_becomes_a_row_with_its_decision_calls_and_tokens(
    install: Callable[..., Tracer], spec: ArmSpec
) -> None:
    install()
    served = runner()
    serve(served, scheduled("a", "b"))
    serve(served, scheduled(*"abcde"))
    first, second = read(spec).rows
    assert (first.num_reqs, first.ran, first.decisions[0].specialized) == (
        2,
        {"toy_subject.paths:fast": 2},
        True,
    )
    assert [r.num_emitted_tokens for r in first.requests] == [1, 1]
    assert (second.ran, second.decisions[0].reason) == ({"toy_subject.paths:slow": 2}, "5 requests")
    assert read(spec).problems == ()


def test_the_tracer_proves_that_it_is_alive_by_its_own_marker(
    install: Callable[..., Tracer], spec: ArmSpec
) -> None:
    install()
    serve(runner(), scheduled("a"))
    proof = read(spec).proof
    assert proof is not None and proof.marker_seen and proof.missing == {}
    assert set(proof.wrapped) == {
        "toy_subject.planner:Planner.plan",
        "toy_subject.paths:fast",
        "toy_subject.paths:slow",
    }
    assert "GPUModelRunner.execute_model" in proof.step_hooks


@pytest.mark.parametrize("broken", ["count_wrapper", "decision_wrapper"])
def test_a_tracer_whose_wrapping_does_nothing_does_not_see_its_marker(
    install: Callable[..., Tracer], spec: ArmSpec, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    def leave_alone(_self: StepRecorder, subject: Any, _target: str = "") -> Any:
        return subject if broken == "count_wrapper" else lambda function, _target: function

    monkeypatch.setattr(StepRecorder, broken, leave_alone)
    install()
    serve(runner(), scheduled("a"))
    reading = read(spec)
    assert reading.proof is not None and not reading.proof.marker_seen
    assert any("its own marker" in p for p in reading.problems)


def test_calls_outside_a_step_count_for_no_step(install: Callable[..., Tracer], spec: ArmSpec) -> None:
    install()
    served = runner()
    served.warm_up()
    serve(served, scheduled("a"))
    (row,) = read(spec).rows
    assert (row.ran, len(row.decisions)) == ({"toy_subject.paths:fast": 2}, 1)


def test_the_runners_own_warm_up_is_no_step_and_no_problem(
    install: Callable[..., Tracer], spec: ArmSpec
) -> None:
    install()
    served = runner()
    served.execute_model(SimpleNamespace(num_scheduled_tokens={"nobody": 1}), dummy_run=True)
    serve(served, scheduled("a"))
    reading = read(spec)
    assert (len(reading.rows), reading.problems) == (1, ())


def test_what_a_worker_computes_before_it_serves_is_no_step(
    install: Callable[..., Tracer], spec: ArmSpec
) -> None:
    install()
    served = runner()
    never_fetched = SimpleNamespace(get_output=lambda: None)
    importlib.import_module("fake_runner").Worker().compile_or_warm_up_model(
        served, scheduled("nobody", output=never_fetched)
    )
    serve(served, scheduled("a"))
    reading = read(spec)
    assert ([r.num_reqs for r in reading.rows], reading.problems) == ([1], ())


def test_a_target_may_decide_and_count_at_once(spec: ArmSpec, install: Callable[..., Tracer]) -> None:
    both = spec.dispatch.model_copy(update={"specialized_code": (spec.dispatch.decisions[0].target,)})
    install(replace(spec, dispatch=both))
    serve(runner(), scheduled("a"))
    (row,) = read(spec).rows
    assert (row.ran[both.decisions[0].target], len(row.decisions)) == (1, 1)


def test_a_runner_that_returns_its_output_at_once_writes_the_row_at_once(
    install: Callable[..., Tracer], spec: ArmSpec
) -> None:
    install()
    runner().execute_model(scheduled("a", at_once=sampled("a")))
    assert read(spec).rows[0].requests[0].num_emitted_tokens == 1


def test_an_asynchronous_output_writes_its_row_when_it_is_fetched(
    install: Callable[..., Tracer], spec: ArmSpec
) -> None:
    class Later:
        # As vLLM's second model runner has it: of the same name, and not there yet.
        sampled_token_ids = None

        def get_output(self) -> Any:
            return sampled("a")

    install()
    later = Later()
    serve(runner(), scheduled("a", output=later))
    assert not read(spec).rows
    later.get_output()
    assert read(spec).rows[0].requests[0].num_emitted_tokens == 1


def test_what_the_tracer_cannot_read_becomes_an_error_record_and_serving_goes_on(
    install: Callable[..., Tracer], spec: ArmSpec
) -> None:
    install()
    strange = scheduled("a")
    del strange.scheduled_new_reqs
    served = runner()
    serve(served, strange)
    serve(served, scheduled("b"))
    reading = read(spec)
    assert len(reading.rows) == 1 and any("scheduled_new_reqs" in p for p in reading.problems)


def test_a_step_that_raises_is_recorded_and_raises_still(
    install: Callable[..., Tracer], spec: ArmSpec
) -> None:
    install()
    served = runner()
    with pytest.raises(RuntimeError, match="out of memory"):
        served.execute_model(scheduled("a", fails=True))
    assert any("out of memory" in p for p in read(spec).problems)


def test_nothing_of_the_subject_is_imported_by_naming_it(
    install: Callable[..., Tracer], spec: ArmSpec
) -> None:
    install()
    serve(runner(), scheduled("a"))
    assert set(read(spec).modules) == {"toy_subject", "toy_subject.planner", "toy_subject.paths"}
    assert {f.path for f in read(spec).imported} == {
        f"toy_subject/{n}.py" for n in ("__init__", "planner", "paths")
    }


def test_a_module_that_comes_in_past_the_import_hook_is_found(
    install: Callable[..., Tracer], spec: ArmSpec
) -> None:
    import importlib.util

    install()
    served = runner()
    hidden = importlib.util.spec_from_file_location("innocent", spec.import_path / "toy_subject/unused.py")
    assert hidden is not None
    sys.modules["innocent"] = importlib.util.module_from_spec(hidden)
    try:
        serve(served, scheduled("a"))
    finally:
        del sys.modules["innocent"]
    assert "toy_subject/unused.py" in {f.path for f in read(spec).imported}


def test_a_subject_imported_before_the_tracer_is_a_problem(
    install: Callable[..., Tracer], spec: ArmSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(spec.import_path))
    importlib.import_module("toy_subject.paths")
    install()
    serve(runner(), scheduled("a"))
    assert any("before the tracer" in p for p in read(spec).problems)


@pytest.mark.parametrize(
    ("value", "specialized", "expected"),
    [
        ("fast", "fast", True),
        ("slow", "fast", False),
        (True, "true", True),
        (False, "true", False),
        (2, "2", True),
    ],
)
def test_a_decision_is_read_as_the_manifest_says(value: object, specialized: str, expected: bool) -> None:
    point = DecisionTarget(target="m:f", value="", specialized=specialized)
    assert read_decision(value, point)["specialized"] is expected


def test_a_decision_without_the_named_attribute_is_not_read_as_anything() -> None:
    with pytest.raises(AttributeError):
        read_decision(object(), DecisionTarget(target="m:f", value="path", specialized="fast"))


def test_settings_survive_the_file(spec: ArmSpec, tmp_path: Path) -> None:
    write_settings(spec.trace_settings, tmp_path / "trace.json")
    assert read_settings(tmp_path / "trace.json") == spec.trace_settings


def run_python(code: str, **env: str) -> str:
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(BOOTSTRAP), **env}
    result = subprocess.run(
        [sys.executable, "-P", "-c", code],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return result.stdout


def test_without_the_environment_variable_nothing_is_installed() -> None:
    code = """
import sys
loaded = "harness" in sys.modules
from harness.engine import tracer
tracer.register()
print(loaded, tracer.active(), any(type(f).__name__ == "SubjectFinder" for f in sys.meta_path))
"""
    assert run_python(code).split() == ["False", "None", "False"]


def test_every_process_of_an_engine_pins_the_subject_before_it_runs_anything(spec: ArmSpec) -> None:
    spec.ledger_dir.mkdir()
    write_settings(spec.trace_settings, spec.settings_path)
    code = "import toy_subject, json, sys; print(json.dumps([toy_subject.__file__, 'vllm' in sys.modules]))"
    found = json.loads(run_python(code, **{SETTINGS_ENV: str(spec.settings_path)}))
    assert found == [str(spec.import_path / "toy_subject/__init__.py"), False]


def test_a_process_without_a_model_runner_writes_no_ledger(spec: ArmSpec) -> None:
    spec.ledger_dir.mkdir()
    write_settings(spec.trace_settings, spec.settings_path)
    run_python("import toy_subject.paths", **{SETTINGS_ENV: str(spec.settings_path)})
    assert not list(spec.ledger_dir.glob("*.jsonl"))


def test_what_a_replayed_graph_holds_counts_for_its_step_and_for_no_other(
    install: Callable[..., Tracer], spec: ArmSpec
) -> None:
    steps = install().steps
    served = runner()
    steps.capture_begun()
    served.warm_up()
    steps.capture_ended("graph")
    replay = SimpleNamespace(plan=lambda _: (steps.replayed("graph"), SimpleNamespace(path="fast"))[1])
    served.planner, planner = replay, served.planner
    served.paths, paths = SimpleNamespace(fast=lambda _: None), served.paths
    serve(served, scheduled("a"))
    served.planner, served.paths = planner, paths
    serve(served, scheduled("b"))
    replayed, eager = read(spec).rows
    assert (replayed.ran, [d.reason for d in replayed.decisions]) == (
        {"toy_subject.paths:fast": 1},
        [d.reason for d in eager.decisions],
    )
    assert (replayed.graph_replayed, eager.graph_replayed) == (True, False)
    assert eager.ran == {"toy_subject.paths:fast": 2}


@pytest.mark.parametrize("followed", [False, True])
def test_an_engine_with_graphs_that_are_not_followed_is_a_problem(
    install: Callable[..., Tracer], spec: ArmSpec, monkeypatch: pytest.MonkeyPatch, followed: bool
) -> None:
    install().steps.follows_graphs = followed
    module = importlib.import_module("fake_runner")
    mode = SimpleNamespace(cudagraph_mode=SimpleNamespace(name="FULL"))
    monkeypatch.setattr(module.GPUModelRunner, "compilation_config", mode, raising=False)
    serve(runner(), scheduled("a"))
    assert any("graphs are captured" in problem for problem in read(spec).problems) is not followed


def decoding(ids: Sequence[str], num_computed: int, output: Any = None) -> Any:
    """A decode step of requests that were prefilled before, two prompt tokens each."""
    cached = SimpleNamespace(
        req_ids=list(ids),
        num_computed_tokens=[num_computed] * len(ids),
        num_output_tokens=[num_computed - 1] * len(ids),
        resumed_req_ids=set(),
    )
    fresh = scheduled(*ids, output=output)
    fresh.scheduled_new_reqs, fresh.scheduled_cached_reqs, fresh.finished_req_ids = [], cached, set()
    fresh.num_scheduled_tokens = dict.fromkeys(ids, 1)
    return fresh


def fetched(output: Any) -> Any:
    """An output as vLLM's second model runner returns it: its tokens are known once it is asked for them."""
    return SimpleNamespace(sampled_token_ids=None, req_id_to_index={}, get_output=lambda: output)


@pytest.mark.parametrize("is_late", [False, True], ids=["at once", "fetched"])
def test_steps_that_go_on_are_written_short_and_read_as_if_they_were_not(
    install: Callable[..., Tracer], spec: ArmSpec, *, is_late: bool
) -> None:
    install()
    served = runner()

    def step(output: Any) -> None:
        if is_late:
            output.output = fetched(output.output)
        served.execute_model(output)
        result = served.sample_tokens(None)
        if is_late:
            result.get_output()

    step(scheduled("a", "b"))
    for num_computed in (2, 3, 4):
        step(decoding("ab", num_computed))
    short = SimpleNamespace(sampled_token_ids=[[5], []], req_id_to_index={"a": 0, "b": 1})
    step(decoding("ab", 5, output=short))
    step(decoding("a", 6))
    reading = read(spec)
    (path,) = spec.ledger_dir.glob("*.jsonl")
    written = [json.loads(line) for line in path.read_text().splitlines()]
    assert ["requests" not in row for row in written if row["kind"] == "row"] == [
        *(False, False, True, True),
        *(False, False),
    ]
    assert reading.problems == ()
    parts = [
        [(r.request_id, r.num_computed_tokens, r.num_emitted_tokens) for r in w.requests]
        for w in reading.rows
    ]
    assert parts[2:] == [
        [("a", 3, 1), ("b", 3, 1)],
        [("a", 4, 1), ("b", 4, 1)],
        [("a", 5, 1), ("b", 5, 0)],
        [("a", 6, 1)],
    ]
    assert all(row.decisions and row.ran for row in reading.rows)


def test_steps_that_begin_before_the_one_before_is_fetched_are_written_in_full(
    install: Callable[..., Tracer], spec: ArmSpec
) -> None:
    install()
    served = runner()
    serve(served, scheduled("a", "b"))
    waiting: list[Any] = []
    for num_computed in range(2, 8):
        served.execute_model(decoding("ab", num_computed, output=fetched(sampled("a", "b"))))
        waiting.append(served.sample_tokens(None))
        if len(waiting) > 1:
            waiting.pop(0).get_output()
    waiting.pop().get_output()
    reading = read(spec)
    assert reading.problems == ()
    assert [[r.num_computed_tokens for r in row.requests] for row in reading.rows[1:]] == [
        [n, n] for n in range(2, 8)
    ]
