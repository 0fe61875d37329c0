"""Laws of the driver, with a made engine that answers at once."""

from __future__ import annotations

import io
import json
import sys
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from harness.engine.probe import driver
from harness.engine.probe.driver import EngineProbe, Records, given_tokens
from harness.engine.probe.engine_start import start_replaying
from harness.model.probe import ProbeEngine, ProbeEvent, ProbePlan, ProbeRequest, Scenario


def made_engine() -> Any:
    """An engine in one process, as far as the driver asks for it; its steps give nothing."""
    runner = SimpleNamespace(requests=(), vllm_config=None)
    worker = SimpleNamespace(worker=SimpleNamespace(model_runner=runner))
    pool = SimpleNamespace(free_blocks=None, get_new_blocks=None)
    scheduler = SimpleNamespace(kv_cache_manager=SimpleNamespace(block_pool=pool))
    core = SimpleNamespace(model_executor=SimpleNamespace(driver_worker=worker), scheduler=scheduler)
    return SimpleNamespace(
        engine_core=SimpleNamespace(engine_core=core),
        reset_prefix_cache=lambda: None,
        has_unfinished_requests=lambda: False,
        abort_request=lambda _: None,
        step=list,
    )


def test_a_snapshot_holds_the_answers_of_the_first_scenario_and_those_of_each_repetition(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers = count(1)

    def answer_at_once(probe: EngineProbe, request: ProbeRequest, *_: object) -> None:
        probe._tokens[request.name], probe._logprobs[request.name] = [next(numbers)], [-1.0]

    monkeypatch.setattr(EngineProbe, "_add", answer_at_once)
    monkeypatch.setattr(driver, "describe_process", lambda *_: {})
    events = (ProbeEvent(before_step=0, add=(ProbeRequest(name="r0", text="a", max_tokens=1),)),)
    scenarios = tuple(Scenario(name=name, events=events) for name in ("unset", "again_1", "again_2"))
    plan = ProbeEngine(
        name="off", args=("{model}",), scenarios=scenarios, watches_state=False, takes_snapshot=True
    )
    settings = SimpleNamespace(import_path=tmp_path, ledger_dir=tmp_path)
    tracer: Any = SimpleNamespace(settings=settings, steps=SimpleNamespace(num_steps=0))
    written = io.StringIO()
    EngineProbe(made_engine(), plan, Records(written), tracer).run()
    (snapshot,) = [r for r in map(json.loads, written.getvalue().splitlines()) if r["kind"] == "snapshot"]
    tokens = [[a["token_ids"] for a in run] for run in (snapshot["answers"], *snapshot["repeats"])]
    assert tokens == [[[1]], [[2]], [[3]]]


class TakenRequests:
    """What an engine was asked for."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.given: dict[str, Any] = {}
        names = {
            "vllm": SimpleNamespace(SamplingParams=SimpleNamespace),
            "vllm.exceptions": SimpleNamespace(VLLMClientError=ValueError),
            "vllm.sampling_params": SimpleNamespace(RequestOutputKind=SimpleNamespace(DELTA=1)),
        }
        for name, module in names.items():
            monkeypatch.setitem(sys.modules, name, module)

    def add(self, name: str, _: object, params: Any) -> None:
        self.given[name] = getattr(params, "trace_decode_token_ids", None)


@pytest.mark.parametrize(
    ("gives", "can", "is_given"), [(True, True, True), (True, False, False), (False, True, False)]
)
def test_requests_are_given_tokens_where_the_plan_says_so_and_the_engine_can(
    gives: bool, can: bool, is_given: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, taken = made_engine(), TakenRequests(monkeypatch)
    group = SimpleNamespace(kv_cache_spec=SimpleNamespace(block_size=16))
    runner = engine.engine_core.engine_core.model_executor.driver_worker.worker.model_runner
    runner.kv_cache_config = SimpleNamespace(kv_cache_groups=[group])
    engine.model_config = SimpleNamespace(get_vocab_size=lambda: 1000, enable_trace_replay=can)
    engine.add_request = taken.add
    events = (ProbeEvent(before_step=0, add=(ProbeRequest(name="r0", text="abc", max_tokens=5),)),)
    plan = ProbeEngine(
        name="handover",
        args=(),
        scenarios=(Scenario(name="s", events=events),),
        watches_state=False,
        gives_tokens=gives,
    )
    tracer: Any = SimpleNamespace(
        settings=SimpleNamespace(ledger_dir=tmp_path), steps=SimpleNamespace(num_steps=0)
    )
    EngineProbe(engine, plan, Records(io.StringIO()), tracer).run()
    assert taken.given == {"r0": given_tokens("r0", 5, 1000) if is_given else None}


def test_given_tokens_are_the_requests_own_and_spread() -> None:
    first, second = given_tokens("r0", 40, 1000), given_tokens("r1", 40, 1000)
    assert first == given_tokens("r0", 40, 1000) != second
    assert len(set(first)) > 35 and all(0 <= token < 1000 for token in first)


@pytest.mark.parametrize(
    ("fields", "refusal", "started"),
    [
        ({"enable_trace_replay": 1}, "", [["--x", "--enable-trace-replay"]]),
        ({"enable_trace_replay": 1}, "trace replay requires another runner", [["--x"]]),
        ({}, "", [["--x"]]),
    ],
)
def test_an_engine_replays_tokens_where_vllm_can_and_samples_where_it_cannot(
    fields: dict[str, int], refusal: str, started: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[list[str]] = []

    def start(args: list[str]) -> None:
        if refusal and "--enable-trace-replay" in args:
            raise ValueError(refusal)
        found.append(list(args))

    arguments = SimpleNamespace(EngineArgs=SimpleNamespace(__dataclass_fields__=fields))
    monkeypatch.setitem(sys.modules, "vllm.engine.arg_utils", arguments)
    monkeypatch.setattr("harness.engine.probe.engine_start.start_engine", start)
    start_replaying(["--x"])
    assert found == started


def test_another_refusal_of_an_engine_that_replays_is_a_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(_: list[str]) -> None:
        raise ValueError("this deployment is not taken")

    arguments = SimpleNamespace(EngineArgs=SimpleNamespace(__dataclass_fields__={"enable_trace_replay": 1}))
    monkeypatch.setitem(sys.modules, "vllm.engine.arg_utils", arguments)
    monkeypatch.setattr("harness.engine.probe.engine_start.start_engine", start)
    with pytest.raises(ValueError, match="not taken"):
        start_replaying(["--x"])


def wrapped(error: Exception) -> Exception:
    """The same as the cause of another."""
    outer = RuntimeError("the engine's core did not start")
    outer.__cause__ = error
    return outer


@pytest.mark.parametrize(
    ("error", "is_refusal"),
    [
        (ValueError("Free memory on device cuda:0 (9.1/139.8 GiB) on startup is less than desired"), False),
        (torch.OutOfMemoryError("Tried to allocate 2 GiB"), False),
        (RuntimeError("CUDA error: out of memory"), False),
        (wrapped(torch.OutOfMemoryError("Tried to allocate 2 GiB")), False),
        (ValueError("decode_backend does not support this deployment"), True),
        (wrapped(ValueError("memory of 3 requests is declared")), True),
    ],
)
def test_a_gpu_without_room_is_no_refusal_of_the_deployment(
    error: Exception, is_refusal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(_: object) -> None:
        raise error

    monkeypatch.setattr(driver, "start_engine", start)
    monkeypatch.setattr(driver, "inspect_models_here", lambda: None)
    scenario = Scenario(name="a", events=(ProbeEvent(before_step=0),))
    engine = ProbeEngine(name="graphs", args=(), scenarios=(scenario,), may_refuse=True)
    written, tracer = io.StringIO(), SimpleNamespace(coverage=None)
    plan = ProbePlan(engines=(engine,), model_dir="m")
    if is_refusal:
        driver.run_plan(plan, Records(written), tracer)  # type: ignore[arg-type]
        assert json.loads(written.getvalue())["kind"] == "refusal"
    else:
        with pytest.raises(type(error)):
            driver.run_plan(plan, Records(written), tracer)  # type: ignore[arg-type]
        assert not written.getvalue()
