"""What the harness can ask of a worker over `/collective_rpc`: the suite, coverage, noise on purpose, signs of life."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

from harness.engine.tracer import Tracer, active

HOLD_BEGUN, HOLD_ENDED = "begun", "ended"
"""Files in a hold's folder: the worker says that it holds the engine, the client that it may go on."""
MAX_HOLD_S = 30.0
"""The worker lets go by itself after this long."""


class FasttrackWorkerExtension:
    """Mixed into vLLM's worker class by `--worker-extension-cls`. Every method answers with a JSON object."""

    def fasttrack_status(self) -> dict[str, Any]:
        """Which tracer lives here, how many steps it has seen, and whether a trace function slows the worker."""
        tracer = _tracer()
        return {
            "pid": os.getpid(),
            "nonce": tracer.settings.nonce,
            "num_steps": tracer.steps.num_steps,
            "tracing": sys.gettrace() is not None,
        }

    def fasttrack_suite(self, suite: str) -> dict[str, Any]:
        """Lines that run from now on belong to `suite`."""
        tracer = _tracer()
        if tracer.coverage is not None:
            tracer.coverage.switch(suite)
        return {"coverage": tracer.coverage is not None}

    def fasttrack_perturb(self, amplitude: str, seed: str, *targets: str) -> dict[str, Any]:
        """Puts relative noise on what `targets` return from now on, "0" none; how many calls the last noise changed."""
        perturber = _tracer().steps.perturber
        num_calls = perturber.num_calls
        perturber.switch(float(amplitude), int(seed), targets)
        return {"num_perturbed_calls": num_calls}

    def fasttrack_experts(self, word: str) -> dict[str, Any]:
        """Counts from "start" on which experts tokens go to, and gives the counts at "stop"."""
        tally = _tracer().steps.experts
        if word == "stop":
            return tally.stop()
        tally.start()
        return {}

    def fasttrack_profile(self, word: str) -> dict[str, Any]:
        """Profiles the decode steps that come after "start", and gives what the GPU did in them at "stop"."""
        profile = _tracer().steps.profile
        if word == "stop":
            return profile.result()
        profile.arm()
        return {}

    def fasttrack_rows(self, word: str) -> dict[str, Any]:
        """Keeps the ledger's rows in memory from "hold" on, and writes them at "write"."""
        steps = _tracer().steps
        if word == "hold":
            steps.hold_back()
        else:
            steps.write_held()
        return {}

    def fasttrack_hold(self, folder: str) -> dict[str, Any]:
        """Keeps the engine from its next step until the client says so in `folder` (`harness.engine.hold`)."""
        begun, ended = Path(folder, HOLD_BEGUN), Path(folder, HOLD_ENDED)
        begun.touch()
        deadline = time.monotonic() + MAX_HOLD_S
        while begun.exists() and not ended.exists() and time.monotonic() < deadline:
            time.sleep(0.005)
        return {"num_steps": _tracer().steps.num_steps}

    def fasttrack_coverage_stop(self) -> dict[str, Any]:
        """Stops line coverage, so that nothing slows the worker while it is timed."""
        tracer = _tracer()
        if tracer.coverage is not None:
            tracer.coverage.stop()
        return {"tracing": sys.gettrace() is not None}

    def fasttrack_coverage_save(self) -> dict[str, Any]:
        """Writes the coverage data to the ledger's folder."""
        tracer = _tracer()
        if tracer.coverage is not None:
            tracer.coverage.save()
        return {"coverage": tracer.coverage is not None}


def _tracer() -> Tracer:
    tracer = active()
    if tracer is None:
        raise RuntimeError("this worker has no tracer")
    return tracer
