"""The time, so that tests need not wait for it."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """What waiting for a rate limit needs to know."""

    def now(self) -> float:
        """Seconds since the epoch."""

    def sleep(self, seconds: float) -> None:
        """Waits."""


class SystemClock:
    """The machine's own."""

    def now(self) -> float:
        """Seconds since the epoch."""
        return time.time()

    def sleep(self, seconds: float) -> None:
        """Waits."""
        time.sleep(seconds)
