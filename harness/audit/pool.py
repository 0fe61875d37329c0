"""Modules audited side by side in processes, each bounded in time; a failure on one is said of that one."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import threading
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from types import FrameType

from harness.audit.modules import Module, ModuleAudit, audit_module
from harness.model.kernel_audit import UnreadText

TIMEOUT_S = 120.0
"""For one module; the audit of a kernel takes well under a second."""
Done = Callable[[int, ModuleAudit], None]
"""Called with the module's number and what was found, as modules end."""


class OutOfTimeError(Exception):
    """The audit of a module took too long."""


def available_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def audit_modules(
    modules: Sequence[Module],
    *,
    nvdisasm: Path | None = None,
    jobs: int | None = None,
    timeout_s: float = TIMEOUT_S,
    done: Done | None = None,
) -> list[ModuleAudit]:
    """The results of all modules, in their order.

    The bound is a timer's signal, which only a main thread gets: elsewhere even one module has a process of its own.
    """
    if len(modules) == 1 and threading.current_thread() is threading.main_thread():
        only = _bounded(modules[0], nvdisasm, timeout_s)
        if done is not None:
            done(0, only)
        return [only]
    found: dict[int, ModuleAudit] = {}
    context = multiprocessing.get_context("spawn")
    workers = max(1, min(jobs or available_cores(), len(modules)))
    pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_end_with_the_parent)
    try:
        futures: dict[Future[ModuleAudit], int] = {
            pool.submit(_bounded, module, nvdisasm, timeout_s): number
            for number, module in enumerate(modules)
        }
        for future in as_completed(futures):
            number = futures[future]
            error = future.exception()
            found[number] = future.result() if error is None else _broken(modules[number], error)
            if done is not None:
                done(number, found[number])
    except BaseException:
        for child in multiprocessing.active_children():
            child.terminate()
        pool.shutdown(wait=False, cancel_futures=True)
        raise
    pool.shutdown()
    return [found[number] for number in range(len(modules))]


def _end_with_the_parent() -> None:
    """On an interrupt the parent says what happened, once."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _bounded(module: Module, nvdisasm: Path | None, timeout_s: float) -> ModuleAudit:
    handler = signal.signal(signal.SIGALRM, _out_of_time)
    timer = signal.setitimer(signal.ITIMER_REAL, timeout_s)
    collects = gc.isenabled()
    # An audit builds hundreds of thousands of small objects that live to its end: looking through them again and
    # again took a quarter of its time.
    gc.disable()
    try:
        return audit_module(module, nvdisasm)
    except OutOfTimeError:
        reason = f"the rules did not come to an end within {timeout_s:g} s"
        return ModuleAudit(kernels=(), unread=(UnreadText(text=module.name, line=1, reason=reason),))
    finally:
        signal.setitimer(signal.ITIMER_REAL, *timer)
        if collects:
            gc.enable()
            gc.collect()
        signal.signal(signal.SIGALRM, handler)


def _out_of_time(_signal: int, _frame: FrameType | None) -> None:
    raise OutOfTimeError


def _broken(module: Module, error: BaseException) -> ModuleAudit:
    reason = f"the audit failed: {type(error).__name__}: {error}"
    if isinstance(error, BrokenProcessPool):
        reason = "the process that audited it, or one beside it, was killed (out of memory?)"
    unread = UnreadText(
        text=module.name,
        line=1,
        reason=reason,
        broke=True,
        details=tuple("".join(traceback.format_exception(error)).splitlines()[-20:]),
    )
    return ModuleAudit(kernels=(), unread=(unread,))
