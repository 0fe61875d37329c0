"""Down-projection of every chosen expert, spread over all SMs: the rest of OC-16, without the sum over slots.

An alternative to `down`, whose sum over slots `moe_latent.combine` takes over. A unit is a pass and 64 columns of the
latent, all of K; units divide evenly among the CTAs, neighbouring columns of a pass behind each other, and among a
CTA's warps by turns. Outputs are rounded as the contract says and lie in global memory by pair of token and slot: the
same values as in `down`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass import Int32, Int64, Uint8

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
from specialized_path.kernels.moe_experts.shape import GROUP_K, STEP_K, TILE_BYTES, TILE_ROWS, ExpertShape
from specialized_path.kernels.moe_experts.shares import SpreadTactic, first_unit

_WARP = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class SpreadDownKernel:
    """The kernel for one rank's experts and one tactic."""

    shape: ExpertShape
    tactic: SpreadTactic

    @property
    def code_bytes(self) -> int:
        """Codes of a group of K of an expert, of all rows."""
        return self.shape.latent * GROUP_K // 2

    @cute.jit
    def __call__(
        self,
        hidden: cute.Pointer,
        topk_ids: cute.Pointer,
        codes: cute.Pointer,
        scales: cute.Pointer,
        outputs: cute.Pointer,
        num_tokens: Int32,
        num_ctas: Int32,
        use_pdl: Int32,
        stream: Any,
    ) -> None:
        """`outputs[b, slot] = bf16(W2[id] hidden[b, slot])`; a slot whose id is no expert's is left as it is."""
        self.kernel(hidden, topk_ids, codes, scales, outputs, num_tokens).launch(
            grid=(num_ctas, 1, 1),
            block=(self.tactic.threads, 1, 1),
            smem=Grouping.shared_bytes(self.shape),
            stream=stream,
            use_pdl=use_pdl,
        )

    @cute.kernel
    def kernel(
        self,
        hidden: cute.Pointer,
        topk_ids: cute.Pointer,
        codes: cute.Pointer,
        scales: cute.Pointer,
        outputs: cute.Pointer,
        num_tokens: Int32,
    ) -> None:
        """CTA i of n takes units `i / n ... (i + 1) / n` of all passes' units in order."""
        block, _, _ = cute.arch.block_idx()
        num_ctas, _, _ = cute.arch.grid_dim()
        thread, _, _ = cute.arch.thread_idx()
        passes = Grouping(
            self.shape, self.tactic.threads, cute.arch.get_dyn_smem(Uint8, alignment=128).toint()
        )
        passes.clear(thread)
        cute.arch.sync_threads()
        num_units = passes.build(thread, topk_ids.toint(), num_tokens) * self.shape.down_tiles
        first = first_unit(block, num_ctas, num_units) + cute.arch.make_warp_uniform(thread // _WARP)
        last = first_unit(block + 1, num_ctas, num_units)
        starts = (codes.toint(), scales.toint(), hidden.toint())
        loads = WarpRegisters(rows=self.shape.latent, depth=self.tactic.depth)
        self.stream(loads, passes, starts, outputs.toint(), first, last, thread % _WARP)

    @cute.jit
    def stream(
        self,
        loads: cutlass.Constexpr,
        passes: cutlass.Constexpr,
        starts: tuple[Int64, Int64, Int64],
        outputs: Int64,
        first: Int32,
        last: Int32,
        lane: Int32,
    ) -> None:
        """A warp's units, one behind the other; the next one's first groups are asked for before this one's end.

        Args:
            loads: the warp's.
            passes: the step's grouping.
            starts: addresses of expert 0's codes and scales and of pair 0's hidden values.
            outputs: address of pair 0's outputs.
            first: the warp's first unit.
            last: one behind the CTA's last.
            lane: of the warp.
        """
        depth: cutlass.Constexpr = self.tactic.depth
        rounds: cutlass.Constexpr = self.shape.down_groups // depth
        stride: cutlass.Constexpr = self.tactic.warps
        has_unit = first < last
        codes, scales, row = starts
        if has_unit:
            codes, scales, row = self.places(passes, starts, first, lane)
            for group in cutlass.range_constexpr(depth):
                place, scale_place, _ = self.advance(codes, scales, row, group)
                load_weights(loads, group, place, scale_place)
            self.bring_to_l2(passes, starts, first, lane)
        device.wait_for_dependencies()
        device.release_dependents()
        if has_unit:
            for group in cutlass.range_constexpr(depth):
                load_activations(loads, group, row + group * (2 * GROUP_K))
        codes, scales, row = self.advance(codes, scales, row, depth)
        for unit in range(first, last, stride):
            following = cutlass.min(unit + stride, last - 1)
            has_more = unit + stride < last
            if has_more:
                self.bring_to_l2(passes, starts, following, lane)
            clear_sums(loads)
            for part in cutlass.range_constexpr(2):
                if cutlass.const_expr(part == 1):
                    codes, scales, row = self.places(passes, starts, following, lane)
                for _ in range(rounds - 1 if part == 0 else 1):
                    for group in cutlass.range_constexpr(depth):
                        multiply_loaded(loads, group)
                        if part == 0 or has_more:
                            place, scale_place, row_place = self.advance(codes, scales, row, group)
                            load_weights(loads, group, place, scale_place)
                            load_activations(loads, group, row_place)
                    codes, scales, row = self.advance(codes, scales, row, depth)
            self.store(outputs, loads.sums, passes[unit // self.shape.down_tiles], unit, lane)

    @cute.jit
    def bring_to_l2(
        self, passes: cutlass.Constexpr, starts: tuple[Int64, Int64, Int64], unit: Int32, lane: Int32
    ) -> None:
        """Asks for a unit to come to L2, a tile a lane, and the scales of a group of K."""
        if cutlass.const_expr(self.tactic.to_l2):
            shape = self.shape
            codes, scales = self.expert_starts(starts, passes[unit // shape.down_tiles].expert)
            tile = unit % shape.down_tiles
            if lane < shape.down_groups * (GROUP_K // STEP_K):
                away = lane * (shape.latent * STEP_K // 2) + tile * TILE_BYTES
                ops.bring_weights_to_l2(codes + Int64(away), TILE_BYTES)
            if lane < shape.down_groups:
                ops.bring_weights_to_l2(scales + Int64(lane * shape.latent + tile * TILE_ROWS), TILE_ROWS)

    def places(
        self, passes: Grouping, starts: tuple[Any, Any, Any], unit: Any, lane: Any
    ) -> tuple[Any, Any, Any]:
        """The lane's addresses of a unit's first codes, scales and hidden values."""
        this = passes[unit // self.shape.down_tiles]
        code_away, scale_away = tile_place(lane, unit % self.shape.down_tiles)
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
    def store(
        self, outputs: Int64, sums: cute.Tensor, this: cutlass.Constexpr, unit: Int32, lane: Int32
    ) -> None:
        """Rounds a unit's outputs and stores them, two neighbours a word: lanes 4 apart have neighbouring rows.

        Of two such lanes the first stores rows g and g + 1 of sixteen, the second the rows eight further.
        """
        is_first = lane // 4 % 2 == 0
        row = unit % self.shape.down_tiles * TILE_ROWS + lane // 8 * 2 + (lane // 4 % 2) * 8
        for i in cutlass.range_constexpr(2):
            column = lane % 4 * 2 + i
            words = []
            for sub in cutlass.range_constexpr(4):
                near, far = sums[4 * sub + i], sums[4 * sub + 2 + i]
                other = cute.arch.shuffle_sync_bfly(device.select(is_first, far, near), offset=4)
                low, high = device.select(is_first, near, other), device.select(is_first, other, far)
                words.append(device.pack_bf16(low, high))
            if column < this.count:
                pair = ops.load_shared_word(this.pairs + column * 4)
                place = outputs + (Int64(pair) * self.shape.latent + row) * 2
                for sub in cutlass.range_constexpr(4):
                    device.store_word(place + sub * 32, words[sub])
