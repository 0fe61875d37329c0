"""Down-projection of every chosen expert and a rank's weighted sum over slots: the rest of OC-16, the first of OC-17.

A CTA owns some columns of the latent and goes through all passes. One warp copies each pass's rows of the down weights
into a ring, from before the dependency wait: which experts they are was settled two launches back. Each pass belongs to
one warp a tile, so that no sum crosses warps. Outputs, rounded as the contract says, stay in shared memory until all
slots of all tokens are there, and are then weighted and added in slot order: the same bits for every batch and place.
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
from specialized_path.kernels.moe_experts.shape import TILE_ROWS, DownTactic, ExpertShape

_WARP = 32
_POISON = 0x7FFF7FFF
"""Two NaNs: what the output of a slot is that no expert served."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DownKernel:
    """The kernel for one rank's experts and one tactic."""

    shape: ExpertShape
    tactic: DownTactic

    @property
    def row_bytes(self) -> int:
        """Outputs of a slot in shared memory."""
        return self.tactic.tiles * TILE_ROWS * 2

    @property
    def stage_bytes(self) -> int:
        """A CTA's weights of a pass."""
        return self.tactic.tiles * self.shape.down_tile_bytes

    @property
    def output_bytes(self) -> int:
        """Outputs of all slots."""
        return self.tactic.max_tokens * self.shape.top_k * self.row_bytes

    @property
    def shared_bytes(self) -> int:
        """Dynamic shared memory: ring, outputs, grouping."""
        return self.tactic.stages * self.stage_bytes + self.output_bytes + Grouping.shared_bytes(self.shape)

    @cute.jit
    def __call__(
        self,
        hidden: cute.Pointer,
        topk_ids: cute.Pointer,
        topk_weights: cute.Pointer,
        down: cute.Pointer,
        combined: cute.Pointer,
        num_tokens: Int32,
        use_pdl: Int32,
        stream: Any,
    ) -> None:
        """`combined[b] = sum over slots of topk_weights[b, slot] * bf16(W2[id] hidden[b, slot])`."""
        self.kernel(hidden, topk_ids, topk_weights, down, combined, num_tokens).launch(
            grid=(self.shape.down_tiles // self.tactic.tiles, 1, 1),
            block=(self.tactic.threads, 1, 1),
            smem=self.shared_bytes,
            stream=stream,
            use_pdl=use_pdl,
        )

    @cute.kernel
    def kernel(
        self,
        hidden: cute.Pointer,
        topk_ids: cute.Pointer,
        topk_weights: cute.Pointer,
        down: cute.Pointer,
        combined: cute.Pointer,
        num_tokens: Int32,
    ) -> None:
        """CTA i computes columns `16 tiles i ...` of every row."""
        tactic = self.tactic
        block, _, _ = cute.arch.block_idx()
        thread, _, _ = cute.arch.thread_idx()
        warp = cute.arch.make_warp_uniform(thread // _WARP)
        ring = cute.arch.get_dyn_smem(Uint8, alignment=128).toint()
        outputs = ring + tactic.stages * self.stage_bytes
        passes = Grouping(self.shape, tactic.threads, outputs + self.output_bytes)
        full = cute.arch.alloc_smem(Uint64, 2 * tactic.stages, alignment=16)
        empty = full + tactic.stages
        if thread == 0:
            for stage in cutlass.range_constexpr(tactic.stages):
                cute.arch.mbarrier_init(full + stage, 1)
                cute.arch.mbarrier_init(empty + stage, tactic.tiles * _WARP)
            cute.arch.mbarrier_init_fence()
        passes.clear(thread)
        place = thread * 16
        while place < num_tokens * (self.shape.top_k * self.row_bytes):
            ops.store_shared_words(outputs + place, (Uint32(_POISON),) * 4)
            place += tactic.threads * 16
        cute.arch.sync_threads()
        num_passes = passes.build(thread, topk_ids.toint(), num_tokens)
        if thread == tactic.threads - _WARP:
            self.copy(ring, full, empty, passes, down.toint(), block, num_passes)
        device.wait_for_dependencies()
        device.release_dependents()
        if warp < tactic.tiles * tactic.pass_warps:
            self.multiply(ring, outputs, full, passes, hidden.toint(), num_passes, thread)
        cute.arch.sync_threads()
        first_column = block * (tactic.tiles * TILE_ROWS)
        self.combine(outputs, topk_weights.toint(), combined.toint(), first_column, num_tokens, thread)

    @cute.jit
    def copy(
        self,
        ring: Int32,
        full: cute.Pointer,
        empty: cute.Pointer,
        passes: cutlass.Constexpr,
        down: Int64,
        block: Int32,
        num_passes: Int32,
    ) -> None:
        """Streams the CTA's rows of every pass's expert through the ring."""
        stage, phase = Int32(0), Int32(1)
        for index in range(num_passes):
            expert = passes[index].expert
            cute.arch.mbarrier_wait(empty + stage, phase)
            cute.arch.mbarrier_arrive_and_expect_tx(full + stage, self.stage_bytes)
            expert_bytes: cutlass.Constexpr = self.shape.down_tiles * self.shape.down_tile_bytes
            source = down + Int64(expert) * expert_bytes + block * self.stage_bytes
            ops.bulk_copy(ring + stage * self.stage_bytes, source, self.stage_bytes, (full + stage).toint())
            stage += 1
            if stage == self.tactic.stages:
                stage, phase = Int32(0), phase ^ 1

    @cute.jit
    def multiply(
        self,
        ring: Int32,
        outputs: Int32,
        full: cute.Pointer,
        passes: cutlass.Constexpr,
        hidden: Int64,
        num_passes: Int32,
        thread: Int32,
    ) -> None:
        """A warp's tile of every `pass_warps`-th pass."""
        tactic, shape = self.tactic, self.shape
        warp, lane = thread // _WARP, thread % _WARP
        tile, first = warp % tactic.tiles, warp // tactic.tiles
        blocks: cutlass.Constexpr = shape.down_blocks
        mine = cute.make_rmem_tensor((8 * blocks,), Uint32)
        found = cute.make_rmem_tensor((4,), Float32)
        for index in range(first, num_passes, tactic.pass_warps):
            this = passes[index]
            load_activations(mine, this, hidden, shape.intermediate, 1, blocks, lane)
            stage, phase = index % tactic.stages, (index // tactic.stages) & 1
            cute.arch.mbarrier_wait(full + stage, phase)
            codes = ring + stage * self.stage_bytes + tile * shape.down_tile_bytes
            block_products(found, mine, codes, blocks, 0, blocks, lane)
            device.release_reads()
            cute.arch.mbarrier_arrive(full + tactic.stages + stage)
            for i in cutlass.range_constexpr(2):
                column = lane % 4 * 2 + i
                if column < this.count:
                    pair = ops.load_shared_word(this.pairs + column * 4)
                    place = outputs + pair * self.row_bytes + (tile * TILE_ROWS + lane // 4) * 2
                    ops.store_shared_bf16(place, found[i])
                    ops.store_shared_bf16(place + TILE_ROWS, found[2 + i])

    @cute.jit
    def combine(
        self,
        outputs: Int32,
        topk_weights: Int64,
        combined: Int64,
        first_column: Int32,
        num_tokens: Int32,
        thread: Int32,
    ) -> None:
        """Weighs the slots' outputs and adds them, slot 0 first; a thread two columns of a token."""
        slots: cutlass.Constexpr = self.shape.top_k
        pairs: cutlass.Constexpr = self.tactic.tiles * TILE_ROWS // 2
        item = thread
        while item < num_tokens * pairs:
            token, pair = item // pairs, item % pairs
            low, high = Float32(0.0), Float32(0.0)
            for quarter in cutlass.range_constexpr(slots // 8):
                words = device.load_words(topk_weights + (Int64(token) * slots + quarter * 8) * 2)
                for i in cutlass.range_constexpr(8):
                    weight = device.unpack_bf16(words[i // 2])[i % 2]
                    slot = token * slots + quarter * 8 + i
                    word = ops.load_shared_unsigned(outputs + slot * self.row_bytes + pair * 4)
                    y_low, y_high = device.unpack_bf16(word)
                    low, high = ops.fma(weight, y_low, low), ops.fma(weight, y_high, high)
            place = (Int64(token) * self.shape.latent + first_column + pair * 2) * 2
            device.store_word(combined + place, device.pack_bf16(low, high))
            item += self.tactic.threads
