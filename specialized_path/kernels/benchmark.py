"""What a kernel is timed on: a cell is one shape of work, with calls of the kernel and of what others offer for it.

The timing loop is the judge's. A call enqueues its work on PyTorch's current stream, allocates nothing and can be
captured into a CUDA graph.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

Calls = Sequence[Callable[[], object]]
"""The same work on one copy of the inputs after the other, so that no copy is still in L2 when its turn comes."""

ROTATED_BYTES = 200_000_000
"""All copies together: several times the L2 of an H200 (50 MB)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedCell:
    """A cell whose inputs lie on the GPU."""

    candidate: Calls
    baselines: Mapping[str, Calls]
    """By name: "torch", "vllm", ... ; those that can be imported here."""
    missing: Mapping[str, str]
    """Baselines that cannot, and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchmarkCell:
    """One shape of work."""

    name: str
    """Unique; as it stands in a table."""
    family: str
    operator: str
    rank_shape: str
    batch: int
    """Rows, requests or tokens, whichever the kernel's variants count."""
    bytes_moved: int
    """Each input read once, each output written once."""
    prepare: Callable[[], PreparedCell]
    """Puts the inputs onto the current GPU, compiles and runs everything once."""


def num_copies(num_bytes: int, largest: int = 512) -> int:
    """How many copies of inputs of this size to rotate among: at least three."""
    return max(3, min(largest, -(-ROTATED_BYTES // num_bytes)))
