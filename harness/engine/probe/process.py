"""A probe process: started like an arm, waited for, and ended without leaving anything behind."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from harness.engine.arm_spec import ArmSpec
from harness.engine.log_tail import read_first_error, read_log_tail
from harness.engine.probe.recording import Recording, read_recording
from harness.engine.supervised import Supervised
from harness.engine.trace_settings import write_settings
from harness.model.errors import EngineError
from harness.model.probe import ProbePlan

DRIVER = "harness.engine.probe.driver"
LOG_TAIL_LINES = 40


class ProbeProcess:
    """Runs one plan. `run` blocks; `kill` may come from another thread."""

    def __init__(
        self,
        spec: ArmSpec,
        plan: ProbePlan,
        *,
        program: Sequence[str] = (sys.executable, "-P", "-m", DRIVER),
        timeout_s: float = 420,
    ) -> None:
        """`program` is given the path of the plan."""
        self._program_command = tuple(program)
        self.spec = spec
        self.plan = plan
        self.command = (*spec.public_settings, "python", "-P", "-m", DRIVER, "{plan}")
        self.is_killed = False
        self._timeout_s = timeout_s
        self._program: Supervised | None = None

    @property
    def log_tail(self) -> tuple[str, ...]:
        """The log's last lines, without secrets and paths of this machine: untrusted text."""
        return read_log_tail(self.spec.log_path, LOG_TAIL_LINES, self._public_names)

    @property
    def _public_names(self) -> dict[str, str]:
        return {
            str(self.spec.ledger_dir): "{ledger}",
            str(self.spec.import_path): "{head}",
            str(Path(__file__).resolve().parents[3]): "{harness}",
            sys.prefix: "{python}",
            str(Path.home()): "~",
        }

    def run(self) -> Recording:
        """Runs the plan to its end and gives what it recorded.

        Raises:
            EngineError: the process could not be started, failed, or took too long.
            EvidenceError: it wrote no records that can be read.
        """
        folder = self.spec.ledger_dir
        folder.mkdir(parents=True, exist_ok=True)
        write_settings(self.spec.trace_settings, self.spec.settings_path)
        plan_path = folder / "plan.json"
        plan_path.write_text(self.plan.model_dump_json(), encoding="utf-8")
        temp_dir = Path(tempfile.mkdtemp(prefix="fasttrack-"))
        self._program = Supervised(temp_dir, self.spec.log_path)
        try:
            command = (*self._program_command, str(plan_path))
            env = self.spec.environment(temp_dir)
            if self.is_killed or not self._program.launch(command, env, warm=self.spec.starts_warm):
                raise self._error("probe-start", "The scripted run could not be started.")
            self._wait()
        finally:
            self._program.kill()
        return read_recording(folder, self.spec.nonce)

    def _wait(self) -> None:
        assert self._program is not None
        deadline = time.monotonic() + self._timeout_s
        while not self.is_killed and (left := deadline - time.monotonic()) > 0:
            status = self._program.wait(min(left, 0.5))
            if status == 0:
                return
            if status is not None:
                raise self._error("probe-failed", f"The scripted run ended early (exit status {status}).")
        text = "was stopped" if self.is_killed else f"was not done within {self._timeout_s:.0f} s"
        raise self._error("probe-not-done", f"The scripted run {text}.")

    def kill(self) -> None:
        """Ends the process at once; `run` then raises."""
        self.is_killed = True

    def _error(self, slug: str, message: str) -> EngineError:
        cause = read_first_error(self.spec.log_path, self._public_names)
        text = f"{self.spec.arm}: {message}" + (f" First error in its log: {cause}" if cause else "")
        return EngineError(slug, text, "", "\n".join(self.log_tail))
