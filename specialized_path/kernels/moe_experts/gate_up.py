"""Gate, up and activation of every chosen expert: the first half of OC-16.

Work is counted in tiles of 64 gate rows with the 64 up rows of the same outputs, over all of K, and divides evenly
among the CTAs. The warps of a CTA share a tile's K and stream their parts of it through registers; what they sum meets
in shared memory, is added in the parts' order, activated and stored, while the next tile's weights are on their way.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass import Float32, Int32, Int64, Uint8

from specialized_path.kernels.common import device
from specialized_path.kernels.moe_experts import ops
from specialized_path.kernels.moe_experts.grouping import Grouping
from specialized_path.kernels.moe_experts.products import (
    WarpRing,
    activation_place,
    clear_sums,
    copy_activations,
    copy_weights,
    expert_place,
    multiply,
    tile_place,
)
from specialized_path.kernels.moe_experts.shape import COLUMNS, GROUP_K, TILE_ROWS, ExpertShape, GateUpTactic

_WARP = 32
_PLACES = TILE_ROWS * COLUMNS * 4
"""Bytes of a tile's sums of one warp: 16 a lane for each matrix instruction."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GateUpKernel:
    """The kernel for one rank's experts and one tactic."""

    shape: ExpertShape
    tactic: GateUpTactic
    beta: float = 4.0
    linear_beta: float = 25.0

    @property
    def sum_bytes(self) -> int:
        """The sums of all parts of K, of gate and of up."""
        return 2 * self.tactic.k_parts * _PLACES

    @property
    def shared_bytes(self) -> int:
        """Dynamic shared memory: rings, sums, grouping."""
        return self.tactic.k_warps * self.ring_bytes + self.sum_bytes + Grouping.shared_bytes(self.shape)

    @property
    def ring_bytes(self) -> int:
        """A warp's ring."""
        return self.tactic.depth * WarpRing.stage_bytes(2)

    @cute.jit
    def __call__(
        self,
        latent: cute.Pointer,
        topk_ids: cute.Pointer,
        codes: cute.Pointer,
        scales: cute.Pointer,
        hidden: cute.Pointer,
        num_tokens: Int32,
        num_ctas: Int32,
        use_pdl: Int32,
        stream: Any,
    ) -> None:
        """`hidden[b, slot] = situ(W1[id] latent[b], W3[id] latent[b])` with `id = topk_ids[b, slot]`."""
        self.kernel(latent, topk_ids, codes, scales, hidden, num_tokens).launch(
            grid=(num_ctas, 1, 1),
            block=(self.tactic.threads, 1, 1),
            smem=self.shared_bytes,
            stream=stream,
            use_pdl=use_pdl,
        )

    @cute.kernel
    def kernel(
        self,
        latent: cute.Pointer,
        topk_ids: cute.Pointer,
        codes: cute.Pointer,
        scales: cute.Pointer,
        hidden: cute.Pointer,
        num_tokens: Int32,
    ) -> None:
        """CTA i of n takes tiles `i / n ... (i + 1) / n` of all passes' tiles in order."""
        block, _, _ = cute.arch.block_idx()
        num_ctas, _, _ = cute.arch.grid_dim()
        thread, _, _ = cute.arch.thread_idx()
        rings = cute.arch.get_dyn_smem(Uint8, alignment=128).toint()
        sums = rings + self.tactic.k_warps * self.ring_bytes
        passes = Grouping(self.shape, self.tactic.threads, sums + self.sum_bytes)
        passes.clear(thread)
        cute.arch.sync_threads()
        device.wait_for_dependencies()
        device.release_dependents()
        num_tiles = passes.build(thread, topk_ids.toint(), num_tokens) * self.shape.gate_up_tiles
        first, last = num_tiles * block // num_ctas, num_tiles * (block + 1) // num_ctas
        if first < last:
            warp = cute.arch.make_warp_uniform(thread // _WARP)
            group = warp * (self.shape.gate_up_groups // self.tactic.k_warps)
            starts = (
                codes.toint() + Int64(group) * self.code_bytes,
                scales.toint() + Int64(group) * (2 * self.shape.held),
                latent.toint() + Int64(group) * (2 * GROUP_K),
            )
            held = self.shape.held
            ring = WarpRing(
                rings + warp * self.ring_bytes,
                thread % _WARP,
                rows=2 * held,
                tiles=2,
                tile_stride=held,
                depth=self.tactic.depth,
            )
            self.stream(ring, sums, passes, starts, hidden.toint(), first, last, thread)

    @property
    def code_bytes(self) -> int:
        """Codes of a group of K of an expert, of all rows."""
        return self.shape.held * GROUP_K

    @cute.jit
    def stream(
        self,
        ring: cutlass.Constexpr,
        sums: Int32,
        passes: cutlass.Constexpr,
        starts: tuple[Int64, Int64, Int64],
        hidden: Int64,
        first: Int32,
        last: Int32,
        thread: Int32,
    ) -> None:
        """All tiles of a CTA, one behind the other; the next tile's first groups are asked for before this one's end.

        Args:
            ring: the warp's.
            sums: shared address of the warps' sums.
            passes: the step's grouping.
            starts: addresses of expert 0's codes and scales and of token 0's activations, where this warp's K begins.
            hidden: address of the output.
            first: first tile.
            last: one behind the last tile, above `first`.
            thread: of the CTA.
        """
        k_parts, parts, ahead = self.tactic.k_parts, self.tactic.warp_parts, self.tactic.depth - 1
        groups: cutlass.Constexpr = self.shape.gate_up_groups // k_parts
        warp, lane = thread // _WARP, thread % _WARP
        codes, scales, row = self.places(passes, starts, first, lane)
        for stage in cutlass.range_constexpr(ahead):
            copy_weights(ring, stage, codes, scales)
            copy_activations(ring, stage, row)
            ops.commit_copies()
            codes, scales, row = self.advance(codes, scales, row)
        stage, free = Int32(0), Int32(ahead)
        for tile in range(first, last):
            for part in cutlass.range_constexpr(parts):
                clear_sums(ring)
                is_last: cutlass.Constexpr = part == parts - 1
                for step in cutlass.range_constexpr(1 + is_last):
                    if cutlass.const_expr(step == 1):
                        codes, scales, row = self.places(
                            passes, starts, cutlass.min(tile + 1, last - 1), lane
                        )
                    for _ in range(ahead if step == 1 else groups - ahead * is_last):
                        ops.wait_for_copies(ahead - 1)
                        # What is asked for goes where the group before was: its products are behind its reads.
                        if step == 0 or tile + 1 < last:
                            copy_weights(ring, free, codes, scales)
                            copy_activations(ring, free, row)
                        ops.commit_copies()
                        codes, scales, row = self.advance(codes, scales, row)
                        multiply(ring, stage)
                        free = stage
                        stage += 1
                        if stage == self.tactic.depth:
                            stage = Int32(0)
                if cutlass.const_expr(part == 0):
                    cute.arch.sync_threads()
                place = sums + (warp * parts + part) * (_WARP * 16) + lane * 16
                for sub in cutlass.range_constexpr(8):
                    four = [ring.sums[4 * sub + i] for i in range(4)]
                    ops.store_shared_sums(place + sub * (k_parts * _WARP * 16), four)
            cute.arch.sync_threads()
            self.finish(sums, passes[tile // self.shape.gate_up_tiles], hidden, tile, thread)

    def places(
        self, passes: Grouping, starts: tuple[Any, Any, Any], tile: Any, lane: Any
    ) -> tuple[Any, Any, Any]:
        """The lane's addresses of a tile's first codes, scales and activations."""
        shape = self.shape
        this = passes[tile // shape.gate_up_tiles]
        code_away, scale_away = tile_place(lane, tile % shape.gate_up_tiles)
        return (
            starts[0] + expert_place(this.expert, shape.gate_up_groups * self.code_bytes) + Int64(code_away),
            starts[1] + expert_place(this.expert, shape.gate_up_groups * 2 * shape.held) + Int64(scale_away),
            starts[2] + activation_place(this, shape.top_k, shape.latent, lane),
        )

    def advance(self, codes: Any, scales: Any, row: Any) -> tuple[Any, Any, Any]:
        """The addresses of the next group of K."""
        return codes + self.code_bytes, scales + 2 * self.shape.held, row + 2 * GROUP_K

    @cute.jit
    def finish(self, sums: Int32, this: cutlass.Constexpr, hidden: Int64, tile: Int32, thread: Int32) -> None:
        """Adds the sums, the first part's of K first, and stores 64 activated rows of each pair of the pass."""
        k_parts = self.tactic.k_parts
        item = thread
        while item < TILE_ROWS * COLUMNS:
            # As lanes hold sums: lane l has of 16 rows rows l / 4 and eight further, columns 2 (l % 4) and the next.
            sub, lane, value = item // (4 * _WARP), item // 4 % _WARP, item % 4
            column = lane % 4 * 2 + value % 2
            if column < this.count:
                place = sums + (sub * k_parts * _WARP + lane) * 16 + value * 4
                gate, up = Float32(0.0), Float32(0.0)
                for part in cutlass.range_constexpr(k_parts):
                    gate += device.load_shared_f32(place + part * (_WARP * 16))
                    up += device.load_shared_f32(place + (4 * k_parts + part) * (_WARP * 16))
                pair = ops.load_shared_word(this.pairs + column * 4)
                row = tile % self.shape.gate_up_tiles * TILE_ROWS + sub * 16 + value // 2 * 8 + lane // 4
                at = hidden + (Int64(pair) * self.shape.intermediate + row) * 2
                ops.store_bf16(at, ops.situ(gate, up, self.beta, self.linear_beta))
            item += self.tactic.threads
