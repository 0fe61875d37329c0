"""Sizes of a rank's experts and of their packed weights, and how a launch is cut. Pure numbers: no GPU, no DSL."""

from __future__ import annotations

from dataclasses import dataclass

TILE_ROWS = 16
"""Weight rows of one matrix instruction."""
BLOCK_K = 64
"""K of a block: two groups of 32 that share scales, four matrix instructions."""
BLOCK_BYTES = TILE_ROWS * BLOCK_K * 17 // 32
"""A block of a tile: 512 bytes of codes, 32 of scales."""
COLUMNS = 8
"""Activation rows of one matrix instruction; an expert with more is passed over again."""
GATED_ROWS = 8
"""Rows of the intermediate dimension in a gate-up tile: as many gate rows, then as many up rows."""
MAX_TOKENS = 64
SHARED_BYTES = 226 * 1024
"""Dynamic shared memory that a CTA may take on sm_90, sm_100 and sm_103."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertShape:
    """The experts of one rank."""

    name: str
    intermediate: int
    """Rows of gate and of up on this rank."""
    latent: int = 3584
    num_experts: int = 896
    top_k: int = 16

    @property
    def gate_up_blocks(self) -> int:
        """Blocks of K in a gate-up tile."""
        return self.latent // BLOCK_K

    @property
    def down_blocks(self) -> int:
        """Blocks of K in a tile of the down-projection."""
        return self.intermediate // BLOCK_K

    @property
    def gate_up_tiles(self) -> int:
        """Gate-up tiles of an expert."""
        return self.intermediate // GATED_ROWS

    @property
    def down_tiles(self) -> int:
        """Tiles of an expert's down-projection."""
        return self.latent // TILE_ROWS

    @property
    def gate_up_tile_bytes(self) -> int:
        """Bytes of a packed gate-up tile."""
        return self.gate_up_blocks * BLOCK_BYTES

    @property
    def down_tile_bytes(self) -> int:
        """Bytes of a packed tile of the down-projection."""
        return self.down_blocks * BLOCK_BYTES

    @property
    def expert_bytes(self) -> int:
        """All packed weights of an expert: as many as in the checkpoint."""
        return self.gate_up_tiles * self.gate_up_tile_bytes + self.down_tiles * self.down_tile_bytes


SHAPES = (ExpertShape(name="tp8", intermediate=384), ExpertShape(name="tp16", intermediate=192))


@dataclass(frozen=True, slots=True, kw_only=True)
class GateUpTactic:
    """How the gate-up kernel is cut."""

    k_warps: int
    """Warps that share K."""
    stages: int
    """Tiles in the ring."""

    @property
    def threads(self) -> int:
        """Of a CTA: one warp more copies, one more adds and stores."""
        return 32 * (self.k_warps + 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class DownTactic:
    """How the down kernel is cut."""

    tiles: int
    """Neighbouring tiles of a CTA."""
    pass_warps: int
    """Passes that a CTA works on at a time, each with a warp a tile."""
    stages: int
    """Passes in the ring, a multiple of `pass_warps`."""
    max_tokens: int
    """Tokens whose slots' outputs find room in shared memory."""

    def __post_init__(self) -> None:
        """Raises ValueError where a stage would not always be read by the same warps.

        Copies may land out of order, and a wait by parity tells a phase from the one two before it only to a thread
        that has seen the one between.
        """
        if self.stages % self.pass_warps:
            raise ValueError(f"stages: got {self.stages}, expected a multiple of {self.pass_warps}")

    @property
    def threads(self) -> int:
        """Of a CTA: one warp more copies."""
        return 32 * (self.tiles * self.pass_warps + 1)


def max_pairs(shape: ExpertShape) -> int:
    """Pairs of token and chosen expert in a step, at most."""
    return MAX_TOKENS * shape.top_k
