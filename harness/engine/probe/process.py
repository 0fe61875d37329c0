"""A probe process: started like an arm, waited for, and ended without leaving anything behind."""

from __future__ import annotations

import time
from collections.abc import Sequence

from harness.engine.arm_spec import ArmSpec
from harness.engine.driven_process import DrivenProcess
from harness.engine.probe.recording import Recording, read_recording
from harness.engine.supervised import Supervised
from harness.model.probe import ProbePlan

DRIVER = "harness.engine.probe.driver"


class ProbeProcess(DrivenProcess):
    """Runs one plan. `run` blocks; `kill` may come from another thread."""

    def __init__(
        self,
        spec: ArmSpec,
        plan: ProbePlan,
        *,
        program: Sequence[str] | None = None,
        timeout_s: float = 420,
    ) -> None:
        """`program` is given the path of the plan; None runs the driver."""
        super().__init__(spec, DRIVER, "{plan}", program)
        self.plan = plan
        self.is_killed = False
        self._timeout_s = timeout_s

    def run(self) -> Recording:
        """Runs the plan to its end and gives what it recorded.

        Raises:
            EngineError: the process could not be started, failed, or took too long.
            EvidenceError: it wrote no records that can be read.
        """
        folder = self.spec.ledger_dir
        folder.mkdir(parents=True, exist_ok=True)
        plan_path = folder / "plan.json"
        plan_path.write_text(self.plan.model_dump_json(), encoding="utf-8")
        try:
            program = None if self.is_killed else self.launch_driver(str(plan_path))
            if program is None:
                raise self.error("probe-start", "The scripted run could not be started.")
            self._wait(program)
        finally:
            self.end()
        return read_recording(folder, self.spec.nonce)

    def _wait(self, program: Supervised) -> None:
        deadline = time.monotonic() + self._timeout_s
        while not self.is_killed and (left := deadline - time.monotonic()) > 0:
            status = program.wait(min(left, 0.5))
            if status == 0:
                return
            if status is not None:
                raise self.error("probe-failed", f"The scripted run ended early (exit status {status}).")
        text = "was stopped" if self.is_killed else f"was not done within {self._timeout_s:.0f} s"
        raise self.error("probe-not-done", f"The scripted run {text}.")

    def kill(self) -> None:
        """Ends the process at once; `run` then raises."""
        self.is_killed = True
