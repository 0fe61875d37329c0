"""A cell of a performance sweep as evidence keeps it: a time an arm and block, and what rules said of each block."""

from __future__ import annotations

from pydantic import Field

from harness.model.record import Record
from harness.model.words import Arm, Outcome


class SweptBlock(Record):
    """All arms' visits of one block."""

    index: int
    times_ms: dict[Arm, float]
    """Of the time that the cell is about, the geometric mean over the arm's visits."""
    dropped: str = ""
    """Why a rule that was fixed beforehand leaves the block out; empty: it counts."""


class SweptCell(Record):
    """One cell of a sweep."""

    name: str
    workload: str
    batch: int = Field(ge=1)
    context: int = Field(ge=1)
    """The longest sequence, in tokens."""
    tensor_parallel: int = Field(ge=1, default=1)
    is_required: bool
    fault: str = ""
    """What makes the cell void or failed whatever its times, such as requests that were lost."""
    fault_outcome: Outcome | None = None
    blocks: tuple[SweptBlock, ...]
