"""Down-projection of every chosen expert and a rank's weighted sum over slots: the rest of OC-16, the first of OC-17.

Two CTAs of a cluster share 64 columns of the latent and take passes by turns; each pass belongs to one warp, so that no
sum crosses warps. Its weights are on the way, to registers or to L2, before the dependency wait: which experts they are
was settled two launches back. Outputs, rounded as the contract says, go to the shared memory of the CTA that owns their
column, and are weighted and added in slot order when all slots of all tokens are there: the same bits for every batch
and place.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass import Float32, Int32, Int64, Uint8, Uint32

from specialized_path.kernels.common import device
from specialized_path.kernels.moe_experts import ops
from specialized_path.kernels.moe_experts.grouping import Grouping
from specialized_path.kernels.moe_experts.products import (
    WarpRegisters,
    activation_place,
    clear_sums,
    expert_place,
    load_activations,
    load_weights,
    multiply_loaded,
    tile_place,
)
from specialized_path.kernels.moe_experts.shape import GROUP_K, TILE_ROWS, DownTactic, ExpertShape

_WARP = 32
_CLUSTER = 2
_COLUMNS = TILE_ROWS // _CLUSTER
"""Of the latent, that a CTA owns."""
_ROW_BYTES = _COLUMNS * 2
_POISON = 0x7FFF7FFF
"""Two NaNs: what the output of a slot is that no expert served."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DownKernel:
    """The kernel for one rank's experts and one tactic."""

    shape: ExpertShape
    tactic: DownTactic

    @property
    def output_bytes(self) -> int:
        """Outputs of all slots, of a CTA's columns."""
        return self.tactic.max_tokens * self.shape.top_k * _ROW_BYTES

    @property
    def shared_bytes(self) -> int:
        """Dynamic shared memory: outputs, grouping."""
        return self.output_bytes + Grouping.shared_bytes(self.shape)

    @property
    def code_bytes(self) -> int:
        """Codes of a group of K of an expert, of all rows."""
        return self.shape.latent * GROUP_K // 2

    @cute.jit
    def __call__(
        self,
        hidden: cute.Pointer,
        topk_ids: cute.Pointer,
        topk_weights: cute.Pointer,
        codes: cute.Pointer,
        scales: cute.Pointer,
        combined: cute.Pointer,
        num_tokens: Int32,
        use_pdl: Int32,
        stream: Any,
    ) -> None:
        """`combined[b] = sum over slots of topk_weights[b, slot] * bf16(W2[id] hidden[b, slot])`."""
        self.kernel(hidden, topk_ids, topk_weights, codes, scales, combined, num_tokens).launch(
            grid=(_CLUSTER * self.shape.down_tiles, 1, 1),
            cluster=(_CLUSTER, 1, 1),
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
        codes: cute.Pointer,
        scales: cute.Pointer,
        combined: cute.Pointer,
        num_tokens: Int32,
    ) -> None:
        """CTA `2 i + r` has columns `64 i + 32 r ...` of every row."""
        block, _, _ = cute.arch.block_idx()
        thread, _, _ = cute.arch.thread_idx()
        outputs = cute.arch.get_dyn_smem(Uint8, alignment=128).toint()
        passes = Grouping(self.shape, self.tactic.threads, outputs + self.output_bytes)
        passes.clear(thread)
        place = thread * 16
        while place < num_tokens * (self.shape.top_k * _ROW_BYTES):
            ops.store_shared_words(outputs + place, (Uint32(_POISON),) * 4)
            place += self.tactic.threads * 16
        # A CTA may write to its peer once that one has put its poison there.
        cute.arch.cluster_arrive()
        cute.arch.sync_threads()
        num_passes = passes.build(thread, topk_ids.toint(), num_tokens)
        tile, rank = block // _CLUSTER, block % _CLUSTER
        starts = (codes.toint(), scales.toint(), hidden.toint())
        loads = WarpRegisters(rows=self.shape.latent, depth=self.tactic.depth)
        self.stream(loads, outputs, passes, starts, tile, rank, num_passes, thread)
        cute.arch.cluster_arrive()
        cute.arch.cluster_wait()
        self.combine(outputs, topk_weights.toint(), combined.toint(), block * _COLUMNS, num_tokens, thread)

    @cute.jit
    def stream(
        self,
        loads: cutlass.Constexpr,
        outputs: Int32,
        passes: cutlass.Constexpr,
        starts: tuple[Int64, Int64, Int64],
        tile: Int32,
        rank: Int32,
        num_passes: Int32,
        thread: Int32,
    ) -> None:
        """A warp's passes, one behind the other; the next one's first groups are asked for before this one's end.

        Args:
            loads: the warp's.
            outputs: shared address of the outputs of this CTA's columns.
            passes: the step's grouping.
            starts: addresses of expert 0's codes and scales and of pair 0's hidden values.
            tile: of the latent.
            rank: of the CTA in its cluster.
            num_passes: of the step.
            thread: of the CTA.
        """
        depth: cutlass.Constexpr = self.tactic.depth
        rounds: cutlass.Constexpr = self.shape.down_groups // depth
        stride: cutlass.Constexpr = _CLUSTER * self.tactic.warps
        lane = thread % _WARP
        first = rank + _CLUSTER * cute.arch.make_warp_uniform(thread // _WARP)
        has_pass = first < num_passes
        codes, scales, row = starts
        if has_pass:
            codes, scales, row = self.places(passes, starts, tile, first, lane)
            for group in cutlass.range_constexpr(depth):
                place, scale_place, _ = self.advance(codes, scales, row, group)
                load_weights(loads, group, place, scale_place)
            self.bring_to_l2(starts, passes[first].expert, tile, lane)
        cute.arch.cluster_wait()
        device.wait_for_dependencies()
        device.release_dependents()
        if has_pass:
            for group in cutlass.range_constexpr(depth):
                load_activations(loads, group, row + group * (2 * GROUP_K))
        codes, scales, row = self.advance(codes, scales, row, depth)
        for index in range(first, num_passes, stride):
            following = cutlass.min(index + stride, num_passes - 1)
            has_more = index + stride < num_passes
            if has_more:
                self.bring_to_l2(starts, passes[following].expert, tile, lane)
            clear_sums(loads)
            for part in cutlass.range_constexpr(2):
                if cutlass.const_expr(part == 1):
                    codes, scales, row = self.places(passes, starts, tile, following, lane)
                for _ in range(rounds - 1 if part == 0 else 1):
                    for group in cutlass.range_constexpr(depth):
                        multiply_loaded(loads, group)
                        if part == 0 or has_more:
                            place, scale_place, row_place = self.advance(codes, scales, row, group)
                            load_weights(loads, group, place, scale_place)
                            load_activations(loads, group, row_place)
                    codes, scales, row = self.advance(codes, scales, row, depth)
            self.store(outputs, loads.sums, passes[index], lane)

    @cute.jit
    def bring_to_l2(
        self, starts: tuple[Int64, Int64, Int64], expert: Int32, tile: Int32, lane: Int32
    ) -> None:
        """Asks for this CTA's share of an expert to come to L2: the CTAs of all tiles together ask for the whole."""
        if cutlass.const_expr(self.tactic.to_l2):
            num_codes = self.shape.down_groups * self.code_bytes // self.shape.down_tiles
            num_scales = self.shape.down_groups * TILE_ROWS
            if lane == 0:
                codes, scales = self.expert_starts(starts, expert)
                ops.bring_weights_to_l2(codes + tile * num_codes, num_codes)
                ops.bring_weights_to_l2(scales + tile * num_scales, num_scales)

    def places(
        self, passes: Grouping, starts: tuple[Any, Any, Any], tile: Any, index: Any, lane: Any
    ) -> tuple[Any, Any, Any]:
        """The lane's addresses of a pass's first codes, scales and hidden values."""
        this = passes[index]
        code_away, scale_away = tile_place(lane, tile)
        codes, scales = self.expert_starts(starts, this.expert)
        row = starts[2] + activation_place(this, 1, self.shape.intermediate, lane)
        return codes + Int64(code_away), scales + Int64(scale_away), row

    def expert_starts(self, starts: tuple[Any, Any, Any], expert: Any) -> tuple[Any, Any]:
        """Addresses of an expert's codes and scales."""
        groups = self.shape.held // GROUP_K
        codes = starts[0] + expert_place(expert, groups * self.code_bytes)
        return codes, starts[1] + expert_place(expert, groups * self.shape.latent)

    def advance(self, codes: Any, scales: Any, row: Any, groups: int) -> tuple[Any, Any, Any]:
        """The addresses some groups of K further."""
        return (
            codes + groups * self.code_bytes,
            scales + groups * self.shape.latent,
            row + groups * (2 * GROUP_K),
        )

    @cute.jit
    def store(self, outputs: Int32, sums: cute.Tensor, this: cutlass.Constexpr, lane: Int32) -> None:
        """Rounds a pass's outputs into the shared memory of the CTAs that own their columns."""
        for i in cutlass.range_constexpr(2):
            column = lane % 4 * 2 + i
            if column < this.count:
                pair = ops.load_shared_word(this.pairs + column * 4)
                place = outputs + pair * _ROW_BYTES + lane // 4 * 2
                for owner in cutlass.range_constexpr(_CLUSTER):
                    mine = device.peer_address(place, owner)
                    for at in cutlass.range_constexpr(4):
                        sub, half = 2 * owner + at // 2, at % 2
                        ops.store_peer_bf16(mine + at * 16, sums[4 * sub + 2 * half + i])

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
        pairs: cutlass.Constexpr = _COLUMNS // 2
        item = thread
        while item < num_tokens * pairs:
            token, pair = item // pairs, item % pairs
            low, high = Float32(0.0), Float32(0.0)
            for quarter in cutlass.range_constexpr(slots // 8):
                words = device.load_words(topk_weights + (Int64(token) * slots + quarter * 8) * 2)
                for i in cutlass.range_constexpr(8):
                    weight = device.unpack_bf16(words[i // 2])[i % 2]
                    slot = token * slots + quarter * 8 + i
                    word = ops.load_shared_unsigned(outputs + slot * _ROW_BYTES + pair * 4)
                    y_low, y_high = device.unpack_bf16(word)
                    low, high = ops.fma(weight, y_low, low), ops.fma(weight, y_high, high)
            place = (Int64(token) * self.shape.latent + first_column + pair * 2) * 2
            device.store_word(combined + place, device.pack_bf16(low, high))
            item += self.tactic.threads
