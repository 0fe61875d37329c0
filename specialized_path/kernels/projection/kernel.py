"""Weights streamed once, products by `mma.sync` with the weight as the 16-row operand.

A CTA owns `rows` weight rows and `1 / splits` of K. One warp streams swizzled atoms of weights and activations into a
ring of stages by bulk tensor copies: the weights of the first stages from before the wait, since they depend on no
grid. Consumer warps share rows (`m_warps`), batch (`n_warps`) and each stage's K (`k_warps`) and keep their sums in
registers; at the end the warps' sums meet in shared memory, and those of a cluster's `splits` CTAs through distributed
shared memory, always in the same order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass import BFloat16, Float32, Int32, Int64, Uint8, Uint64
from cutlass.cute.nvgpu import cpasync, warpgroup

from specialized_path.kernels.common import device
from specialized_path.kernels.projection.tactics import ATOM, COLUMNS, Tactic

_WARP = 32
_ATOM_ROW = ATOM * 2
"""Bytes of a row in an atom; the swizzle exchanges its 16-byte parts by the low three bits of the row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectionKernel:
    """The kernel for one weight shape and one tactic."""

    num_outputs: int
    num_inputs: int
    tactic: Tactic

    @property
    def columns_per_store(self) -> int:
        """Columns that `store` gets at once."""
        return 2

    @cute.jit
    def __call__(
        self, x: cute.Pointer, w: cute.Pointer, y: cute.Pointer, num_rows: Int32, use_pdl: Int32, stream: Any
    ) -> None:
        """`y[b, n] = sum over k of x[b, k] w[n, k]`, all contiguous BF16."""
        tactic = self.tactic
        row = (self.num_inputs, 1)
        mX = cute.make_tensor(x, cute.make_layout((num_rows, self.num_inputs), stride=row))
        mW = cute.make_tensor(w, cute.make_layout((self.num_outputs, self.num_inputs), stride=row))
        copy = cpasync.CopyBulkTensorTileG2SOp()
        x_copy, tX = _tensor_copy(copy, mX, tactic.columns)
        w_copy, tW = _tensor_copy(copy, mW, tactic.rows)
        groups = -(-self.num_outputs // tactic.rows)
        self.kernel(x_copy, tX, w_copy, tW, y, num_rows).launch(
            grid=(groups * tactic.splits, 1, 1),
            block=(tactic.threads, 1, 1),
            cluster=(tactic.splits, 1, 1),
            smem=tactic.shared_bytes,
            stream=stream,
            use_pdl=use_pdl,
        )

    @cute.kernel
    def kernel(
        self,
        x_copy: cute.CopyAtom,
        mX: cute.Tensor,
        w_copy: cute.CopyAtom,
        mW: cute.Tensor,
        y: cute.Pointer,
        num_rows: Int32,
    ) -> None:
        """CTA `splits * group + split` computes its part of rows `rows * group ...`."""
        tactic = self.tactic
        block, _, _ = cute.arch.block_idx()
        thread, _, _ = cute.arch.thread_idx()
        warp = cute.arch.make_warp_uniform(thread // _WARP)
        group, split = block // tactic.splits, block % tactic.splits
        loads: cutlass.Constexpr = tactic.loads(self.num_inputs)
        ring = cute.arch.get_dyn_smem(Uint8, alignment=1024)
        full = cute.arch.alloc_smem(Uint64, 2 * tactic.stages, alignment=16)
        empty = full + tactic.stages
        stage_bytes = tactic.atoms * (tactic.rows + tactic.columns) * _ATOM_ROW
        if warp == tactic.consumer_warps:
            cpasync.prefetch_descriptor(w_copy)
            cpasync.prefetch_descriptor(x_copy)
            with cute.arch.elect_one():
                for stage in cutlass.range_constexpr(tactic.stages):
                    cute.arch.mbarrier_init(full + stage, 1)
                    cute.arch.mbarrier_init(empty + stage, tactic.consumer_warps)
                cute.arch.mbarrier_init_fence()
            cute.arch.sync_warp()
        gW = cute.local_tile(mW, (tactic.rows, ATOM), (group, None))
        gX = cute.local_tile(mX, (tactic.columns, ATOM), (0, None))
        tWg, tWs = _partition(w_copy, gW, ring, tactic.rows, tactic, 0)
        tXg, tXs = _partition(x_copy, gX, ring, tactic.columns, tactic, tactic.weight_bytes)
        first_atom = split * (loads * tactic.atoms)
        if warp == tactic.consumer_warps:
            for load in cutlass.range_constexpr(tactic.stages):
                with cute.arch.elect_one():
                    cute.arch.mbarrier_arrive_and_expect_tx(full + load, stage_bytes)
                for atom in cutlass.range_constexpr(tactic.atoms):
                    cute.copy(
                        w_copy,
                        tWg[None, first_atom + load * tactic.atoms + atom],
                        tWs[None, atom, load],
                        tma_bar_ptr=full + load,
                        cache_policy=Int64(device.EVICT_FIRST),
                    )
        cute.arch.sync_threads()
        device.wait_for_dependencies()
        device.release_dependents()
        if warp == tactic.consumer_warps:
            for load in cutlass.range_constexpr(tactic.stages):
                for atom in cutlass.range_constexpr(tactic.atoms):
                    cute.copy(
                        x_copy,
                        tXg[None, first_atom + load * tactic.atoms + atom],
                        tXs[None, atom, load],
                        tma_bar_ptr=full + load,
                    )
            stage, phase = Int32(0), Int32(0)
            for load in range(tactic.stages, loads):
                cute.arch.mbarrier_wait(empty + stage, phase)
                with cute.arch.elect_one():
                    cute.arch.mbarrier_arrive_and_expect_tx(full + stage, stage_bytes)
                for atom in cutlass.range_constexpr(tactic.atoms):
                    cute.copy(
                        w_copy,
                        tWg[None, first_atom + load * tactic.atoms + atom],
                        tWs[None, atom, stage],
                        tma_bar_ptr=full + stage,
                        cache_policy=Int64(device.EVICT_FIRST),
                    )
                    cute.copy(
                        x_copy,
                        tXg[None, first_atom + load * tactic.atoms + atom],
                        tXs[None, atom, stage],
                        tma_bar_ptr=full + stage,
                    )
                stage += 1
                if stage == tactic.stages:
                    stage, phase = Int32(0), phase ^ 1
        else:
            self.multiply(ring.toint(), full, empty, thread)
        cute.arch.sync_threads()
        self.finish(ring.toint(), y.toint(), num_rows, group * tactic.rows, split, thread)

    @cute.jit
    def multiply(self, ring: Int32, full: cute.Pointer, empty: cute.Pointer, thread: Int32) -> None:
        """A consumer warp's products over all stages, and its sums into shared memory."""
        tactic = self.tactic
        warp, lane = thread // _WARP, thread % _WARP
        k_warp, n_warp = warp % tactic.k_warps, warp // tactic.k_warps % tactic.n_warps
        m_warp = warp // (tactic.k_warps * tactic.n_warps)
        first_row, first_column = m_warp * (16 * tactic.tiles), n_warp * (COLUMNS * tactic.warp_n_tiles)
        # What a lane gives `ldmatrix`: of weights rows 0..15 and two parts of 8, of activations 8 or 16 rows and two.
        a_row, a_part = first_row + lane % 16, lane // 16
        b_row, b_part = first_column + lane % 8 + lane // 16 * 8, lane // 8 % 2
        if cutlass.const_expr(tactic.warp_n_tiles == 1):
            b_row = first_column + lane % 8
        sums = cute.make_rmem_tensor((tactic.tiles * tactic.warp_n_tiles * 4,), Float32)
        sums.fill(0.0)
        stage, phase = Int32(0), Int32(0)
        for _ in range(tactic.loads(self.num_inputs)):
            cute.arch.mbarrier_wait(full + stage, phase)
            base = ring + stage * tactic.stage_bytes
            places = []
            for step in cutlass.range_constexpr(tactic.steps):
                part = (step * tactic.k_warps + k_warp) * 2
                w_atom = base + part // 8 * (tactic.rows * _ATOM_ROW)
                x_atom = base + tactic.weight_bytes + part // 8 * (tactic.columns * _ATOM_ROW)
                a_place = w_atom + a_row * _ATOM_ROW + ((part % 8 + a_part) ^ (a_row % 8)) * 16
                b_place = x_atom + b_row * _ATOM_ROW + ((part % 8 + b_part) ^ (b_row % 8)) * 16
                places.append((a_place, b_place))
            _add_products(sums, places, tactic)
            device.release_reads()
            cute.arch.sync_warp()
            if lane == 0:
                cute.arch.mbarrier_arrive(empty + stage)
            stage += 1
            if stage == tactic.stages:
                stage, phase = Int32(0), phase ^ 1
        # The sums take the ring's place: every warp has read every stage.
        cute.arch.barrier(barrier_id=1, number_of_threads=tactic.consumer_warps * _WARP)
        column = ring + k_warp * tactic.sum_bytes + (first_column + lane % 4 * 2) * tactic.sum_column_bytes
        for tile in cutlass.range_constexpr(tactic.tiles):
            row = first_row + tile * 16 + lane // 4
            for n in cutlass.range_constexpr(tactic.warp_n_tiles):
                for i in cutlass.range_constexpr(4):
                    place = column + (n * COLUMNS + i % 2) * tactic.sum_column_bytes + (row + i // 2 * 8) * 4
                    device.store_shared_f32(place, sums[(tile * tactic.warp_n_tiles + n) * 4 + i])

    @cute.jit
    def finish(
        self, ring: Int32, y: Int64, num_rows: Int32, first_row: Int32, split: Int32, thread: Int32
    ) -> None:
        """Adds the warps' sums, then the cluster's, in order, and stores each output once."""
        tactic = self.tactic
        if cutlass.const_expr(tactic.splits > 1):
            pairs = tactic.rows // 2
            item = thread
            while item < num_rows * pairs:
                place = ring + (item // pairs) * tactic.sum_column_bytes + item % pairs * 8
                low, high = _warps_sum(place, tactic)
                device.store_shared_f32(place, low)
                device.store_shared_f32(place + 4, high)
                item += tactic.threads
            device.cluster_barrier()
        items = tactic.rows // tactic.splits // self.columns_per_store
        item = thread
        while item < num_rows * items:
            first = (split * items + item % items) * self.columns_per_store
            place = ring + (item // items) * tactic.sum_column_bytes + first * 4
            words = []
            for pair in cutlass.range_constexpr(self.columns_per_store // 2):
                if cutlass.const_expr(tactic.splits > 1):
                    low, high = _cluster_sum(place + pair * 8, tactic.splits)
                else:
                    low, high = _warps_sum(place + pair * 8, tactic)
                words.append(self.finished(low, high))
            if first_row + first < self.num_outputs:
                self.store(y, item // items, first_row + first, tuple(words))
            item += tactic.threads
        if cutlass.const_expr(tactic.splits > 1):
            # Peers may still read this CTA's sums.
            device.cluster_barrier()

    def finished(self, low: Any, high: Any) -> Any:
        """What `store` gets of two neighbouring columns' FP32 sums: both rounded, in one word."""
        return device.pack_bf16(low, high)

    def store(self, y: Any, row: Any, column: Any, words: tuple[Any, ...]) -> None:
        """Neighbouring columns of a row of activations, as `finished` gives them, go to `y`."""
        device.store_word(y + (Int64(row) * self.num_outputs + column) * 2, words[0])


def _atom_layout(rows: int) -> Any:
    """The swizzled layout of one atom of `rows` rows."""
    atom = warpgroup.make_smem_layout_atom(warpgroup.SmemLayoutAtomKind.K_SW128, BFloat16)
    return cute.tile_to_shape(atom, (rows, ATOM), (0, 1))


def _tensor_copy(copy: Any, tensor: Any, rows: int) -> tuple[Any, Any]:
    """The bulk tensor copy of one atom of `rows` rows, and the tensor of its coordinates."""
    info = cpasync.make_tiled_tma_atom(copy, tensor, _atom_layout(rows), (rows, ATOM))
    return info.atom, info.tma_tensor


def _partition(copy: Any, g: Any, ring: Any, rows: int, tactic: Tactic, offset: int) -> tuple[Any, Any]:
    """Sources by atom, and places in the ring by atom of a stage and stage."""
    layout = _atom_layout(rows)
    place = cute.recast_ptr(ring + offset, layout.inner, dtype=BFloat16)
    stages = cute.make_layout(
        (rows, ATOM, tactic.atoms, tactic.stages), stride=(ATOM, 1, rows * ATOM, tactic.stage_bytes // 2)
    )
    s = cute.make_tensor(place, stages)
    in_shared, in_global = cpasync.tma_partition(
        copy, 0, cute.make_layout(1), cute.group_modes(s, 0, 2), cute.group_modes(g, 0, 2)
    )
    return in_global, in_shared


def _add_products(sums: Any, places: list[tuple[Any, Any]], tactic: Tactic) -> None:
    """Adds a stage's products of the warp's weight tiles and activation tiles to its sums.

    Each stage's products are summed from zero and then added in FP32: the matrix unit truncates what it adds, and over
    all of K that would exceed the contract's 2^-20 of the terms' magnitudes.
    """
    b = [_activations(b_place, tactic) for _, b_place in places]
    for tile in range(tactic.tiles):
        a = [device.load_matrices(a_place + tile * 16 * _ATOM_ROW, 4) for a_place, _ in places]
        for n in range(tactic.warp_n_tiles):
            found = (Float32(0.0),) * 4
            for step in range(len(places)):
                found = device.mma_bf16(found, a[step], b[step][n])
            first = (tile * tactic.warp_n_tiles + n) * 4
            for i in range(4):
                sums[first + i] = sums[first + i] + found[i]


def _activations(place: Any, tactic: Tactic) -> list[tuple[Any, ...]]:
    """A warp's activation tiles of one step."""
    if tactic.warp_n_tiles == 1:
        return [device.load_matrices(place, 2)]
    found: list[tuple[Any, ...]] = []
    for pair in range(tactic.warp_n_tiles // 2):
        words = device.load_matrices(place + pair * 2 * COLUMNS * _ATOM_ROW, 4)
        found += [words[:2], words[2:]]
    return found


def _warps_sum(place: Any, tactic: Tactic) -> tuple[Any, Any]:
    """Two neighbouring rows' sums over the K warps, in their order."""
    low, high = device.load_shared_f32x2(place)
    for k_warp in range(1, tactic.k_warps):
        more_low, more_high = device.load_shared_f32x2(place + k_warp * tactic.sum_bytes)
        low, high = low + more_low, high + more_high
    return low, high


def _cluster_sum(place: Any, splits: int) -> tuple[Any, Any]:
    """Two neighbouring rows' sums over the CTAs of the cluster, in their order."""
    parts = [device.load_peer_f32x2(device.peer_address(place, rank)) for rank in range(splits)]
    low, high = parts[0]
    for more_low, more_high in parts[1:]:
        low, high = low + more_low, high + more_high
    return low, high
