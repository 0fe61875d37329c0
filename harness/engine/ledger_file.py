"""The file that one worker's tracer writes: a line of JSON for everything that must not be lost."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any


class LedgerFile:
    """Appends records to `<ledger_dir>/<pid>.jsonl`, each in one write, so that a kill loses none of them but
    those that are held back."""

    def __init__(self, ledger_dir: Path, nonce: str) -> None:
        self._ledger_dir = ledger_dir
        self._nonce = nonce
        self._fd: int | None = None
        self._pid: int | None = None
        self.held: list[tuple[str, dict[str, Any]]] | None = None
        """Records that are held back; None while none are."""

    def write(self, kind: str, **fields: Any) -> None:
        """Appends one record, which must not change afterwards; a process that was forked off opens its own file."""
        if self.held is not None:
            self.held.append((kind, fields))
            return
        if self._fd is None or self._pid != os.getpid():
            self._open()
        self._write_line({"kind": kind, **fields})

    def hold_back(self) -> None:
        """Keeps records in memory from now on, since a row takes time to write; those that are held already stay."""
        self.held = self.held or []

    def write_held(self) -> None:
        """Writes what was held, and every further record at once."""
        held, self.held = self.held or [], None
        for kind, fields in held:
            self.write(kind, **fields)

    def _open(self) -> None:
        self._pid = os.getpid()
        path = self._ledger_dir / f"{self._pid}.jsonl"
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self._write_line({"kind": "header", "nonce": self._nonce, "pid": self._pid})

    def _write_line(self, record: dict[str, Any]) -> None:
        assert self._fd is not None
        data = memoryview(json.dumps(record, separators=(",", ":"), default=str).encode() + b"\n")
        while data:
            data = data[os.write(self._fd, data) :]
