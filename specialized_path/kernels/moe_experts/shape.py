"""Sizes of a rank's experts in Marlin's order, and how a launch is cut. Pure numbers: no GPU, no DSL."""

from __future__ import annotations

from dataclasses import dataclass

TILE_ROWS = 64
"""Weight rows of a tile: four matrix instructions beside each other, whose operands a lane has in 16 bytes."""
STEP_K = 16
"""K of a tile, and of a matrix instruction."""
TILE_BYTES = TILE_ROWS * STEP_K // 2
GROUP_K = 32
"""K that shares a scale."""
COLUMNS = 8
"""Activation rows of one matrix instruction; an expert with more is passed over again."""
MAX_TOKENS = 64
SHARED_BYTES = 226 * 1024
"""Dynamic shared memory that a CTA may take on sm_90, sm_100 and sm_103."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertShape:
    """The experts of one rank."""

    name: str
    intermediate: int
    """Rows of gate and of up on this rank, a multiple of 64."""
    held: int
    """Rows of gate and of up in memory: vLLM pads to 256 or more. What lies behind `intermediate` is never read."""
    latent: int = 3584
    num_experts: int = 896
    top_k: int = 16

    @property
    def gate_up_tiles(self) -> int:
        """Pairs of a gate and an up tile of an expert."""
        return self.intermediate // TILE_ROWS

    @property
    def down_tiles(self) -> int:
        """Tiles of an expert's down-projection along its rows."""
        return self.latent // TILE_ROWS

    @property
    def gate_up_groups(self) -> int:
        """Groups of K of gate and up."""
        return self.latent // GROUP_K

    @property
    def down_groups(self) -> int:
        """Groups of K of the down-projection."""
        return self.intermediate // GROUP_K

    @property
    def read_bytes(self) -> int:
        """Codes and scales of an expert that a step reads."""
        return 3 * self.intermediate * self.latent * 17 // 32


SHAPES = (
    ExpertShape(name="tp8", intermediate=384, held=384),
    ExpertShape(name="tp16", intermediate=192, held=192),
    ExpertShape(name="tp16 padded", intermediate=192, held=256),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class GateUpTactic:
    """How the gate-up kernel is cut."""

    k_warps: int
    """Warps that share K."""
    depth: int
    """Groups of K in a warp's ring."""
    max_tokens: int

    @property
    def k_parts(self) -> int:
        """Parts of K that are summed apart: as many in every cut, since a token's bits depend on them."""
        return 16

    @property
    def warp_parts(self) -> int:
        """Parts of a warp."""
        return self.k_parts // self.k_warps

    @property
    def threads(self) -> int:
        """Of a CTA."""
        return 32 * self.k_warps


@dataclass(frozen=True, slots=True, kw_only=True)
class DownTactic:
    """How the down kernel is cut."""

    warps: int
    """Passes that a CTA works on at a time."""
    depth: int
    """Groups of K on the way to a warp's registers; divides those of a pass."""
    max_tokens: int
    """Tokens whose slots' outputs find room in shared memory."""
    to_l2: bool
    """Whether a warp asks for all of a pass to come to L2 before it begins the pass in front of it."""

    @property
    def threads(self) -> int:
        """Of a CTA."""
        return 32 * self.warps


def max_pairs(shape: ExpertShape) -> int:
    """Pairs of token and chosen expert in a step, at most."""
    return MAX_TOKENS * shape.top_k
