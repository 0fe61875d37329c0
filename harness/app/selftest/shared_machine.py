"""The machine as the cases of one selftest share it: side by side, but for what is timed."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class SharedMachine:
    """Lets the processes that open the same folder work beside each other, or one of them alone.

    Whoever wants to be alone waits for what runs, and nothing begins before it is done.
    """

    def __init__(self, folder: Path) -> None:
        """Each process opens its own: a fork shares the locks of its parent."""
        self._door, self._room = (
            os.open(folder / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600) for name in ("door", "room")
        )

    @contextmanager
    def beside_others(self) -> Iterator[None]:
        """While it lasts, nobody is alone but who runs this."""
        self._enter()
        try:
            yield
        finally:
            fcntl.flock(self._room, fcntl.LOCK_UN)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Inside `beside_others`: nobody else is in there."""
        # Two that want it must not wait for each other: whoever waits at the door has left the room.
        fcntl.flock(self._room, fcntl.LOCK_UN)
        fcntl.flock(self._door, fcntl.LOCK_EX)
        try:
            fcntl.flock(self._room, fcntl.LOCK_EX)
            yield
        finally:
            fcntl.flock(self._room, fcntl.LOCK_UN)
            fcntl.flock(self._door, fcntl.LOCK_UN)
            self._enter()

    def _enter(self) -> None:
        fcntl.flock(self._door, fcntl.LOCK_SH)
        fcntl.flock(self._room, fcntl.LOCK_SH)
        fcntl.flock(self._door, fcntl.LOCK_UN)
