"""Stands between the harness and one server, and sees to it that no process of the server outlives either.

Run as a script: `python -I -S supervisor.py TEMP_DIR LOG_FILE COMMAND...`. It takes lines on standard input
(`pause`, `resume`, `stop SECONDS`) and answers each on standard output; the first line it writes is the server's
process id. End of input means that the harness is gone: everything is killed at once. As a child subreaper it
inherits whatever the server's processes leave behind, also those that moved to a session of their own.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_LIBC = ctypes.CDLL(None, use_errno=True)


class Program(Protocol):
    """What the supervisor asks of its child; `subprocess.Popen` does it."""

    pid: int
    returncode: int | None

    def wait(self, timeout: float | None = None) -> int:
        """Its exit status; raises `subprocess.TimeoutExpired`."""
        ...

    def terminate(self) -> None:
        """Asks it to end."""
        ...


def run_command(command: Sequence[str], log: int, temp_dir: str) -> Program:
    """The command in a session of its own, with nothing to read, printing to the file descriptor `log`."""
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        cwd=temp_dir,
        start_new_session=True,
        preexec_fn=die_with_parent,
    )


def main(
    temp_dir: str,
    log_file: str,
    command: list[str],
    start: Callable[[Sequence[str], int, str], Program] = run_command,
) -> int:
    """Runs the command until it ends or the harness wants it to; gives its exit status."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    adopt_orphans()
    status = 1
    try:
        with Path(log_file).open("ab", buffering=0) as log:
            server = start(command, log.fileno(), temp_dir)
        _say(str(server.pid))
        status = _attend(server)
    except OSError as error:
        # Standard error is the server's log.
        os.write(2, f"{error}\n".encode())
    finally:
        kill_tree()
        shutil.rmtree(temp_dir, ignore_errors=True)
    return status


def _attend(server: Program) -> int:
    parent = os.getppid()
    pidfd = os.pidfd_open(server.pid)
    poll = select.poll()
    poll.register(0, select.POLLIN | select.POLLHUP)
    poll.register(pidfd, select.POLLIN)
    while True:
        ready = {fd for fd, _ in poll.poll(2000)}
        if pidfd in ready:
            return server.wait()
        if os.getppid() != parent:
            return 1
        if 0 in ready:
            words = os.read(0, 4096).split()
            if not words:
                return 1
            if words[0] == b"stop":
                return _stop(server, float(words[1]))
            if words[0] == b"resume":
                _signal_tree(signal.SIGCONT)
            elif not _pause_tree():
                words[0] = b"failed"
            _say(words[0].decode())


def _stop(server: Program, grace_s: float) -> int:
    _signal_tree(signal.SIGCONT)
    server.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        server.wait(grace_s)
    return server.returncode if server.returncode is not None else 1


def _pause_tree() -> bool:
    """Stops every process; whether all are seen to have stopped (a busy machine takes a while)."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        _signal_tree(signal.SIGSTOP)
        if all(_stat(pid)[:1] in ([b"T"], [b"Z"], []) for pid in _descendants()):
            return True
        time.sleep(0.005)
    return False


def kill_tree() -> None:
    """Kills every descendant of this process and removes the shared memory files that they had mapped.

    Python's resource trackers are left to end by themselves first: they remove named semaphores.
    """
    shared: set[str] = set()
    started = time.monotonic()
    while (descendants := _descendants()) and (age_s := time.monotonic() - started) < 10:
        trackers = {pid for pid in descendants if age_s < 3 and _is_resource_tracker(pid)}
        for pid in descendants:
            shared |= _shared_files(pid)
            _signal(pid, signal.SIGCONT if pid in trackers else signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        time.sleep(0.01)
    for path in shared:
        with contextlib.suppress(OSError):
            Path(path).unlink()


def _is_resource_tracker(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return b"multiprocessing.resource_tracker" in Path("/proc", str(pid), "cmdline").read_bytes()
    return False


def _signal_tree(number: int) -> None:
    for pid in _descendants():
        _signal(pid, number)


def _signal(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def _descendants() -> list[int]:
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            _, parent, *_ = _stat(int(entry.name)) or [b"", b"0"]
            children.setdefault(int(parent), []).append(int(entry.name))
    found: list[int] = []
    waiting = [os.getpid()]
    while waiting:
        below = children.get(waiting.pop(), [])
        found += below
        waiting += below
    return found


def _stat(pid: int) -> list[bytes]:
    """State, parent and what follows in /proc; empty when the process is gone."""
    with contextlib.suppress(OSError):
        return Path("/proc", str(pid), "stat").read_bytes().rpartition(b")")[2].split()
    return []


def _shared_files(pid: int) -> set[str]:
    with contextlib.suppress(OSError):
        lines = Path("/proc", str(pid), "maps").read_text(errors="replace").splitlines()
        paths = {line.split(maxsplit=5)[5] for line in lines if "/dev/shm/" in line}
        return {p for p in paths if p.startswith("/dev/shm/") and not p.endswith("(deleted)")}
    return set()


def adopt_orphans() -> None:
    """What a descendant leaves behind becomes a child of this process."""
    _LIBC.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def die_with_parent() -> None:
    """The calling process is killed when its parent ends."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def _say(line: str) -> None:
    with contextlib.suppress(OSError):
        os.write(1, line.encode() + b"\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], sys.argv[3:]))
