"""A program under the supervisor: however the harness ends, nothing of the program goes on behind it."""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from harness.engine import supervisor
from harness.engine.warm_start import WarmProcess, fork_supervisor


class Supervised:
    """One program with a temporary folder of its own, all of whose processes end with it."""

    def __init__(self, temp_dir: Path, log_path: Path) -> None:
        """`temp_dir` exists and is removed in the end; `log_path` takes what the program prints."""
        self._temp_dir = temp_dir
        self._log_path = log_path
        self._supervisor: subprocess.Popen[bytes] | WarmProcess | None = None
        self._pid = 0
        self._told = "resume"

    @property
    def is_running(self) -> bool:
        """Whether the program's own process is alive."""
        return self._supervisor is not None and self._supervisor.poll() is None

    def launch(self, command: Sequence[str], env: Mapping[str, str], *, warm: bool = False) -> bool:
        """Starts the program; whether it could be run at all.

        `warm`: a module of Python that imports vLLM is run in a process with vLLM in it, where that can be had.
        """
        if warm:
            self._supervisor = fork_supervisor(self._temp_dir, self._log_path, command, env)
        if self._supervisor is None:
            self._supervisor = self._run_supervisor(command, env)
        answer = self.hear(timeout_s=30)
        if not answer.isdigit():
            return False
        self._pid = int(answer)
        return True

    def _run_supervisor(self, command: Sequence[str], env: Mapping[str, str]) -> subprocess.Popen[bytes]:
        head = [sys.executable, "-I", "-S", supervisor.__file__, str(self._temp_dir), str(self._log_path)]
        with self._log_path.open("ab") as log:
            return subprocess.Popen(
                [*head, *command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=dict(env),
                start_new_session=True,
            )

    def wait(self, timeout_s: float) -> int | None:
        """The program's exit status; None while it still runs after `timeout_s`, or was killed from here."""
        watcher = self._supervisor
        if watcher is None:
            return None
        try:
            return watcher.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None

    def send(self, line: str) -> bool:
        """Gives the supervisor a command; whether it could be written."""
        watcher = self._supervisor
        if watcher is None or watcher.stdin is None:
            return False
        try:
            watcher.stdin.write(line.encode() + b"\n")
            watcher.stdin.flush()
        except (OSError, ValueError):
            return False
        return True

    def tell(self, word: str) -> bool:
        """Stops every process where it is ("pause"), or lets all go on ("resume"); whether that is so now."""
        if word != self._told:
            if not (self.is_running and self.send(word) and self.hear(30) == word):
                return False
            self._told = word
        return True

    def hear(self, timeout_s: float) -> str:
        """The supervisor's next line; empty when none comes in time."""
        watcher = self._supervisor
        if watcher is None or watcher.stdout is None:
            return ""
        if not select.select([watcher.stdout], [], [], timeout_s)[0]:
            return ""
        return os.read(watcher.stdout.fileno(), 100).decode().strip()

    def kill(self) -> None:
        """Kills every process of the program at once and removes its temporary folder. Safe to call twice."""
        watcher, self._supervisor = self._supervisor, None
        if watcher is not None:
            assert watcher.stdin is not None and watcher.stdout is not None
            # The supervisor takes the end of its input as the end of the harness.
            watcher.stdin.close()
            try:
                watcher.wait(15)
            except subprocess.TimeoutExpired:
                watcher.kill()
                watcher.wait()
            watcher.stdout.close()
            if (watcher.returncode or 0) < 0:
                _kill_group(self._pid)
        shutil.rmtree(self._temp_dir, ignore_errors=True)


def _kill_group(pid: int) -> None:
    """The program leads its own process group; something is left of it only if the supervisor was killed."""
    if pid:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
