"""Keeps an engine from its next step while requests travel to it, however slow the machine is."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from harness.engine.server import ArmServer
from harness.engine.worker_extension import HOLD_BEGUN, HOLD_ENDED

ARRIVAL_S = 0.3
"""Time from the API server to the engine, at least; a slow server is given the time of two of its answers."""


@contextmanager
def held_engine(server: ArmServer) -> Iterator[None]:
    """The engine makes no step inside; what was sent to the server inside is there when it makes the next.

    Raises:
        EngineError: the engine cannot be held.
    """
    with (
        tempfile.TemporaryDirectory(prefix="fasttrack-hold-") as folder,
        ThreadPoolExecutor(1, thread_name_prefix="hold") as pool,
    ):
        hold = pool.submit(server.rpc, "fasttrack_hold", folder)
        try:
            _wait_until_held(server, Path(folder, HOLD_BEGUN), hold)
            yield
            _let_arrive(server)
        finally:
            Path(folder, HOLD_ENDED).touch()
        hold.result()


def _wait_until_held(server: ArmServer, begun: Path, hold: Future[Any]) -> None:
    while not begun.exists():
        if hold.done():
            hold.result()
            raise server.error("engine-hold", "The worker did not hold the engine.")
        time.sleep(0.005)


def _let_arrive(server: ArmServer) -> None:
    """Two answers of the server: by then it has handed on what it read before."""
    started = time.monotonic()
    for _ in range(2):
        server.check()
    time.sleep(max(ARRIVAL_S, time.monotonic() - started))
