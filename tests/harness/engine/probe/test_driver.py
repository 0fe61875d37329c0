"""Laws of the driver, with a made engine that answers at once."""

from __future__ import annotations

import io
import json
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.engine.probe import driver
from harness.engine.probe.driver import EngineProbe, Records
from harness.model.probe import ProbeEngine, ProbeEvent, ProbeRequest, Scenario


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
