"""What both kernels do with tiles of Marlin's: groups of K on their way to a warp, and exact products.

Every lane asks for what it will read itself, in a ring in shared memory or in registers, so that nothing but its own
wait stands between them: no barrier, and no other warp's pace. A stage holds a group of K: codes and scales of `tiles`
tiles, and activations.
"""

from __future__ import annotations

from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass import Float32, Int32, Int64, Uint32

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


class WarpRegisters:
    """A tile's groups of K on their way to a lane's registers, and the warp's sums.

    Args:
        rows: rows of the weights in memory.
        depth: groups on their way.
    """

    def __init__(self, *, rows: int, depth: int) -> None:
        self.rows, self.depth = rows, depth
        self.codes = cute.make_rmem_tensor((4 * _STEPS * depth,), Uint32)
        self.scales = cute.make_rmem_tensor((2 * depth,), Uint32)
        self.activations = cute.make_rmem_tensor((2 * _STEPS * depth,), Uint32)
        self.sums = cute.make_rmem_tensor((4 * _SUBTILES,), Float32)


def load_weights(registers: WarpRegisters, stage: int, codes: Any, scales: Any) -> None:
    """Asks for a group's codes and scales, at the lane's addresses."""
    for step in range(_STEPS):
        words = ops.load_weights(codes + step * registers.rows * STEP_K // 2, 4)
        for i, word in enumerate(words):
            registers.codes[4 * (_STEPS * stage + step) + i] = word
    for i, word in enumerate(ops.load_weights(scales, 2)):
        registers.scales[2 * stage + i] = word


def load_activations(registers: WarpRegisters, stage: int, row: Any) -> None:
    """Asks for a group of the lane's activation row, from its address on."""
    for i in range(2 * _STEPS):
        registers.activations[2 * _STEPS * stage + i] = ops.load_unsigned(row + i * STEP_K)


def clear_sums(warp: WarpRing | WarpRegisters) -> None:
    """Before the first group of a pass."""
    warp.sums.fill(0)


def multiply_loaded(registers: WarpRegisters, stage: int) -> None:
    """Adds a group's products to the sums."""
    words = [[registers.codes[4 * (_STEPS * stage + step) + i] for i in range(4)] for step in range(_STEPS)]
    b = [ops.activations(registers.activations[2 * _STEPS * stage + i]) for i in range(2 * _STEPS)]
    _add_products(registers.sums, 0, words, [registers.scales[2 * stage + i] for i in range(2)], b)


def multiply(ring: WarpRing, stage: Any) -> None:
    """Adds a group's products to the sums."""
    offset = stage * ring.stage_bytes(ring.tiles)
    b = [ops.activations(word) for word in ops.load_shared_words(ring.activations + offset)]
    for tile in range(ring.tiles):
        words = [
            ops.load_shared_words(ring.codes + offset + (step * ring.tiles + tile) * TILE_BYTES)
            for step in range(_STEPS)
        ]
        scales = ops.load_shared_pair(ring.scales + offset + tile * (_WARP * 8))
        _add_products(ring.sums, tile * _SUBTILES * 4, words, scales, b)


def _add_products(sums: Any, first: int, words: Any, scale_words: Any, b: list[Any]) -> None:
    """Adds a tile's products of a group to the sums from `first` on.

    The matrix unit, which truncates what it adds over longer stretches, sums a group from zero; the group's scale and
    the total are FP32.
    """
    scales = [ops.scales(word) for word in scale_words]
    for sub in range(_SUBTILES):
        part = (Float32(0.0),) * 4
        for step in range(_STEPS):
            part = device.mma_bf16(part, ops.weights(words[step][sub]), (b[2 * step], b[2 * step + 1]))
        low, high = scales[sub // 2][sub % 2], scales[sub // 2][2 + sub % 2]
        for i in range(4):
            at = first + 4 * sub + i
            sums[at] = ops.fma(part[i], low if i < 2 else high, sums[at])


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
