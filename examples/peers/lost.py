"""A rank that is lost in the middle of decode, inside vLLM: what its engine says, how soon, and what is left behind."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

from examples.peers.ranks import Ranks, find_lines

STEP_LIMIT_S = 25
"""What the engine waits for one step (vLLM's default is 300 s)."""
_GONE_S = 30.0
"""Longest time from the error to the end of the last worker."""
_NAMED_BY = ("died unexpectedly", "timed out", "Executor failed", "still running after")


def lose_worker(engine: Ranks, number: signal.Signals, batch: int, log: Path) -> dict[str, Any]:
    """Kills or stops the last worker of an engine that decodes.

    Returns what the engine's caller got, after how long, and when the last worker was gone.

    Raises:
        RuntimeError: the engine did not answer in time, no error came, or a worker outlived it.
    """
    pids: list[int] = engine.ask("workers")["pids"]
    engine.tell("decode_until_lost", batch=batch)
    running = engine.answer()
    if "running" not in running:
        raise RuntimeError(f"it did not decode: {running}")
    sent = time.monotonic()
    os.kill(pids[-1], number)
    answer = engine.answer()
    error_s = time.monotonic() - sent
    while (left := [pid for pid in pids if is_running(pid)]) and time.monotonic() < sent + error_s + _GONE_S:
        time.sleep(0.05)
    found = {
        "signal": number.name,
        "lost_rank": len(pids) - 1,
        "num_ranks": len(pids),
        "batch": batch,
        "steps": answer["steps"],
        "error": answer["lost"],
        "causes": answer["causes"],
        "error_after_s": error_s,
        "workers_gone_after_s": None if left else time.monotonic() - sent,
        "log": find_lines(log, _NAMED_BY),
    }
    if left:
        raise RuntimeError(f"{len(left)} of {len(pids)} workers were left behind: {found}")
    return found


def lose_rank(ranks: Ranks, number: signal.Signals, batch: int, wait_s: float) -> dict[str, Any]:
    """Kills or stops the last rank of several that were launched from outside: nobody in vLLM looks after the others.

    What is bounded then is the wait of the one who asked: `ranks.deadline`.

    Raises:
        RuntimeError: an answer came all the same, or a process outlived its end.
    """
    ranks.tell("decode_until_lost", batch=batch)
    running = ranks.answer()
    last = len(ranks) - 1
    sent = time.monotonic()
    ranks.deadline = sent + wait_s
    ranks.send(last, number)
    try:
        answer = ranks.answer()
    except RuntimeError as error:
        stopped_s = time.monotonic() - sent
        if not ranks.has_ended:
            raise RuntimeError(f"processes outlived their end: {error}") from error
        return {
            "signal": number.name,
            "lost_rank": last,
            "batch": batch,
            "running_after_steps": running["running"],
            "error": str(error)[:500],
            "all_ended_after_s": stopped_s,
        }
    raise RuntimeError(f"all ranks answered after one was lost: {answer}")


def is_running(pid: int) -> bool:
    """Whether a process is there and more than an entry that nobody has taken note of."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return status.rpartition(")")[2].split()[0] not in {"Z", "X"}
