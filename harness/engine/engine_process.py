"""The process of an arm: started with its tracer, told apart by its log, paused, and ended without remains."""

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


class EngineProcess:
    """A program around an engine, in the environment of an arm. Whatever ends the harness, SIGKILL too, ends it."""

    def __init__(self, spec: ArmSpec) -> None:
        self.spec = spec
        self._program: Supervised | None = None
        self._temp_dir = Path()

    @property
    def is_running(self) -> bool:
        """Whether the program's own process is alive."""
        return self._program is not None and self._program.is_running

    @property
    def log_tail(self) -> tuple[str, ...]:
        """The log's last lines, without secrets and paths of this machine: untrusted text."""
        return read_log_tail(self.spec.log_path, LOG_TAIL_LINES, self._public_names)

    @property
    def _public_names(self) -> dict[str, str]:
        spec = self.spec
        return {
            str(self._temp_dir): "{tmp}",
            str(spec.ledger_dir): "{ledger}",
            str(spec.model_dir): "{model}",
            str(spec.import_path): "{head}",
            str(Path(__file__).resolve().parents[2]): "{harness}",
            sys.prefix: "{python}",
            sys.base_prefix: "{python}",
            str(Path.home()): "~",
        }

    def error(self, slug: str, message: str, advice: str = "") -> EngineError:
        """An error about this process: names the first exception in its log and carries the last lines."""
        cause = read_first_error(self.spec.log_path, self._public_names)
        text = f"{self.spec.arm}: {message}" + (f" First error in its log: {cause}" if cause else "")
        return EngineError(slug, text, advice, "\n".join(self.log_tail))

    def launch(self, command: Sequence[str]) -> Supervised | None:
        """Starts the program; None where it could not be run."""
        write_settings(self.spec.trace_settings, self.spec.settings_path)
        self._temp_dir = Path(tempfile.mkdtemp(prefix="fasttrack-"))
        self._program = Supervised(self._temp_dir, self.spec.log_path)
        env = self.spec.environment(self._temp_dir)
        is_running = self._program.launch(command, env, warm=self.spec.starts_warm)
        return self._program if is_running else None

    def end(self) -> None:
        """Kills whatever of it is left. Safe to call twice, and before a start."""
        if self._program is not None:
            self._program.kill()

    def pause(self) -> None:
        """Stops every process of the program (SIGSTOP), so that an idle arm takes no time from a timed one."""
        self._tell("pause")

    def resume(self) -> None:
        """Lets a paused program go on."""
        self._tell("resume")

    def _tell(self, word: str) -> None:
        if self._program is None or not self._program.tell(word):
            raise self.error("engine-died", f"The engine's process cannot {word}: it is gone.")
