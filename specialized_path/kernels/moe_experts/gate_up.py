"""Gate, up and activation of every chosen expert: the first half of OC-16.

Work is counted in tiles of 16 weight rows (eight of gate, the eight of up beside them) over all of K, and divides
evenly among the CTAs. One warp copies tiles into a ring, one bulk copy each; `k_warps` warps share each tile's K, with
their part of the pass's activations in registers for as long as the pass lasts; one more warp adds their sums in order,
applies the activation and stores. Every lane arrives for itself: what it has read or stored is then ordered by its own
arrival, and by no assumption about where the other lanes of its warp are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass import Float32, Int32, Int64, Uint8, Uint32, Uint64

from specialized_path.kernels.common import device
from specialized_path.kernels.moe_experts import ops
from specialized_path.kernels.moe_experts.grouping import Grouping
from specialized_path.kernels.moe_experts.products import block_products, load_activations
from specialized_path.kernels.moe_experts.shape import BLOCK_K, GATED_ROWS, ExpertShape, GateUpTactic

_WARP = 32
_SUM_BUFFERS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class GateUpKernel:
    """The kernel for one rank's experts and one tactic."""

    shape: ExpertShape
    tactic: GateUpTactic
    beta: float = 4.0
    linear_beta: float = 25.0

    @property
    def sum_bytes(self) -> int:
        """One buffer of the warps' sums."""
        return self.tactic.k_warps * _WARP * 16

    @property
    def shared_bytes(self) -> int:
        """Dynamic shared memory: ring, sums, grouping."""
        ring = self.tactic.stages * self.shape.gate_up_tile_bytes
        return ring + _SUM_BUFFERS * self.sum_bytes + Grouping.shared_bytes(self.shape)

    @cute.jit
    def __call__(
        self,
        latent: cute.Pointer,
        topk_ids: cute.Pointer,
        gate_up: cute.Pointer,
        hidden: cute.Pointer,
        num_tokens: Int32,
        num_ctas: Int32,
        use_pdl: Int32,
        stream: Any,
    ) -> None:
        """`hidden[b, slot] = situ(W1[id] latent[b], W3[id] latent[b])` with `id = topk_ids[b, slot]`."""
        self.kernel(latent, topk_ids, gate_up, hidden, num_tokens).launch(
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
        gate_up: cute.Pointer,
        hidden: cute.Pointer,
        num_tokens: Int32,
    ) -> None:
        """CTA i of n takes tiles `i / n ... (i + 1) / n` of all passes' tiles in order."""
        tactic = self.tactic
        block, _, _ = cute.arch.block_idx()
        num_ctas, _, _ = cute.arch.grid_dim()
        thread, _, _ = cute.arch.thread_idx()
        warp = cute.arch.make_warp_uniform(thread // _WARP)
        ring = cute.arch.get_dyn_smem(Uint8, alignment=128).toint()
        sums = ring + tactic.stages * self.shape.gate_up_tile_bytes
        passes = Grouping(self.shape, tactic.threads, sums + _SUM_BUFFERS * self.sum_bytes)
        full = cute.arch.alloc_smem(Uint64, 2 * (tactic.stages + _SUM_BUFFERS), alignment=16)
        empty = full + tactic.stages
        summed = empty + tactic.stages
        taken = summed + _SUM_BUFFERS
        if thread == 0:
            for stage in cutlass.range_constexpr(tactic.stages):
                cute.arch.mbarrier_init(full + stage, 1)
                cute.arch.mbarrier_init(empty + stage, tactic.k_warps * _WARP)
            for buffer in cutlass.range_constexpr(_SUM_BUFFERS):
                cute.arch.mbarrier_init(summed + buffer, tactic.k_warps * _WARP)
                cute.arch.mbarrier_init(taken + buffer, _WARP)
            cute.arch.mbarrier_init_fence()
        passes.clear(thread)
        cute.arch.sync_threads()
        device.wait_for_dependencies()
        device.release_dependents()
        num_tiles = passes.build(thread, topk_ids.toint(), num_tokens) * self.shape.gate_up_tiles
        first, last = num_tiles * block // num_ctas, num_tiles * (block + 1) // num_ctas
        if warp == tactic.k_warps:
            if thread % _WARP == 0:
                self.copy(ring, full, empty, passes, gate_up.toint(), first, last)
        elif warp == tactic.k_warps + 1:
            self.finish(sums, summed, taken, passes, hidden.toint(), first, last, thread % _WARP)
        else:
            self.multiply(ring, sums, full, passes, latent.toint(), first, last, thread)

    @cute.jit
    def copy(
        self,
        ring: Int32,
        full: cute.Pointer,
        empty: cute.Pointer,
        passes: cutlass.Constexpr,
        gate_up: Int64,
        first: Int32,
        last: Int32,
    ) -> None:
        """Streams tiles through the ring."""
        tiles, tile_bytes = self.shape.gate_up_tiles, self.shape.gate_up_tile_bytes
        stage, phase = Int32(0), Int32(1)
        for tile in range(first, last):
            expert = passes[tile // tiles].expert
            cute.arch.mbarrier_wait(empty + stage, phase)
            cute.arch.mbarrier_arrive_and_expect_tx(full + stage, tile_bytes)
            source = gate_up + (Int64(expert) * tiles + tile % tiles) * tile_bytes
            ops.bulk_copy(ring + stage * tile_bytes, source, tile_bytes, (full + stage).toint())
            stage += 1
            if stage == self.tactic.stages:
                stage, phase = Int32(0), phase ^ 1

    @cute.jit
    def multiply(
        self,
        ring: Int32,
        sums: Int32,
        full: cute.Pointer,
        passes: cutlass.Constexpr,
        latent: Int64,
        first: Int32,
        last: Int32,
        thread: Int32,
    ) -> None:
        """A warp's products over its part of K of every tile."""
        tactic, tiles = self.tactic, self.shape.gate_up_tiles
        warp, lane = thread // _WARP, thread % _WARP
        blocks: cutlass.Constexpr = self.shape.gate_up_blocks // tactic.k_warps
        empty = full + tactic.stages
        summed = empty + tactic.stages
        taken = summed + _SUM_BUFFERS
        latent += Int64(warp * (blocks * BLOCK_K * 2))
        mine = cute.make_rmem_tensor((8 * blocks,), Uint32)
        mine.fill(0)
        found = cute.make_rmem_tensor((4,), Float32)
        current = Int32(-1)
        stage, phase, buffer, turn = Int32(0), Int32(0), Int32(0), Int32(1)
        for tile in range(first, last):
            index = tile // tiles
            if index != current:
                current = index
                load_activations(
                    mine, passes[index], latent, self.shape.latent, self.shape.top_k, blocks, lane
                )
            cute.arch.mbarrier_wait(full + stage, phase)
            codes = ring + stage * self.shape.gate_up_tile_bytes
            block_products(found, mine, codes, self.shape.gate_up_blocks, warp * blocks, blocks, lane)
            device.release_reads()
            cute.arch.mbarrier_arrive(empty + stage)
            cute.arch.mbarrier_wait(taken + buffer, turn)
            place = sums + buffer * self.sum_bytes + (warp * _WARP + lane) * 16
            ops.store_shared_sums(place, [found[i] for i in range(4)])
            cute.arch.mbarrier_arrive(summed + buffer)
            stage += 1
            if stage == tactic.stages:
                stage, phase = Int32(0), phase ^ 1
            buffer += 1
            if buffer == _SUM_BUFFERS:
                buffer, turn = Int32(0), turn ^ 1

    @cute.jit
    def finish(
        self,
        sums: Int32,
        summed: cute.Pointer,
        taken: cute.Pointer,
        passes: cutlass.Constexpr,
        hidden: Int64,
        first: Int32,
        last: Int32,
        lane: Int32,
    ) -> None:
        """Adds the warps' sums, and stores eight activated rows of each pair of the pass."""
        tiles = self.shape.gate_up_tiles
        buffer, turn = Int32(0), Int32(0)
        for tile in range(first, last):
            this = passes[tile // tiles]
            cute.arch.mbarrier_wait(summed + buffer, turn)
            place = sums + buffer * self.sum_bytes + lane * 16
            totals = ops.load_shared_sums(place)
            for k_warp in cutlass.range_constexpr(1, self.tactic.k_warps):
                more = ops.load_shared_sums(place + k_warp * (_WARP * 16))
                totals = tuple(a + b for a, b in zip(totals, more, strict=True))
            cute.arch.mbarrier_arrive(taken + buffer)
            row = tile % tiles * GATED_ROWS + lane // 4
            for i in cutlass.range_constexpr(2):
                column = lane % 4 * 2 + i
                if column < this.count:
                    pair = ops.load_shared_word(this.pairs + column * 4)
                    value = ops.situ(totals[i], totals[2 + i], self.beta, self.linear_beta)
                    ops.store_bf16(hidden + (Int64(pair) * self.shape.intermediate + row) * 2, value)
            buffer += 1
            if buffer == _SUM_BUFFERS:
                buffer, turn = Int32(0), turn ^ 1
