"""Reads a running server's ledger as it grows."""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from harness.engine.ledger_reader import RowReader
from harness.model.ledger import CodeTargets, LedgerRow
from perf_sweeps.decode_steps import VisitSteps, read_visit

LEDGER_WAIT_S = 5.0


class LedgerTail:
    """Reads a ledger's rows as they are appended."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._read_up_to: dict[Path, int] = {}
        self._readers: dict[Path, RowReader] = defaultdict(RowReader)

    def new_rows(self) -> tuple[LedgerRow, ...]:
        """Rows that were written since the last call."""
        rows = []
        for path in sorted(self._folder.glob("*.jsonl")):
            with path.open("rb") as file:
                file.seek(self._read_up_to.get(path, 0))
                whole = file.read().rpartition(b"\n")[0]
            self._read_up_to[path] = self._read_up_to.get(path, 0) + len(whole) + bool(whole)
            records = (json.loads(line) for line in whole.split(b"\n") if line)
            rows += [self._readers[path].read(r) for r in records if r.get("kind") == "row"]
        return tuple(rows)

    def account(self, answered: Sequence[tuple[str, int]], *, batch: int, targets: CodeTargets) -> VisitSteps:
        """The ledger's account of (request id, tokens), once it holds as many tokens, or does not after a while."""
        ids, wanted = [request_id for request_id, _ in answered], sum(count for _, count in answered)
        deadline, rows = time.monotonic() + LEDGER_WAIT_S, list(self.new_rows())
        while True:
            steps = read_visit(rows, ids, batch=batch, targets=targets)
            if steps.num_tokens >= wanted or time.monotonic() > deadline:
                return steps
            time.sleep(0.02)
            rows += self.new_rows()
