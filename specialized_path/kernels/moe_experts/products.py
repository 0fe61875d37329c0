"""What both kernels do with a tile: activations into registers, and products by `mma.sync` with exact weights."""

from __future__ import annotations

from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass import Float32, Int32, Int64

from specialized_path.kernels.common import device
from specialized_path.kernels.moe_experts import ops
from specialized_path.kernels.moe_experts.shape import BLOCK_K, TILE_ROWS

_CODE_BYTES = TILE_ROWS * BLOCK_K // 2
_SCALE_BYTES = TILE_ROWS * BLOCK_K // 32


@cute.jit
def load_activations(
    mine: cute.Tensor,
    this: cutlass.Constexpr,
    rows: Int64,
    row_size: cutlass.Constexpr,
    slots: cutlass.Constexpr,
    blocks: cutlass.Constexpr,
    lane: Int32,
) -> None:
    """A lane's operand words of a pass's activations, eight a block of K; columns without a pair are zero.

    Args:
        mine: where to.
        this: the pass.
        rows: BF16 rows, at the first column wanted.
        row_size: elements of a row.
        slots: pairs that share a row: row `pair // slots`.
        blocks: blocks of 64 columns.
        lane: of the warp.
    """
    mine.fill(0)
    column = lane // 4
    if column < this.count:
        pair = ops.load_shared_word(this.pairs + column * 4)
        address = rows + Int64(pair // slots) * (row_size * 2) + lane % 4 * 16
        for group in cutlass.range_constexpr(2 * blocks):
            words = device.load_words(address + group * 64)
            for i in cutlass.range_constexpr(4):
                mine[4 * group + i] = ops.activations(words[i])


def block_products(
    found: Any, mine: Any, codes: Any, tile_blocks: int, first_block: Any, blocks: int, lane: Any
) -> None:
    """Sums over `blocks` blocks of a tile of 16 rows and eight columns, from zero, each group scaled in FP32.

    A group of 32 is summed by the matrix unit from zero, which truncates what it adds over longer stretches.

    Args:
        found: four sums, rows `lane // 4` and eight further, columns `2 (lane % 4)` and the next.
        mine: what `load_activations` left.
        codes: shared address of the packed tile.
        tile_blocks: blocks of the whole tile: its scales lie behind them.
        first_block: where this warp's part begins.
        blocks: how many it takes.
        lane: of the warp.
    """
    place = codes + first_block * _CODE_BYTES + lane * 16
    scale_place = codes + tile_blocks * _CODE_BYTES + first_block * _SCALE_BYTES + lane // 4 * 4
    sums = [Float32(0.0)] * 4
    for block in range(blocks):
        words = ops.load_shared_words(place + block * _CODE_BYTES)
        scales = ops.scales(ops.load_shared_unsigned(scale_place + block * _SCALE_BYTES))
        for group in range(2):
            part = (Float32(0.0),) * 4
            for step in range(2):
                a = ops.weights(words[2 * group + step])
                b = 8 * block + 4 * group + 2 * step
                part = device.mma_bf16(part, a, (mine[b], mine[b + 1]))
            low, high = scales[2 * group], scales[2 * group + 1]
            sums = [ops.fma(part[i], low if i < 2 else high, sums[i]) for i in range(4)]
    for i in range(4):
        found[i] = sums[i]
