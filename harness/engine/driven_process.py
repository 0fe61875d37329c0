"""A process of the harness's own program around engines: started like an arm, and ended without leaving anything."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from harness.engine.arm_spec import ArmSpec
from harness.engine.log_tail import read_first_error, read_log_tail
from harness.engine.supervised import Supervised
from harness.engine.trace_settings import write_settings
from harness.model.errors import EngineError

LOG_TAIL_LINES = 40


class DrivenProcess:
    """Runs a module of the harness in the environment of an arm, with its tracer."""

    def __init__(
        self, spec: ArmSpec, driver: str, argument: str, program: Sequence[str] | None = None
    ) -> None:
        """`argument` stands for the program's in the public command; `program` takes the place of the driver."""
        self.spec = spec
        self.command = (*spec.public_settings, "python", "-P", "-m", driver, argument)
        self._program_command = tuple(program or (sys.executable, "-P", "-m", driver))
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
            str(Path(__file__).resolve().parents[2]): "{harness}",
            sys.prefix: "{python}",
            str(Path.home()): "~",
        }

    def launch(self, *arguments: str) -> Supervised | None:
        """Starts the program; None where it could not be run."""
        write_settings(self.spec.trace_settings, self.spec.settings_path)
        temp_dir = Path(tempfile.mkdtemp(prefix="fasttrack-"))
        self._program = Supervised(temp_dir, self.spec.log_path)
        command, env = (*self._program_command, *arguments), self.spec.environment(temp_dir)
        is_running = self._program.launch(command, env, warm=self.spec.starts_warm)
        return self._program if is_running else None

    def end(self) -> None:
        """Kills whatever of it is left. Safe to call twice, and before a start."""
        if self._program is not None:
            self._program.kill()

    def error(self, slug: str, message: str) -> EngineError:
        """An error about this process: names the first exception in its log and carries the last lines."""
        cause = read_first_error(self.spec.log_path, self._public_names)
        text = f"{self.spec.arm}: {message}" + (f" First error in its log: {cause}" if cause else "")
        return EngineError(slug, text, "", "\n".join(self.log_tail))
