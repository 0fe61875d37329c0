"""What a ledger says of one visit: tokens, pure decode steps of the whole batch, and the path that served them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
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
    fallbacks: Mapping[str, int] = field(default_factory=dict)
    """Pure decode steps that were decided and not served by the specialised path, by the reason that was told."""
    num_ranks: int = 1
    """That wrote ledgers; the account is rank 0's."""
    rank_difference: str = ""
    """Where another rank did something else in a step; empty: nowhere."""


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
    fallbacks: Counter[str] = Counter()
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
        path = path_of(row, targets)
        fast += tokens if path is Path.SPECIALIZED else 0
        if path is not Path.SPECIALIZED and row.decisions:
            fallbacks[_reason(row)] += 1
        full.append(row if len(mine) == row.num_reqs == batch else None)
    gaps = [(b.started_ns - a.started_ns) / 1e6 for a, b in pairwise(full) if a is not None and b is not None]
    return VisitSteps(
        num_tokens=num_tokens,
        num_prefill_tokens=num_prefill,
        decode_step_ms=fmean(gaps) if gaps else None,
        acceptance_length=emitted / parts if parts and emitted else None,
        specialized_share=fast / emitted if emitted else None,
        span_s=(last_ns - first_ns) / 1e9 if first_ns is not None else None,
        fallbacks=dict(fallbacks),
    )


def _reason(row: LedgerRow) -> str:
    """Why a step was not specialised; one that was decided to be, while other code ran, has none."""
    reasons = [decision.reason for decision in row.decisions if not decision.specialized]
    return next(filter(None, reasons), "no reason told") if reasons else "decided to be, and other code ran"
