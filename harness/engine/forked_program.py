"""A Python program begun in a process that was forked from one with vLLM imported, as if it had been run anew."""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import json
import multiprocessing.util
import os
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import types
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from harness.engine import supervisor, tracer
from harness.engine.trace_settings import SETTINGS_ENV, is_below, read_settings

MODULE = (sys.executable, "-P", "-m")
"""How a command begins that can be run without starting an interpreter."""
_FIRST_FREE = 200
"""File descriptors from here on are out of the way of those that a child is to have."""


class ForkedProgram:
    """A child of this process that runs a module: of `subprocess.Popen`, what the supervisor asks for.

    Args:
        command: `MODULE`, a module's name and its arguments.
        log: The file descriptor for what it prints.
        temp_dir: Its working directory.
    """

    def __init__(self, command: Sequence[str], log: int, temp_dir: str) -> None:
        self.returncode: int | None = None
        self.pid = os.fork()
        if not self.pid:
            run_and_exit(lambda: _begin(command, log, temp_dir))

    def wait(self, timeout: float | None = None) -> int:
        """Its exit status, negative for a signal; raises `subprocess.TimeoutExpired`."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while self.returncode is None:
            pid, status = os.waitpid(self.pid, 0 if deadline is None else os.WNOHANG)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
            elif deadline is not None and time.monotonic() > deadline:
                raise subprocess.TimeoutExpired("forked", timeout or 0)
            else:
                time.sleep(0.02)
        return self.returncode

    def terminate(self) -> None:
        """Asks it to end."""
        if self.returncode is None:
            os.kill(self.pid, signal.SIGTERM)


def imported_already(settings_path: Path) -> list[str]:
    """Modules in this process that a tracer must see come in: of a subject among them nothing would be recorded."""
    settings = read_settings(settings_path)
    targets = (*settings.targets, *tracer.WARM_UPS)
    named = {target.partition(":")[0] for target in targets} | set(tracer.RUNNER_MODULES)
    watched = (*settings.import_roots, *settings.watched_prefixes)
    return [name for name in list(sys.modules) if name in named or is_below(name, watched)]


def _begin(command: Sequence[str], log: int, temp_dir: str) -> None:
    """What an interpreter does before it runs a module, and then the module."""
    os.setsid()
    supervisor.die_with_parent()
    # An interpreter leaves ignored signals ignored, and takes no handler along.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for number in (1, 2):
        os.dup2(log, number)
    os.closerange(3, _FIRST_FREE)
    os.chdir(temp_dir)
    module, *arguments = command[len(MODULE) :]
    _take_spawns(_Spare())
    _trace()
    if "vllm" in sys.modules:
        _look_at_models_here()
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def _trace() -> None:
    """The tracer of this process, where the environment asks for one; temporary files are where it says."""
    tempfile.tempdir = None
    if SETTINGS_ENV in os.environ:
        tracer.register()


def _look_at_models_here() -> None:
    from harness.engine.probe.engine_start import inspect_models_here

    inspect_models_here()


def run_and_exit(program: Callable[[], None]) -> NoReturn:
    """Calls the program and ends this process as an interpreter would; nothing of its caller's goes on in it."""
    status = 1
    try:
        program()
        status = 0
    except SystemExit as error:
        if error.code is None or isinstance(error.code, int):
            status = error.code or 0
        else:
            print(error.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(BaseException):
            threading._shutdown()  # type: ignore[attr-defined]
            atexit._run_exitfuncs()
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status & 0xFF)


class _Spare:
    """A child that waits, untouched by the program, for the first process that `multiprocessing` spawns."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.pid = os.fork()
        if not self.pid:
            self._socket.close()
            run_and_exit(lambda: _wait_to_be_used(theirs))
        theirs.close()

    def use(self, arguments: Sequence[str], fds: Sequence[int]) -> int:
        """Lets it run what an interpreter with these arguments and file descriptors would; gives its process id."""
        about = {
            "arguments": list(arguments),
            "fds": list(fds),
            "env": dict(os.environ),
            "cwd": str(Path.cwd()),
        }
        socket.send_fds(self._socket, [json.dumps(about).encode()], list(fds))
        self._socket.close()
        return self.pid


def _wait_to_be_used(theirs: socket.socket) -> None:
    message, received, _, _ = socket.recv_fds(theirs, 1 << 20, 16)
    theirs.close()
    if not message:
        return
    about = json.loads(message)
    _place(received, about["fds"])
    os.chdir(about["cwd"])
    set_environment(about["env"])
    _trace()
    arguments: list[str] = about["arguments"]
    index = arguments.index("-c")
    sys.argv = ["-c", *arguments[index + 2 :]]
    main = types.ModuleType("__main__")
    sys.modules["__main__"] = main
    exec(compile(arguments[index + 1], "<string>", "exec"), vars(main))


def _place(received: Sequence[int], numbers: Sequence[int]) -> None:
    """Gives file descriptors the numbers that they have in the parent."""
    free = max([_FIRST_FREE, *(number + 1 for number in numbers)])
    held = [fcntl.fcntl(fd, fcntl.F_DUPFD, free) for fd in received]
    os.closerange(3, free)
    for fd, number in zip(held, numbers, strict=True):
        os.dup2(fd, number)
        os.close(fd)


def _take_spawns(spare: _Spare) -> None:
    """The first child that `multiprocessing` would start with an interpreter of its own is the spare."""
    spawn = multiprocessing.util.spawnv_passfds
    waiting = [spare]

    def spawnv_passfds(path: bytes, args: Sequence[Any], passfds: Sequence[int]) -> int:
        words = [os.fsdecode(word) for word in args]
        if waiting and "--multiprocessing-fork" in words:
            return waiting.pop().use(words, passfds)
        return spawn(path, args, passfds)

    multiprocessing.util.spawnv_passfds = spawnv_passfds


def set_environment(env: Mapping[str, str]) -> None:
    """Makes the environment of this process the given one."""
    os.environ.clear()
    os.environ.update(env)
