"""OC-10, with the merge before it where there is one: a cluster a head merges, multiplies by W_UV and gates."""

from __future__ import annotations

from typing import Any, Literal

import cuda.bindings.driver as cuda
import cutlass
from cutlass import BFloat16, Float32, Int32, Int64, Uint32, cute

from specialized_path.kernels.mla import ops
from specialized_path.kernels.mla.merge import (
    COLUMN_CTAS,
    COLUMNS,
    KV_RANK,
    ROWS,
    THREADS,
    Cut,
    LatentMerge,
    MergeScales,
    MergeSizes,
    Tile,
    find_tile,
    merge_source,
)

V_DIM = 128
CLUSTER = COLUMN_CTAS
_PART = V_DIM // CLUSTER
_WARPS = THREADS // 32
_K_STEPS = KV_RANK // 16 // _WARPS

Source = Literal["latent", "chunks", "shards"]


class ValueKernel:
    """Gated values [rows, H * 128] from latents, or from what merges to latents.

    Grid: (8 CTAs x heads, tiles of 16 rows). A CTA makes 16 of the head's 128 values; its 16 KiB of W_UV are in
    shared memory before the wait. Latents it reads whole; where it merges first, the eight CTAs of a head are a
    cluster, and each brings 64 of the 512 merged columns, rounded to BF16 as the contract says, to all of them.

    Args:
        source: "latent" takes latents, "chunks" what the attention core leaves, "shards" the latents and LSE
            of each rank of a context-parallel group.
    """

    def __init__(self, *, source: Source) -> None:
        self.source = source
        self.merge = None if source == "latent" else LatentMerge(shards=source == "shards")
        self.pitch = 2 * KV_RANK + 16
        sizes = {
            "merge": self.merge.smem if self.merge is not None else 0,
            "w_uv": _PART * self.pitch,
            "latent": ROWS * self.pitch,
            "sums": _WARPS * ROWS * _PART * 4,
        }
        self.at: dict[str, int] = {}
        self.smem = 0
        for name, size in sizes.items():
            self.at[name] = self.smem
            self.smem += (size + 127) // 128 * 128

    @cute.jit
    def __call__(
        self,
        first: cute.Pointer,
        second: cute.Pointer,
        w_uv: cute.Pointer,
        gate: cute.Pointer,
        seq_lens: cute.Pointer,
        out: cute.Pointer,
        w_uv_head_stride: Int64,
        gate_stride: Int64,
        sizes: MergeSizes,
        scales: MergeScales,
        cut: Cut,
        use_pdl: Int32,
        stream: cuda.CUstream,
    ) -> None:
        self.kernel(
            first,
            second,
            w_uv,
            gate,
            seq_lens,
            out,
            w_uv_head_stride,
            gate_stride,
            sizes,
            scales,
            cut,
        ).launch(
            grid=(CLUSTER * sizes.num_heads, (sizes.num_rows + (ROWS - 1)) // ROWS, 1),
            cluster=(1 if self.merge is None else CLUSTER, 1, 1),
            block=(THREADS, 1, 1),
            smem=self.smem,
            stream=stream,
            use_pdl=use_pdl,
        )

    @cute.kernel
    def kernel(
        self,
        first: cute.Pointer,
        second: cute.Pointer,
        w_uv: cute.Pointer,
        gate: cute.Pointer,
        seq_lens: cute.Pointer,
        out: cute.Pointer,
        w_uv_head_stride: Int64,
        gate_stride: Int64,
        sizes: MergeSizes,
        scales: MergeScales,
        cut: Cut,
    ) -> None:
        tile = find_tile()
        tid, base, head, part = tile.tid, tile.base, tile.head, tile.column_slice
        source = merge_source(first, second, seq_lens, sizes, scales, cut)
        if cutlass.const_expr(self.merge is not None):
            # A CTA may write to its peers once they all run.
            cute.arch.cluster_arrive_relaxed()
        weights = w_uv.toint() + Int64(2) * (w_uv_head_stride * head + part * (_PART * KV_RANK))
        for i in cutlass.range_constexpr(_PART * KV_RANK // 8 // THREADS):
            index = tid + i * THREADS
            row, chunk = index // (KV_RANK // 8), index % (KV_RANK // 8)
            target = base + self.at["w_uv"] + row * self.pitch + chunk * 16
            ops.copy_async_16(target, weights + Int64(16) * index)
        cute.arch.cp_async_commit_group()
        cute.arch.griddepcontrol_wait()
        cute.arch.griddepcontrol_launch_dependents()

        self.bring_latents(source, tile)
        self.multiply(base, tile.lane, tile.warp)
        cute.arch.sync_threads()
        row = tile.first_row + tid // (_PART // 2)
        if tid < ROWS * _PART // 2 and row < sizes.num_rows:
            column = part * _PART + tid % (_PART // 2) * 2
            low, high = self.total(base, tid)
            gate_at = gate.toint() + Int64(2) * (gate_stride * row + head * V_DIM + column)
            word = self.gated(low, high, ops.global_load(gate_at, Uint32))
            if ops.global_load(seq_lens.toint() + Int64(4) * (row // sizes.num_tokens), Int32) <= 0:
                word = Uint32(0)
            at = (Int64(row) * sizes.num_heads + head) * V_DIM + column
            ops.global_store(out.toint() + Int64(2) * at, word)

    @cute.jit
    def copy_latents(self, source: dict[str, Any], tile: Tile) -> None:
        """The tile's rows; the last row once more in place of one that does not exist, and is not stored."""
        for i in cutlass.range_constexpr(ROWS * KV_RANK // 8 // THREADS):
            index = tile.tid + i * THREADS
            slot, chunk = index // (KV_RANK // 8), index % (KV_RANK // 8)
            row = cutlass.min(tile.first_row + slot, source["num_rows"] - 1)
            at = (Int64(row) * source["num_heads"] + tile.head) * KV_RANK + 8 * chunk
            target = tile.base + self.at["latent"] + slot * self.pitch + chunk * 16
            ops.copy_async_16(target, source["latents"] + Int64(2) * at)
        cute.arch.cp_async_commit_group()
        cute.arch.cp_async_wait_group(0)
        cute.arch.sync_threads()

    def bring_latents(self, source: dict[str, Any], tile: Tile) -> None:
        """All columns of the tile's rows, and the weights, are in shared memory behind it.

        Where it merges, this CTA makes its columns, and meets the cluster when all have all columns.
        """
        if self.merge is None:
            self.copy_latents(source, tile)
            return
        merging = tile._replace(base=tile.base + self.at["merge"])
        self.merge.weigh(source, merging)
        cute.arch.sync_threads()
        words = self.merge.merged(source, merging, tile.column_slice * COLUMNS)
        cute.arch.cluster_wait()
        mine = tile.base + self.at["latent"] + (tile.tid // 16) * self.pitch
        mine += tile.column_slice * (2 * COLUMNS) + (tile.tid % 16) * 8
        for peer in range(CLUSTER):
            ops.cluster_store(ops.map_to_cta(mine, Int32(peer)), words[0], words[1])
        cute.arch.cp_async_wait_group(0)
        cute.arch.cluster_arrive()
        cute.arch.cluster_wait()

    @cute.jit
    def multiply(self, base: Int32, lane: Int32, warp: Int32) -> None:
        """This warp's eighth of K of the CTA's 16 values, to shared memory."""
        acc = cute.make_rmem_tensor((8,), Float32)
        for i in cutlass.range_constexpr(8):
            acc[i] = Float32(0.0)
        first_k = warp * (_K_STEPS * 32)
        a_at = base + self.at["latent"] + (lane % 16) * self.pitch + (lane // 16) * 16 + first_k
        w_at = base + self.at["w_uv"] + ((lane // 16) * 8 + lane % 8) * self.pitch
        w_at += (lane // 8 % 2) * 16 + first_k
        for step in cutlass.range_constexpr(_K_STEPS):
            a = ops.ldmatrix_x4(a_at + step * 32)
            r = ops.ldmatrix_x4(w_at + step * 32)
            for n in cutlass.range_constexpr(2):
                b = (r[2 * n], r[2 * n + 1])
                result = ops.mma_16816(a, b, [acc[4 * n + j] for j in range(4)], BFloat16)
                for j in cutlass.range_constexpr(4):
                    acc[4 * n + j] = result[j]
        at = base + self.at["sums"] + ((warp * ROWS + lane // 4) * _PART + (lane % 4) * 2) * 4
        for n in cutlass.range_constexpr(2):
            ops.shared_store(at + n * 32, acc[4 * n], acc[4 * n + 1])
            ops.shared_store(at + n * 32 + 8 * _PART * 4, acc[4 * n + 2], acc[4 * n + 3])

    @cute.jit
    def total(self, base: Int32, tid: Int32) -> tuple[Any, Any]:
        """The sum over warps of two neighbouring values, in warp order."""
        low, high = Float32(0.0), Float32(0.0)
        for warp in cutlass.range_constexpr(_WARPS):
            at = base + self.at["sums"] + (warp * ROWS * _PART + 2 * tid) * 4
            first, second = ops.shared_load(at, Float32, 2)
            low, high = low + first, high + second
        return low, high

    def gated(self, low: Float32, high: Float32, gate: Uint32) -> Uint32:
        """Both values rounded, times the sigmoid of their gates, rounded again."""
        values = ops.unpack_x2(ops.pack_x2(low, high, BFloat16), BFloat16)
        gates = ops.unpack_x2(gate, BFloat16)
        open_ = [ops.divide(Float32(1.0), Float32(1.0) + ops.exp2(g * Float32(-ops.LOG2_E))) for g in gates]
        return ops.pack_x2(values[0] * open_[0], values[1] * open_[1], BFloat16)
