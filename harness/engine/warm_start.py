"""Supervised programs that are forked from a warm parent, which has imported vLLM for all of them."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from io import FileIO
from pathlib import Path

from harness.engine import warm_parent
from harness.engine.forked_program import MODULE
from harness.model.errors import EngineError

RUNS_OWN = frozenset(
    {
        *("HOME", "TMPDIR", "XDG_CACHE_HOME", "VLLM_CACHE_ROOT", "TORCHINDUCTOR_CACHE_DIR"),
        *("VLLM_RPC_BASE_PATH", "FASTTRACK_TRACE"),
    }
)
"""Variables that differ from engine to engine: folders and files of its run, which nothing reads at import."""
READY_S = 120


class WarmProcess:
    """A forked supervisor: of `subprocess.Popen`, what `Supervised` asks for."""

    def __init__(self, pid: int, stdin: FileIO, stdout: FileIO, status: FileIO) -> None:
        self.pid = pid
        self.stdin, self.stdout = stdin, stdout
        self.returncode: int | None = None
        self._status = status
        self._lock = threading.Lock()

    def poll(self) -> int | None:
        """Its exit status once it has ended; it was killed if it left none."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Its exit status; raises `subprocess.TimeoutExpired`."""
        with self._lock:
            if self.returncode is None:
                if not select.select([self._status], [], [], timeout)[0]:
                    raise subprocess.TimeoutExpired("supervisor", timeout or 0)
                told = self._status.read(1)
                self.returncode = told[0] if told else -signal.SIGKILL
                self._status.close()
            return self.returncode

    def kill(self) -> None:
        """Kills it alone, at once."""
        if self.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)


class WarmParent:
    """One process with vLLM in it, for engines whose environments differ by what is a run's own alone.

    Args:
        env: Such an environment.
        modules: What it imports.
    """

    def __init__(self, env: Mapping[str, str], modules: Sequence[str] = warm_parent.ENGINE_MODULES) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        folder = tempfile.mkdtemp(prefix="fasttrack-warm-")
        own = {name: folder for name in RUNS_OWN & set(env) if name != "FASTTRACK_TRACE"}
        kept = {name: value for name, value in env.items() if name not in RUNS_OWN}
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", warm_parent.__file__, str(theirs.fileno()), folder, *modules],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=kept | own,
                cwd=folder,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        self._socket.settimeout(READY_S)
        self.is_ready = self._hear() == b"ready"
        if not self.is_ready:
            self.close()

    def fork(
        self, temp_dir: Path, log_path: Path, command: Sequence[str], env: Mapping[str, str]
    ) -> WarmProcess:
        """A supervisor with the command as its program; raises `EngineError` when the parent is gone."""
        pipes = [os.pipe() for _ in range(3)]
        (stdin, to_stdin), (from_stdout, stdout), (from_status, status) = pipes
        log = os.open(log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        request = {
            "temp_dir": str(temp_dir),
            "log": str(log_path.resolve()),
            "command": list(command),
            "env": dict(env),
        }
        try:
            socket.send_fds(self._socket, [json.dumps(request).encode()], [stdin, stdout, log, status])
            answer = self._hear()
        except OSError:
            answer = b""
        finally:
            for fd in (stdin, stdout, status, log):
                os.close(fd)
        ours = [FileIO(fd, mode) for fd, mode in ((to_stdin, "w"), (from_stdout, "r"), (from_status, "r"))]
        if not answer.isdigit():
            for file in ours:
                file.close()
            raise EngineError("engine-start", "The process that engines are forked from is gone.")
        return WarmProcess(int(answer), *ours)

    def _hear(self) -> bytes:
        with contextlib.suppress(OSError):
            return self._socket.recv(100)
        return b""

    def leave(self) -> None:
        """Leaves it to the process that this one was forked from."""
        self._socket.close()

    def close(self) -> None:
        """Ends it; what it forked ends by itself."""
        self._socket.close()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


_parents: dict[frozenset[tuple[str, str]], WarmParent] = {}
_lock = threading.Lock()


def _forget_parents() -> None:
    """A process that was forked from this one makes its own: two must not talk on one socket."""
    for parent in _parents.values():
        parent.leave()
    _parents.clear()


os.register_at_fork(after_in_child=_forget_parents)


def fork_supervisor(
    temp_dir: Path, log_path: Path, command: Sequence[str], env: Mapping[str, str]
) -> WarmProcess | None:
    """A supervisor forked from the warm parent for this environment, which is begun if there is none.

    None where there can be none: the command runs no module, or vLLM cannot be imported or leaves more than one thread.
    """
    if tuple(command[: len(MODULE)]) != MODULE:
        return None
    key = frozenset(item for item in env.items() if item[0] not in RUNS_OWN)
    with _lock:
        if key not in _parents:
            _parents[key] = WarmParent(env)
            atexit.register(_parents[key].close)
        parent = _parents[key]
        return parent.fork(temp_dir, log_path, command, env) if parent.is_ready else None
