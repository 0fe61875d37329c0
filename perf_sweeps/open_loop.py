"""An independent account of a load generator's work: as many requests, at its pace, by the harness's client."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from harness.model.completion import Completer, CompletionRequest
from perf_sweeps.block import OpenLoopCheck


def check_open_loop(
    completer: Completer, requests: Sequence[CompletionRequest], *, spread_s: float, suite: str
) -> OpenLoopCheck:
    """Sends every request at its time, evenly over `spread_s`, however many are still without an answer.

    A closed loop waits for a slow server and so hides that it is slow; this one does not.
    """
    started, interval_s = time.monotonic(), spread_s / len(requests)

    def ask(index: int) -> int:
        time.sleep(max(0.0, started + index * interval_s - time.monotonic()))
        answers = completer.complete_many([requests[index]], concurrency=1, suite=suite)
        return sum(len(item.token_ids) for item in answers)

    with ThreadPoolExecutor(len(requests), thread_name_prefix="open-loop") as pool:
        num_tokens = sum(pool.map(ask, range(len(requests))))
    return OpenLoopCheck(num_asked=len(requests), num_tokens=num_tokens, wall_s=time.monotonic() - started)
