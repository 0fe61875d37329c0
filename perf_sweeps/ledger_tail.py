"""Reads a running server's ledger as it grows."""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from harness.engine.ledger_reader import RowReader
from harness.model.ledger import CodeTargets, LedgerRow, find_rank_difference
from perf_sweeps.decode_steps import VisitSteps, read_visit

LEDGER_WAIT_S = 5.0


class LedgerTail:
    """Reads a ledger's rows as they are appended: rank 0's, and holds those of other ranks against them."""

    def __init__(self, folder: Path, num_ranks: int = 1) -> None:
        self._folder = folder
        self._rank_of: dict[Path, int] = defaultdict(int)
        self._others: dict[int, dict[int, LedgerRow]] = {rank: {} for rank in range(1, num_ranks)}
        """Rows of other ranks by step, until they are compared; a rank that is missing has none."""
        self._read_up_to: dict[Path, int] = {}
        self._readers: dict[Path, RowReader] = defaultdict(RowReader)

    def new_rows(self) -> tuple[LedgerRow, ...]:
        """Rows of rank 0 that were written since the last call."""
        rows = []
        for path in sorted(self._folder.glob("*.jsonl")):
            with path.open("rb") as file:
                file.seek(self._read_up_to.get(path, 0))
                whole = file.read().rpartition(b"\n")[0]
            self._read_up_to[path] = self._read_up_to.get(path, 0) + len(whole) + bool(whole)
            for record in (json.loads(line) for line in whole.split(b"\n") if line):
                if record.get("kind") == "proof":
                    self._rank_of[path] = record.get("rank", 0)
                elif record.get("kind") == "row":
                    row, rank = self._readers[path].read(record), self._rank_of[path]
                    if rank:
                        self._others.setdefault(rank, {})[row.step] = row
                    else:
                        rows.append(row)
        return tuple(rows)

    def skip(self) -> None:
        """Passes over what was written until now."""
        self.new_rows()
        for others in self._others.values():
            others.clear()

    def account(self, answered: Sequence[tuple[str, int]], *, batch: int, targets: CodeTargets) -> VisitSteps:
        """The ledger's account of (request id, tokens), once it holds as many tokens, or does not after a while."""
        ids, wanted = [request_id for request_id, _ in answered], sum(count for _, count in answered)
        deadline, rows = time.monotonic() + LEDGER_WAIT_S, list(self.new_rows())
        while True:
            steps = read_visit(rows, ids, batch=batch, targets=targets)
            if (steps.num_tokens >= wanted and self._is_whole(rows)) or time.monotonic() > deadline:
                return self._with_ranks(steps, rows)
            time.sleep(0.02)
            rows += self.new_rows()

    def _is_whole(self, rows: Sequence[LedgerRow]) -> bool:
        """Whether every rank has told the last step."""
        return not rows or all(rows[-1].step in others for others in self._others.values())

    def _with_ranks(self, steps: VisitSteps, rows: Sequence[LedgerRow]) -> VisitSteps:
        """The account, with how many ranks wrote rows in the visit, and what another did otherwise than rank 0."""
        difference = find_rank_difference(rows, self._others)
        num_ranks = 1 + sum(bool(others) for others in self._others.values())
        for others in self._others.values():
            others.clear()
        return replace(steps, num_ranks=num_ranks, rank_difference=difference)
