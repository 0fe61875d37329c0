"""Processes of one job: started side by side, listened to, ended when they overrun. Nothing here knows of GPUs.

A process writes one JSON object a line to a file of its own, which outlives it, and begins to work when it reads a line
from its standard input.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

_LOOK_S = 0.02
Line = Mapping[str, Any]


class Group:
    """One process a rank; end it with `end`, whatever happened."""

    def __init__(
        self, commands: Sequence[Sequence[str]], folder: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        """Starts them; `{lines}` in a command becomes the file that the process writes to."""
        folder.mkdir(parents=True, exist_ok=True)
        self._files = [folder / f"process-{index}.jsonl" for index in range(len(commands))]
        self._processes = []
        for command, lines in zip(commands, self._files, strict=True):
            lines.write_text("")
            with lines.with_suffix(".log").open("w") as log:
                self._processes.append(
                    subprocess.Popen(
                        [word.format(lines=lines) for word in command],
                        stdin=subprocess.PIPE,
                        stdout=log,
                        stderr=subprocess.STDOUT,
                        env={**os.environ, **(environment or {})},
                        start_new_session=True,
                    )
                )

    def begin(self) -> None:
        """Lets all of them work."""
        for process in self._processes:
            assert process.stdin is not None
            with suppress(BrokenPipeError):
                process.stdin.write(b"\n")
                process.stdin.flush()

    def lines(self, index: int) -> list[Line]:
        """What a process has written so far; a line that is not whole yet is left out."""
        text = self._files[index].read_text(encoding="utf-8")
        return [json.loads(line) for line in text.split("\n")[:-1]]

    def wait(self, index: int, event: str, deadline: float) -> Line | None:
        """The first line of this event; None when the process ends or the monotonic clock passes `deadline` first."""
        while True:
            has_ended = self._processes[index].poll() is not None
            found = next((line for line in self.lines(index) if line["event"] == event), None)
            if found or has_ended or time.monotonic() > deadline:
                return found
            time.sleep(_LOOK_S)

    def wait_all(self, deadline: float, *, but: int | None = None, grace_s: float) -> None:
        """Returns when all processes but one have ended, `grace_s` after one failed, or at the deadline."""
        waited = [process for index, process in enumerate(self._processes) if index != but]
        while time.monotonic() <= deadline:
            ends = [process.poll() for process in waited]
            if None not in ends:
                return
            if any(ends):
                deadline = min(deadline, time.monotonic() + grace_s)
            time.sleep(_LOOK_S)

    def send(self, index: int, number: signal.Signals) -> float:
        """Signals one process, and returns the monotonic time just before."""
        before = time.monotonic()
        self._processes[index].send_signal(number)
        return before

    def end(self) -> list[str | None]:
        """Ends what still runs, with its children, and says what was wrong with each process, if anything was."""
        running = [process.poll() is None for process in self._processes]
        for process, runs in zip(self._processes, running, strict=True):
            if runs:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            if process.stdin is not None:
                with suppress(BrokenPipeError):
                    process.stdin.close()
        return [self._trouble(index, was_running=was_running) for index, was_running in enumerate(running)]

    def _trouble(self, index: int, *, was_running: bool) -> str | None:
        raised = next((line["why"] for line in self.lines(index) if line["event"] == "raised"), None)
        if raised is not None:
            return str(raised)
        if was_running:
            return "it did not answer in time and was ended"
        code = self._processes[index].returncode
        if not code:
            return None
        said = (
            self._files[index].with_suffix(".log").read_text(encoding="utf-8", errors="replace").split("\n")
        )
        last = next((line.strip() for line in reversed(said) if line.strip()), "nothing")
        how = f"died of {signal.Signals(-code).name}" if code < 0 else f"ended with {code}"
        return f"it {how}; its log ends: {last[:300]}"
