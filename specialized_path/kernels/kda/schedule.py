"""Which cluster size and occupancy serve a batch, by number of heads and tokens a request."""

from __future__ import annotations

from dataclasses import dataclass

HEADS = {"tp8": 12, "tp16": 6}
"""Local heads by rank shape."""
MAX_TOKENS = 8
MAX_REQUESTS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """How one compiled KDA kernel is cut."""

    heads: int
    tokens: int
    """Tokens a request: 1, or 2 to 8 in a verify step."""
    cluster: int
    """CTAs that share the state of one request and head: 1, 2, 4 or 8."""
    requests: int = 1
    """Requests that a CTA serves in turn, loading the next state while it works on one; more than 1, and up to 8, only
    with one token and a cluster of 1."""
    min_blocks: int
    """CTAs that a multiprocessor must hold; bounds the registers."""


_Bucket = tuple[int, int, int, int]
"""Largest number of requests, cluster, min_blocks, requests a CTA."""

# Fitted on an H200 (132 multiprocessors, launched early, cold L2) at 1, 2, 4, 8, 16, 32 and 64 requests, see
# docs/kernels/kda.md. With a cluster of 1, groups grow so that the grid stays one wave.
_DECODE: dict[str, tuple[_Bucket, ...]] = {
    "tp8": (
        (2, 4, 1, 1),
        (8, 2, 2, 1),
        (11, 1, 2, 1),
        (22, 1, 1, 2),
        (33, 1, 1, 3),
        (44, 1, 1, 4),
        (64, 1, 1, 6),
    ),
    "tp16": ((2, 8, 1, 1), (4, 4, 1, 1), (11, 2, 2, 1), (22, 1, 2, 1), (44, 1, 1, 2), (64, 1, 1, 3)),
}
_VERIFY: dict[str, tuple[_Bucket, ...]] = {
    "tp8": ((1, 8, 1, 1), (2, 4, 1, 1), (5, 2, 1, 1), (64, 1, 1, 1)),
    "tp16": ((2, 8, 1, 1), (5, 4, 1, 1), (11, 2, 1, 1), (64, 1, 1, 1)),
}


def schedules(rank_shape: str, tokens: int) -> tuple[tuple[tuple[int, int], Schedule], ...]:
    """Smallest and largest number of requests, and the schedule that serves them, smallest first."""
    found, first = [], 1
    for last, cluster, min_blocks, requests in (_DECODE if tokens == 1 else _VERIFY)[rank_shape]:
        schedule = Schedule(
            heads=HEADS[rank_shape], tokens=tokens, cluster=cluster, min_blocks=min_blocks, requests=requests
        )
        found.append(((first, last), schedule))
        first = last + 1
    return tuple(found)
