"""Packed codes back in the order of vLLM's Marlin kernels: a permutation of nibbles, once a layer and prefill step.

Marlin's weights (Frantar and others, "MARLIN", 2024; vLLM `gptq_marlin_repack`) are words of eight codes, two rows
eight apart by four of K, in tiles of 16 of K by 64 rows. A warp writes two such tiles of each part: its lane has four
neighbouring lanes' words of one row pair, or of two tiles where gate and up rows share a tile.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass import Int32, Int64, Uint32

from specialized_path.kernels.common import device
from specialized_path.kernels.moe_experts.packing import MAGNITUDE_SHIFTS, SIGN_BITS
from specialized_path.kernels.moe_experts.shape import BLOCK_K, TILE_ROWS, ExpertShape

MARLIN_ROWS = 64
"""Rows of a tile of Marlin's."""
_WARPS = 8
_CODE_BYTES = TILE_ROWS * BLOCK_K // 2
_TILE_WORDS = MARLIN_ROWS * 16 // 8


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreKernel:
    """The kernel for one rank's experts and one of the two packed tensors."""

    shape: ExpertShape
    is_gated: bool
    """Whether it restores gate and up, else down."""

    @property
    def tile_bytes(self) -> int:
        """Of a packed tile."""
        return self.shape.gate_up_tile_bytes if self.is_gated else self.shape.down_tile_bytes

    @property
    def blocks(self) -> int:
        """Blocks of K."""
        return self.shape.gate_up_blocks if self.is_gated else self.shape.down_blocks

    @property
    def row_tiles(self) -> int:
        """Marlin's tiles of a part along its rows."""
        return (self.shape.intermediate if self.is_gated else self.shape.latent) // MARLIN_ROWS

    @cute.jit
    def __call__(
        self, packed: cute.Pointer, marlin: cute.Pointer, num_experts: Int32, use_pdl: Int32, stream: Any
    ) -> None:
        """All experts' codes, [E, K/16, N/64, 128] words."""
        items = num_experts * (self.row_tiles * self.blocks * 2)
        self.kernel(packed, marlin, items).launch(
            grid=((items + (_WARPS - 1)) // _WARPS, 1, 1),
            block=(_WARPS * 32, 1, 1),
            stream=stream,
            use_pdl=use_pdl,
        )

    @cute.kernel
    def kernel(self, packed: cute.Pointer, marlin: cute.Pointer, items: Int32) -> None:
        """Warp `2 b + h` of a row of tiles has lanes `2 h` and `2 h + 1` of each group of four of block b."""
        block, _, _ = cute.arch.block_idx()
        thread, _, _ = cute.arch.thread_idx()
        device.wait_for_dependencies()
        device.release_dependents()
        item, lane = block * _WARPS + thread // 32, thread % 32
        if item < items:
            half, k_block, tile_row = item % 2, item // 2 % self.blocks, item // 2 // self.blocks
            expert, row_tile = tile_row // self.row_tiles, tile_row % self.row_tiles
            sub, g = lane % 4, lane // 4
            tiles: cutlass.Constexpr = 2 if self.is_gated else 1
            first = Int64(tile_row) * (4 * tiles) + sub * tiles
            codes = packed.toint() + first * self.tile_bytes + k_block * _CODE_BYTES
            source = codes + (4 * g + 2 * half) * 16
            lanes = [
                device.load_words(source + tile * self.tile_bytes + t * 16, modifier=".nc.L1::no_allocate")
                for tile in range(tiles)
                for t in range(2)
            ]
            k_row = Int64(expert) * (4 * self.blocks) + 4 * k_block + half
            place = k_row * (self.row_tiles * tiles) + row_tile
            place = marlin.toint() + (place * _TILE_WORDS + g * 16 + sub) * 4
            for part in cutlass.range_constexpr(tiles):
                for q in cutlass.range_constexpr(2):
                    for t in cutlass.range_constexpr(4):
                        word = self.marlin_word(lanes, part, 2 * q + t // 2, t % 2)
                        tile = q * 2 * self.row_tiles * tiles + part * self.row_tiles
                        device.store_word(place + (tile * _TILE_WORDS + t * 4) * 4, word)

    def marlin_word(self, lanes: Any, part: int, word: int, pair: int) -> Any:
        """Codes of columns k and k + 8, then of the row eight further; those of the odd columns in the upper half.

        Args:
            lanes: words of two neighbouring lanes, of one tile or of two.
            part: 0 gate, 1 up; 0 for down.
            word: which of a lane's words.
            pair: which two columns of the word.
        """
        if self.is_gated:
            sources = [(lanes[2 * tile + t][word], part) for tile in range(2) for t in range(2)]
        else:
            sources = [(lanes[t][word], row) for row in range(2) for t in range(2)]
        codes = [nibbles(source, 2 * pair + row) << 4 * place for place, (source, row) in enumerate(sources)]
        return codes[0] | codes[1] | codes[2] | codes[3]


def nibbles(word: Any, register: int) -> Any:
    """The codes of one operand register of a packed word, each in the low four bits of its half."""
    magnitude = (word >> MAGNITUDE_SHIFTS[register]) & Uint32(0x00070007)
    return magnitude | ((word >> SIGN_BITS[register] - 3) & Uint32(0x00080008))
