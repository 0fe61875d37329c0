"""What both kernels do with tiles of Marlin's: a warp's own ring of copies in shared memory, and exact products.

Every lane copies what it will read itself, so that nothing but its own wait for its own copies stands between them: no
barrier, and no other warp's pace. A stage holds a group of K: codes and scales of `tiles` tiles, and activations.
"""

from __future__ import annotations

from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass import Float32, Int32, Int64

from specialized_path.kernels.common import device
from specialized_path.kernels.moe_experts import ops
from specialized_path.kernels.moe_experts.shape import GROUP_K, STEP_K, TILE_BYTES, TILE_ROWS

_SUBTILES = 4
"""Matrix instructions beside each other in a tile."""
_STEPS = GROUP_K // STEP_K
_WARP = 32


class WarpRing:
    """A warp's ring, and its sums in registers.

    Args:
        base: shared address of the ring, for this lane's first codes.
        lane: of the warp.
        rows: rows of the weights in memory.
        tiles: how many tiles share the activations.
        tile_stride: rows between them.
        depth: stages.
    """

    def __init__(self, base: Any, lane: Any, *, rows: int, tiles: int, tile_stride: int, depth: int) -> None:
        self.codes = base + lane * 16
        self.scales = base + tiles * _STEPS * TILE_BYTES + lane * 8
        self.activations = base + tiles * (_STEPS * TILE_BYTES + _WARP * 8) + lane * 16
        self.rows, self.tiles, self.tile_stride, self.depth = rows, tiles, tile_stride, depth
        self.sums = cute.make_rmem_tensor((4 * _SUBTILES * tiles,), Float32)

    @staticmethod
    def stage_bytes(tiles: int) -> int:
        """Shared memory of a stage."""
        return tiles * (_STEPS * TILE_BYTES + _WARP * 8) + _WARP * 16


def copy_weights(ring: WarpRing, stage: Any, codes: Any, scales: Any) -> None:
    """Asks for a group's codes and scales, at the lane's addresses in the first tile."""
    offset = stage * ring.stage_bytes(ring.tiles)
    for step in range(_STEPS):
        for tile in range(ring.tiles):
            away = step * ring.rows * STEP_K // 2 + tile * ring.tile_stride * STEP_K // 2
            place = ring.codes + offset + (step * ring.tiles + tile) * TILE_BYTES
            ops.copy_weights_async(place, codes + away)
    for tile in range(ring.tiles):
        place = ring.scales + offset + tile * (_WARP * 8)
        ops.copy_async(place, scales + tile * ring.tile_stride, 8)


def copy_activations(ring: WarpRing, stage: Any, row: Any) -> None:
    """Asks for a group of the lane's activation row, from its address on."""
    place = ring.activations + stage * ring.stage_bytes(ring.tiles)
    for i in range(2 * _STEPS):
        ops.copy_async(place + i * 4, row + i * STEP_K, 4)


def clear_sums(ring: WarpRing) -> None:
    """Before the first group of a pass."""
    ring.sums.fill(0)


def multiply(ring: WarpRing, stage: Any) -> None:
    """Adds a group's products to the sums.

    The matrix unit, which truncates what it adds over longer stretches, sums a group from zero; the group's scale and
    the total are FP32.
    """
    offset = stage * ring.stage_bytes(ring.tiles)
    b = [ops.activations(word) for word in ops.load_shared_words(ring.activations + offset)]
    for tile in range(ring.tiles):
        words = [
            ops.load_shared_words(ring.codes + offset + (step * ring.tiles + tile) * TILE_BYTES)
            for step in range(_STEPS)
        ]
        scales = [
            ops.scales(word) for word in ops.load_shared_pair(ring.scales + offset + tile * (_WARP * 8))
        ]
        for sub in range(_SUBTILES):
            part = (Float32(0.0),) * 4
            for step in range(_STEPS):
                part = device.mma_bf16(part, ops.weights(words[step][sub]), (b[2 * step], b[2 * step + 1]))
            low, high = scales[sub // 2][sub % 2], scales[sub // 2][2 + sub % 2]
            at = (tile * _SUBTILES + sub) * 4
            for i in range(4):
                ring.sums[at + i] = ops.fma(part[i], low if i < 2 else high, ring.sums[at + i])


def tile_place(lane: Any, tile: Any) -> tuple[Any, Any]:
    """Bytes from the start of a row of tiles to a lane's codes, and from that of a group's scales to its scales."""
    return tile * TILE_BYTES + lane * 16, tile * TILE_ROWS + lane // 4 * 8


def activation_place(this: Any, slots: int, row_size: int, lane: Any) -> Any:
    """Bytes from the first activation row to a lane's first word; a column without a pair reads another one's row.

    No column's sums depend on another column, so that what such a lane has is not used.
    """
    column = cutlass.min(lane // 4, this.count - 1)
    pair = ops.load_shared_word(this.pairs + column * 4)
    return Int64(pair // slots) * (row_size * 2) + lane % 4 * 4


def expert_place(expert: Any, num_bytes: int) -> Any:
    """Bytes from the first expert to this one."""
    return Int64(Int32(expert)) * num_bytes
