"""The program of a warm parent: has imported vLLM, and forks supervisors whose programs need not import it again.

Run as a script: `python -P warm_parent.py SOCKET TEMP_DIR MODULE...`, with the environment of the engines, but for what
is a run's own. It imports what the engine's own entry points import before they look for plugins, has one thread, and
runs nothing of a subject. Requests come on the socket (`harness.engine.warm_start`); its end is this program's.
"""

from __future__ import annotations

import importlib
import json
import os
import shutil
import signal
import socket
import sys
from pathlib import Path
from typing import Any, NoReturn

ENGINE_MODULES = ("vllm.engine.arg_utils", "vllm.utils.argparse_utils", "vllm.v1.engine.llm_engine")
"""What `harness.engine.probe.engine_start` imports before it begins; vLLM's API server imports it, too."""
NUM_FDS = 4
"""File descriptors of a request: the supervisor's input and output, the log, the pipe for its status."""


def main(number: int, temp_dir: str, modules: list[str]) -> None:
    """Imports, says that it is ready, and forks until the socket ends."""
    before = dict(os.environ)
    for module in modules:
        importlib.import_module(module)
    # What the imports set belongs to them: a program that imports the same would have set it, too.
    added = {name: value for name, value in os.environ.items() if before.get(name) != value}
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(fileno=number) as requests:
        num_threads = len(list(Path("/proc/self/task").iterdir()))
        requests.send(b"ready" if num_threads == 1 else f"{num_threads} threads".encode())
        while True:
            message, fds, _, _ = socket.recv_fds(requests, 1 << 20, NUM_FDS)
            if not message:
                break
            sys.stdout.flush()
            pid = os.fork()
            if not pid:
                requests.close()
                _supervise(json.loads(message), fds, added)
            for fd in fds:
                os.close(fd)
            requests.send(str(pid).encode())
    shutil.rmtree(temp_dir, ignore_errors=True)


def _supervise(request: dict[str, Any], fds: list[int], added: dict[str, str]) -> NoReturn:
    """Is the supervisor of one program."""
    from harness.engine import supervisor
    from harness.engine.forked_program import ForkedProgram, imported_already, set_environment
    from harness.engine.trace_settings import SETTINGS_ENV

    os.setsid()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for fd, number in zip(fds[:3], (0, 1, 2), strict=True):
        os.dup2(fd, number)
        os.close(fd)
    status = 1
    try:
        set_environment(request["env"] | added)
        early = imported_already(Path(request["env"][SETTINGS_ENV]))
        start = supervisor.run_command if early else ForkedProgram
        status = supervisor.main(request["temp_dir"], request["log"], request["command"], start)
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else 1
    finally:
        os.write(fds[3], bytes([status & 0xFF]))
        os._exit(status & 0xFF)


if __name__ == "__main__":
    _root = str(Path(__file__).resolve().parents[2])
    sys.path.insert(0, _root)
    import harness.engine.forked_program
    import harness.engine.probe.engine_start  # noqa: F401

    sys.path.remove(_root)
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3:])
