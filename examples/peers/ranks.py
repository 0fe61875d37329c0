"""Processes that serve together and obey together: answers have a deadline, and the one that fails ends them all."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from examples.slice.__main__ import Process

_LOOK_S = 0.5
_TAIL_LINES, _TAIL_CHARACTERS = 12, 1500


class RanksFailed(RuntimeError):
    """A rank has ended, refused, or did not answer in time; all of them were ended."""


class RanksDiffer(RuntimeError):
    """Ranks that must have the same bits have not."""


class Ranks(Process):
    """An arm of one or more processes: all get every command, and must answer alike."""

    def __init__(
        self,
        commands: Sequence[Sequence[str]],
        logs: Sequence[Path],
        environments: Sequence[Mapping[str, str]],
    ) -> None:
        """Starts a process for each command."""
        self.deadline = float("inf")
        """On the monotonic clock, for every answer."""
        self._logs = tuple(logs)
        self._programs = tuple(zip(commands, logs, environments, strict=True))
        self.start()

    def start(self) -> None:
        """Starts all anew; they are not running."""
        self.trouble: str | None = None
        """Why it serves no more."""
        self._heard: queue.Queue[tuple[int, str]] = queue.Queue()
        self._lines: list[deque[dict[str, Any]]] = [deque() for _ in self._programs]
        self._closed: set[int] = set()
        """Ranks of which nothing more will be heard."""
        self._ranks: list[subprocess.Popen[str]] = []
        for rank, (command, log, own) in enumerate(self._programs):
            with log.open("a") as out:
                process = subprocess.Popen(
                    command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=out,
                    text=True,
                    env={**os.environ, **own},
                    start_new_session=True,
                )
            self._ranks.append(process)
            listener = threading.Thread(target=_listen, args=(rank, process, self._heard), daemon=True)
            listener.start()

    def __len__(self) -> int:
        return len(self._ranks)

    def answer(self) -> dict[str, Any]:
        """The next line of all ranks: the first rank's; of times, those of the rank that waited least for the others.

        Raises:
            RanksFailed: a rank has ended, refused to serve, or did not answer by the deadline; none serves any more.
            RanksDiffer: what must be the same in all ranks is not.
        """
        if self.trouble is not None:
            raise RanksFailed(self.trouble)
        while silent := [rank for rank, lines in enumerate(self._lines) if not lines]:
            for rank in self._closed.intersection(silent):
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._ranks[rank].wait(5)
                self._fail(f"rank {rank} {_ending(self._ranks[rank].poll())}; {self._tail(rank)}")
            self._hear(silent)
        found = [lines.popleft() for lines in self._lines]
        for name in ("logprobs", "tokens"):
            if differing := [rank for rank, one in enumerate(found) if one.get(name) != found[0].get(name)]:
                what = "log probabilities" if name == "logprobs" else name
                raise RanksDiffer(f"ranks {differing} answered other {what} than rank 0")
        if "busy_us" not in found[0] or len(found) == 1:
            return found[0]
        every = [one["busy_us"] for one in found]
        return {**min(found, key=lambda one: one["busy_us"]), "busy_us_of_ranks": every}

    def _hear(self, silent: Sequence[int]) -> None:
        """Takes one line in; ends all where there is no use in waiting."""
        try:
            rank, line = self._heard.get(timeout=max(0.0, min(_LOOK_S, self.deadline - time.monotonic())))
        except queue.Empty:
            # A child that was forked keeps the pipe of one that has ended open.
            self._closed.update(rank for rank in silent if self._ranks[rank].poll() is not None)
            if time.monotonic() >= self.deadline and not self._closed.intersection(silent):
                self._fail(f"ranks {list(silent)} did not answer in time; {self._tail(silent[0])}")
            return
        if not line:
            self._closed.add(rank)
            return
        try:
            said = json.loads(line)
        except ValueError:
            self._fail(f"rank {rank} answered what is no JSON: {line[:200]!r}")
        if "refused" in said:
            self._fail(f"rank {rank} refused: {said['refused']}")
        self._lines[rank].append(said)

    def _fail(self, why: str) -> None:
        """The others wait for the one that failed, on the GPU, for ever: they are ended with it."""
        self.trouble = why
        self.end()
        raise RanksFailed(why)

    def tell(self, do: str, **arguments: Any) -> None:
        """Gives all ranks one command, and does not wait."""
        if self.trouble is not None:
            raise RanksFailed(self.trouble)
        for rank, process in enumerate(self._ranks):
            assert process.stdin is not None
            try:
                process.stdin.write(json.dumps({"do": do, **arguments}) + "\n")
                process.stdin.flush()
            except OSError:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(5)
                self._fail(f"rank {rank} {_ending(process.poll())}; {self._tail(rank)}")

    def ask(self, do: str, **arguments: Any) -> dict[str, Any]:
        """Runs one command in all ranks."""
        self.tell(do, **arguments)
        return self.answer()

    def send(self, rank: int, number: signal.Signals) -> None:
        """Signals one rank."""
        self._ranks[rank].send_signal(number)

    @property
    def has_ended(self) -> bool:
        """Whether no process of it is left."""
        return all(process.poll() is not None for process in self._ranks)

    def _tail(self, rank: int) -> str:
        lines = [line for line in _read(self._logs[rank]).split("\n") if line.strip()]
        return f"its log ends: {chr(10).join(lines[-_TAIL_LINES:])[-_TAIL_CHARACTERS:]}"

    def end(self) -> None:
        """Ends all, with their children."""
        if self.trouble is None:
            self.trouble = "it was ended"
        for process in self._ranks:
            # The group, also where its leader is gone: workers of an engine outlive it.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
        for process in self._ranks:
            process.wait()
            if process.stdin is not None:
                with contextlib.suppress(OSError):
                    process.stdin.close()


def _listen(rank: int, process: subprocess.Popen[str], heard: queue.Queue[tuple[int, str]]) -> None:
    """Brings each line of a process, and an empty one when there will be no more."""
    assert process.stdout is not None
    with contextlib.suppress(ValueError, OSError):
        for line in process.stdout:
            heard.put((rank, line))
    heard.put((rank, ""))


def _ending(code: int | None) -> str:
    if code is None:
        return "closed its answers and still runs"
    return f"died of {signal.Signals(-code).name}" if code < 0 else f"ended with {code}"


def _read(log: Path) -> str:
    try:
        return log.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def find_lines(log: Path, words: Sequence[str], most: int = 20) -> list[str]:
    """Lines of a log that hold one of the words, each once, cut to 300 characters."""
    found = dict.fromkeys(
        line[:300] for line in _read(log).split("\n") if any(word in line for word in words)
    )
    return list(found)[:most]


def shorten(log: Path, most: int = 120_000) -> None:
    """Leaves of a long log its first and its last characters."""
    text = _read(log)
    if len(text) > most:
        cut = f"\n[... {len(text) - most} characters left out ...]\n"
        log.write_text(text[: most // 3] + cut + text[-2 * most // 3 :], encoding="utf-8")
