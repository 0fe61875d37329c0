"""How a step's work is divided among CTAs that each take a stretch of it. Pure: host integers or the device's.

Work is counted in units, in order; CTA i of n has units `i / n ... (i + 1) / n` of all of them. A tile of
`K_PARTS` units may lie in several CTAs: the one that has its first unit owns it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from specialized_path.kernels.moe_experts.shape import COLUMNS, TILE_ROWS

K_PARTS = 16
"""Parts of K that gate-up sums apart, each a unit of one warp; as in `GateUpTactic.k_parts`."""
TILE_SUM_BYTES = K_PARTS * 2 * TILE_ROWS * COLUMNS * 4
"""FP32 sums of a tile's parts, of gate and of up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartsTactic:
    """How the kernel is cut."""

    warps: int
    depth: int
    """Groups of K in a warp's ring."""
    is_shared: bool
    """Whether tiles may lie in several CTAs; else each has whole ones."""

    @property
    def threads(self) -> int:
        """Of a CTA."""
        return 32 * self.warps


@dataclass(frozen=True, slots=True, kw_only=True)
class SpreadTactic:
    """How the kernel is cut."""

    warps: int
    """Units that a CTA works on at a time."""
    depth: int
    """Groups of K on the way to a warp's registers; divides those of a pass."""
    to_l2: bool
    """Whether a warp asks for all of a unit to come to L2 before it begins the one in front of it."""

    @property
    def threads(self) -> int:
        """Of a CTA."""
        return 32 * self.warps


def first_unit(block: Any, num_blocks: Any, num_units: Any) -> Any:
    """The first unit of a CTA; that of the next one is where this one's end."""
    return num_units * block // num_blocks


def owner_of(unit: Any, num_blocks: Any, num_units: Any) -> Any:
    """The CTA that has a unit: the largest whose first unit is not behind it."""
    return ((unit + 1) * num_blocks - 1) // num_units
