"""What a ledger says of one visit: tokens, pure decode steps of the whole batch, and the path that served them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean

from harness.model.ledger import CodeTargets, LedgerRow, Path, belongs_to, path_of


@dataclass(frozen=True, slots=True, kw_only=True)
class VisitSteps:
    """The engine's own account of a visit."""

    num_tokens: int
    """Tokens that were handed to the clients of the visit."""
    num_prefill_tokens: int
    """Prompt tokens that were computed; those of the prefix cache were not."""
    decode_step_ms: float | None
    """Mean time from start to start of neighbouring steps that hold the whole batch, nobody else, and no prompt."""
    acceptance_length: float | None
    """Mean tokens a request and pure decode step."""
    specialized_share: float | None
    """Of the tokens of pure decode steps."""
    span_s: float | None = None
    """From the start of the visit's first step to the end of its last; None where it has none."""


def read_visit(
    rows: Sequence[LedgerRow], client_ids: Collection[str], *, batch: int, targets: CodeTargets
) -> VisitSteps:
    """The account of the requests whose engine ids stem from the given ids.

    Args:
        rows: Rows of one worker in order, the visit's among them.
        client_ids: Ids that the client sent with the visit's requests.
        batch: Requests in flight together.
        targets: The functions that are the two paths' code.
    """
    num_tokens, num_prefill = 0, 0
    emitted, parts, fast = 0, 0, 0
    full: list[LedgerRow | None] = []
    first_ns, last_ns = None, 0
    for row in rows:
        mine = [r for r in row.requests if any(belongs_to(r.request_id, c) for c in client_ids)]
        num_tokens += sum(r.num_emitted_tokens for r in mine)
        num_prefill += sum(r.num_prefill_tokens for r in mine)
        if mine:
            first_ns = row.started_ns if first_ns is None else first_ns
            last_ns = row.started_ns + row.duration_ns
        if not mine or not row.is_pure_decode:
            full.append(None)
            continue
        tokens = sum(r.num_emitted_tokens for r in mine)
        emitted, parts = emitted + tokens, parts + len(mine)
        fast += tokens if path_of(row, targets) is Path.SPECIALIZED else 0
        full.append(row if len(mine) == row.num_reqs == batch else None)
    gaps = [(b.started_ns - a.started_ns) / 1e6 for a, b in pairwise(full) if a is not None and b is not None]
    return VisitSteps(
        num_tokens=num_tokens,
        num_prefill_tokens=num_prefill,
        decode_step_ms=fmean(gaps) if gaps else None,
        acceptance_length=emitted / parts if parts and emitted else None,
        specialized_share=fast / emitted if emitted else None,
        span_s=(last_ns - first_ns) / 1e9 if first_ns is not None else None,
    )
