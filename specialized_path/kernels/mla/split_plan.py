"""Where a request's cached rows are cut into chunks: a function of its own length and of the plan.

The plan is fixed when a CUDA graph is captured, from the number of requests and the longest context that the graph
serves; lengths are read on the device. No request's cut depends on its place or on its neighbours.
"""

from __future__ import annotations

from dataclasses import dataclass

GRANULE = 64
"""Tokens that are never parted, a tile of the attention core."""
MAX_REQUESTS = 256
"""Requests of a step: their chunk counts lie in the core's shared memory."""
MAX_SPLITS = 512
"""Chunks of a request: their weights lie in the merge's shared memory."""
LONGEST_CHUNK = 2048
"""A request much longer than the others of its step is cut at least this fine, so that many CTAs share it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitPlan:
    """How finely requests are cut."""

    target_splits: int
    """Chunks that a request is cut into when they are neither too short nor too long."""
    longest_chunk: int
    """Tokens, a multiple of the granule."""
    max_splits: int
    """Chunks that a request never exceeds, whatever its length; the workspace has room for them."""
    num_ctas: int
    """CTAs of the core, one a multiprocessor."""

    def chunk_tokens(self, length: int) -> int:
        """Tokens of a chunk of a request; its last chunk may be shorter."""
        even = _granules(min(_granules(-(-length // self.target_splits)), self.longest_chunk))
        return max(GRANULE, even, _granules(-(-length // self.max_splits)))

    def num_chunks(self, length: int) -> int:
        """Chunks of a request, 0 for an empty one."""
        return -(-length // self.chunk_tokens(length))


def plan_splits(num_reqs: int, row_tiles: int, max_context: int, *, num_ctas: int = 132) -> SplitPlan:
    """A plan that gives each CTA one item when all requests are as long as the longest.

    Args:
        num_reqs: requests of the step, padding included.
        row_tiles: items per chunk, tiles of query rows.
        max_context: longest context in tokens, on this rank; longer ones are served, with longer chunks.
        num_ctas: multiprocessors of the GPU.

    Raises:
        ValueError: more requests than a step can have, or a number that is not positive.
    """
    if not 1 <= num_reqs <= MAX_REQUESTS:
        raise ValueError(f"num_reqs: got {num_reqs}, expected 1 ... {MAX_REQUESTS}")
    if min(row_tiles, max_context, num_ctas) < 1:
        raise ValueError(
            f"got {row_tiles} row tiles, context {max_context}, {num_ctas} CTAs, expected at least 1"
        )
    target = min(MAX_SPLITS, max(1, num_ctas // (num_reqs * row_tiles)))
    longest = max(LONGEST_CHUNK, _granules(-(-max_context // MAX_SPLITS)))
    return SplitPlan(
        target_splits=target,
        longest_chunk=longest,
        max_splits=max(min(target, -(-max_context // GRANULE)), -(-max_context // longest)),
        num_ctas=num_ctas,
    )


def _granules(tokens: int) -> int:
    return -(-tokens // GRANULE) * GRANULE
