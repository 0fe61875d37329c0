"""OC-8 after its projection: both norms, q_b, absorption of W_UK and the cache insert, one cluster a head."""

from __future__ import annotations

import cuda.bindings.driver as cuda
import cutlass
from cutlass import BFloat16, Float32, Int32, Int64, Uint32, cute

from specialized_path.kernels.mla import ops

Q_RANK, KV_RANK, NOPE, ROPE = 1536, 512, 128, 64
HEAD = NOPE + ROPE
ROW = KV_RANK + ROPE
CLUSTER = 8
"""CTAs of a head: each makes 24 of its 192 query dimensions, then 64 of the 512 absorbed ones."""
_WARPS = 8
THREADS = 32 * (_WARPS + 1)
_PART, _COLUMNS = HEAD // CLUSTER, KV_RANK // CLUSTER
_K_STEPS = Q_RANK // 16 // _WARPS


class QueryKernel:
    """Query rows [rows, H, 576] and cache rows from the projection's rows.

    Grid: (8 CTAs x heads, groups of rows), a cluster a head and group. Eight warps multiply, the ninth normalises
    and stores the cache rows. Weights are in shared memory before the wait and stay there while the group's rows
    go by, `16 * m_tiles` at a time. The nope part crosses the cluster through distributed shared memory, rounded
    to BF16 as the contract says.

    Args:
        fp8: query and cache are e4m3, each over its own scale; otherwise bfloat16.
        m_tiles: 1 or 2.
    """

    def __init__(self, *, fp8: bool, m_tiles: int) -> None:
        self.fp8, self.m_tiles, self.rows = fp8, m_tiles, 16 * m_tiles
        self.a_pitch, self.w_uk_pitch, self.nope_pitch = 2 * Q_RANK + 16, 2 * _COLUMNS + 16, 2 * NOPE + 16
        sizes = {
            "w_q": _PART * self.a_pitch,
            "w_uk": NOPE * self.w_uk_pitch,
            "norm": 2 * Q_RANK,
            "a": self.rows * self.a_pitch,
            "sums": _WARPS * self.rows * _PART * 4,
            "nope": 2 * self.rows * self.nope_pitch if m_tiles == 1 else self.rows * self.nope_pitch,
        }
        self.at: dict[str, int] = {}
        self.smem = 0
        for name, size in sizes.items():
            self.at[name] = self.smem
            self.smem += (size + 127) // 128 * 128

    @cute.jit
    def __call__(
        self,
        projected: cute.Pointer,
        q_a_norm: cute.Pointer,
        kv_a_norm: cute.Pointer,
        w_q_b: cute.Pointer,
        w_uk: cute.Pointer,
        slot_mapping: cute.Pointer,
        query: cute.Pointer,
        kv_cache: cute.Pointer,
        projected_stride: Int64,
        w_uk_head_stride: Int64,
        page_stride: Int64,
        row_stride: Int64,
        page_size: Int32,
        num_rows: Int32,
        num_heads: Int32,
        max_groups: Int32,
        eps: Float32,
        q_scale: Float32,
        k_scale: Float32,
        use_pdl: Int32,
        stream: cuda.CUstream,
    ) -> None:
        self.kernel(
            projected,
            q_a_norm,
            kv_a_norm,
            w_q_b,
            w_uk,
            slot_mapping,
            query,
            kv_cache,
            projected_stride,
            w_uk_head_stride,
            page_stride,
            row_stride,
            page_size,
            num_rows,
            num_heads,
            eps,
            q_scale,
            k_scale,
        ).launch(
            grid=(CLUSTER * num_heads, cutlass.min((num_rows + self.rows - 1) // self.rows, max_groups), 1),
            cluster=(CLUSTER, 1, 1),
            block=(THREADS, 1, 1),
            smem=self.smem,
            stream=stream,
            use_pdl=use_pdl,
        )

    @cute.kernel
    def kernel(
        self,
        projected: cute.Pointer,
        q_a_norm: cute.Pointer,
        kv_a_norm: cute.Pointer,
        w_q_b: cute.Pointer,
        w_uk: cute.Pointer,
        slot_mapping: cute.Pointer,
        query: cute.Pointer,
        kv_cache: cute.Pointer,
        projected_stride: Int64,
        w_uk_head_stride: Int64,
        page_stride: Int64,
        row_stride: Int64,
        page_size: Int32,
        num_rows: Int32,
        num_heads: Int32,
        eps: Float32,
        q_scale: Float32,
        k_scale: Float32,
    ) -> None:
        tid, _, _ = cute.arch.thread_idx()
        place, group, _ = cute.arch.block_idx()
        _, num_groups, _ = cute.arch.grid_dim()
        lane, warp = tid % 32, cute.arch.make_warp_uniform(tid // 32)
        head, part = place // CLUSTER, place % CLUSTER
        base = cute.arch.get_dyn_smem(cutlass.Int8, alignment=128).toint()
        # A CTA may write to its peers once they all run.
        cute.arch.cluster_arrive_relaxed()
        if warp == _WARPS:
            cute.arch.griddepcontrol_wait()
            cute.arch.griddepcontrol_launch_dependents()
            ctas = CLUSTER * num_heads
            for row in cutlass.range(place + group * ctas, num_rows, num_groups * ctas, unroll=1):
                self.insert(
                    projected.toint() + Int64(2) * (projected_stride * row + Q_RANK),
                    kv_a_norm.toint(),
                    ops.global_load_int64(slot_mapping.toint() + Int64(8) * row),
                    kv_cache.toint(),
                    page_size,
                    page_stride,
                    row_stride,
                    eps,
                    k_scale,
                    lane,
                )
        else:
            # The last threads copy the last chunk once more, which spares a branch.
            chunk = cutlass.min(tid, Q_RANK // 8 - 1)
            ops.copy_async_16(base + self.at["norm"] + chunk * 16, q_a_norm.toint() + Int64(16) * chunk)
            cute.arch.cp_async_commit_group()
            self.stage_weights(
                w_q_b.toint() + Int64(2 * Q_RANK) * (head * HEAD + part * _PART),
                w_uk.toint() + Int64(2) * (w_uk_head_stride * head + part * _COLUMNS),
                base,
                tid,
            )
            cute.arch.cp_async_commit_group()
            cute.arch.griddepcontrol_wait()
            cute.arch.griddepcontrol_launch_dependents()
            cute.arch.cp_async_wait_group(1)
            self.warps_barrier()
            buffer, start = Int32(0), group * self.rows
            for first in cutlass.range(start, num_rows, num_groups * self.rows, unroll=1):
                if first > start:
                    # The sums and the rows of the round before are still being read.
                    self.warps_barrier()
                for i in cutlass.range_constexpr(2 * self.m_tiles):
                    slot = warp + _WARPS * i
                    self.normalise(
                        projected.toint() + Int64(2) * projected_stride * (first + slot),
                        base + self.at["a"] + slot * self.a_pitch,
                        first + slot < num_rows,
                        base + self.at["norm"],
                        eps,
                        lane,
                    )
                cute.arch.cp_async_wait_group(0)
                self.warps_barrier()
                self.up_project(base, lane, warp)
                self.warps_barrier()
                if first == start:
                    cute.arch.cluster_wait()
                out = query.toint() + Int64(1 if self.fp8 else 2) * ROW * (Int64(first) * num_heads + head)
                self.hand_over(base, buffer, out, num_rows - first, num_heads, part, q_scale, tid)
                cute.arch.cluster_arrive()
                cute.arch.cluster_wait()
                self.absorb(base, buffer, out, num_rows - first, num_heads, part, q_scale, lane, warp)
                if cutlass.const_expr(self.m_tiles == 1):
                    buffer ^= 1
                else:
                    # One buffer only: peers may write the next rows when all have read these.
                    cute.arch.cluster_arrive()
                    cute.arch.cluster_wait()

    def warps_barrier(self) -> None:
        """The multiplying warps of the CTA meet."""
        cute.arch.barrier(barrier_id=1, number_of_threads=32 * _WARPS)

    @cute.jit
    def stage_weights(self, w_q: Int64, w_uk: Int64, base: Int32, tid: Int32) -> None:
        """Start the copies of this CTA's 24 rows of q_b and 64 columns of W_UK."""
        for i in cutlass.range_constexpr(_PART * Q_RANK // 8 // (32 * _WARPS)):
            index = tid + i * 32 * _WARPS
            row, chunk = index // (Q_RANK // 8), index % (Q_RANK // 8)
            ops.copy_async_16(
                base + self.at["w_q"] + row * self.a_pitch + chunk * 16, w_q + Int64(index) * 16
            )
        for i in cutlass.range_constexpr(NOPE * _COLUMNS // 8 // (32 * _WARPS)):
            index = tid + i * 32 * _WARPS
            row, chunk = index // (_COLUMNS // 8), index % (_COLUMNS // 8)
            target = base + self.at["w_uk"] + row * self.w_uk_pitch + chunk * 16
            ops.copy_async_16(target, w_uk + Int64(2 * KV_RANK) * row + chunk * 16)

    @cute.jit
    def normalise(
        self, source: Int64, target: Int32, exists: cutlass.Boolean, norm: Int32, eps: Float32, lane: Int32
    ) -> None:
        """One row of q_a, normed and rounded, to shared memory; zeros for a row that does not exist."""
        words = cute.make_rmem_tensor((24,), Uint32)
        for i in cutlass.range_constexpr(24):
            words[i] = Uint32(0)
        if exists:
            for i in cutlass.range_constexpr(6):
                loaded = ops.global_load(source + Int64(16) * (lane + 32 * i), Uint32, 4)
                for j in cutlass.range_constexpr(4):
                    words[4 * i + j] = loaded[j]
        square = Float32(0.0)
        for i in cutlass.range_constexpr(24):
            low, high = ops.unpack_x2(words[i], BFloat16)
            square += low * low
            square += high * high
        for step in cutlass.range_constexpr(5):
            square += cute.arch.shuffle_sync_bfly(square, 16 >> step)
        factor = ops.rsqrt(square * Float32(1.0 / Q_RANK) + eps)
        for i in cutlass.range_constexpr(6):
            weights = ops.shared_load(norm + (lane + 32 * i) * 16, Uint32, 4)
            normed = [ops.scale_pair(words[4 * i + j], weights[j], factor) for j in range(4)]
            ops.shared_store(target + (lane + 32 * i) * 16, *normed)

    @cute.jit
    def up_project(self, base: Int32, lane: Int32, warp: Int32) -> None:
        """This warp's eighth of K of the CTA's 24 query dimensions, to shared memory."""
        acc = cute.make_rmem_tensor((self.m_tiles * 3 * 4,), Float32)
        for i in cutlass.range_constexpr(self.m_tiles * 3 * 4):
            acc[i] = Float32(0.0)
        first_k = warp * (_K_STEPS * 32)
        a_at = base + self.at["a"] + (lane % 16) * self.a_pitch + (lane // 16) * 16 + first_k
        w_at = base + self.at["w_q"] + first_k
        pair_at = w_at + ((lane // 16) * 8 + lane % 8) * self.a_pitch + (lane // 8 % 2) * 16
        last_at = w_at + (16 + lane % 8) * self.a_pitch + (lane // 8) * 16
        for step in cutlass.range_constexpr(0, _K_STEPS, 2):
            last = ops.ldmatrix_x4(last_at + step * 32)
            for k in cutlass.range_constexpr(2):
                r = ops.ldmatrix_x4(pair_at + (step + k) * 32)
                fragments = [(r[0], r[1]), (r[2], r[3]), (last[2 * k], last[2 * k + 1])]
                for m in cutlass.range_constexpr(self.m_tiles):
                    a = ops.ldmatrix_x4(a_at + m * 16 * self.a_pitch + (step + k) * 32)
                    for n in cutlass.range_constexpr(3):
                        i = (m * 3 + n) * 4
                        result = ops.mma_16816(a, fragments[n], [acc[i + j] for j in range(4)], BFloat16)
                        for j in cutlass.range_constexpr(4):
                            acc[i + j] = result[j]
        at = base + self.at["sums"] + ((warp * self.rows + lane // 4) * _PART + (lane % 4) * 2) * 4
        for m in cutlass.range_constexpr(self.m_tiles):
            for n in cutlass.range_constexpr(3):
                i, there = (m * 3 + n) * 4, at + (m * 16 * _PART + n * 8) * 4
                ops.shared_store(there, acc[i], acc[i + 1])
                ops.shared_store(there + 8 * _PART * 4, acc[i + 2], acc[i + 3])

    @cute.jit
    def hand_over(
        self,
        base: Int32,
        buffer: Int32,
        out: Int64,
        rows_left: Int32,
        num_heads: Int32,
        part: Int32,
        q_scale: Float32,
        tid: Int32,
    ) -> None:
        """Sum over warps, round; the nope part goes to all CTAs of the cluster, the rope part to the query."""
        pairs = _PART // 2
        for index in cutlass.range(tid, self.rows * pairs, 32 * _WARPS, unroll=1):
            row, dim = index // pairs, index % pairs * 2
            low, high = Float32(0.0), Float32(0.0)
            for warp in cutlass.range_constexpr(_WARPS):
                at = base + self.at["sums"] + ((warp * self.rows + row) * _PART + dim) * 4
                first, second = ops.shared_load(at, Float32, 2)
                low, high = low + first, high + second
            word = ops.pack_x2(low, high, BFloat16)
            dim += part * _PART
            if dim < NOPE:
                mine = base + self.at["nope"] + (buffer * self.rows + row) * self.nope_pitch + dim * 2
                for peer in cutlass.range_constexpr(CLUSTER):
                    ops.cluster_store(ops.map_to_cta(mine, Int32(peer)), word)
            elif row < rows_left:
                self.store_query(out, row, num_heads, KV_RANK + dim - NOPE, word, q_scale)

    @cute.jit
    def absorb(
        self,
        base: Int32,
        buffer: Int32,
        out: Int64,
        rows_left: Int32,
        num_heads: Int32,
        part: Int32,
        q_scale: Float32,
        lane: Int32,
        warp: Int32,
    ) -> None:
        """The head's nope part times W_UK: 8 of the CTA's 64 columns a warp."""
        acc = cute.make_rmem_tensor((self.m_tiles * 4,), Float32)
        for i in cutlass.range_constexpr(self.m_tiles * 4):
            acc[i] = Float32(0.0)
        a_at = base + self.at["nope"] + (buffer * self.rows + lane % 16) * self.nope_pitch + (lane // 16) * 16
        w_at = base + self.at["w_uk"] + lane * self.w_uk_pitch + warp * 16
        for step in cutlass.range_constexpr(0, NOPE // 16, 2):
            r = ops.ldmatrix_x4(w_at + step * 16 * self.w_uk_pitch, trans=True)
            for k in cutlass.range_constexpr(2):
                for m in cutlass.range_constexpr(self.m_tiles):
                    a = ops.ldmatrix_x4(a_at + m * 16 * self.nope_pitch + (step + k) * 32)
                    b = (r[2 * k], r[2 * k + 1])
                    result = ops.mma_16816(a, b, [acc[4 * m + j] for j in range(4)], BFloat16)
                    for j in cutlass.range_constexpr(4):
                        acc[4 * m + j] = result[j]
        column = part * _COLUMNS + warp * 8 + (lane % 4) * 2
        for m in cutlass.range_constexpr(self.m_tiles):
            for half in cutlass.range_constexpr(2):
                row = 16 * m + 8 * half + lane // 4
                if row < rows_left:
                    word = ops.pack_x2(acc[4 * m + 2 * half], acc[4 * m + 2 * half + 1], BFloat16)
                    self.store_query(out, row, num_heads, column, word, q_scale)

    @cute.jit
    def store_query(
        self, out: Int64, row: Int32, num_heads: Int32, column: Int32, word: Uint32, q_scale: Float32
    ) -> None:
        """Two neighbouring query elements; for e4m3, the rounded bfloat16 is what is quantised."""
        index = Int64(row) * num_heads * ROW + column
        if cutlass.const_expr(self.fp8):
            low, high = ops.unpack_x2(word, BFloat16)
            ops.store_e4m3x2(out + index, ops.divide(low, q_scale), ops.divide(high, q_scale))
        else:
            ops.global_store(out + Int64(2) * index, word)

    @cute.jit
    def insert(
        self,
        source: Int64,
        kv_a_norm: Int64,
        slot: Int64,
        cache: Int64,
        page_size: Int32,
        page_stride: Int64,
        row_stride: Int64,
        eps: Float32,
        k_scale: Float32,
        lane: Int32,
    ) -> None:
        """One row: the normed latent and the rope part to its slot; a negative slot is left alone."""
        if slot >= 0:
            page = Int32(slot) // page_size
            target = cache + Int64(page) * page_stride
            target += Int64(Int32(slot) - page * page_size) * row_stride
            words = [ops.global_load(source + Int64(16) * (lane + 32 * i), Uint32, 4) for i in range(2)]
            norm = [ops.weight_load(kv_a_norm + Int64(16) * (lane + 32 * i), Uint32, 4) for i in range(2)]
            square = Float32(0.0)
            for i in cutlass.range_constexpr(8):
                low, high = ops.unpack_x2(words[i // 4][i % 4], BFloat16)
                square += low * low
                square += high * high
            for step in cutlass.range_constexpr(5):
                square += cute.arch.shuffle_sync_bfly(square, 16 >> step)
            factor = ops.rsqrt(square * Float32(1.0 / KV_RANK) + eps)
            for i in cutlass.range_constexpr(2):
                normed = [ops.scale_pair(words[i][j], norm[i][j], factor) for j in range(4)]
                self.store_cache(target, lane + 32 * i, normed, k_scale)
            if lane < ROPE // 8:
                rope = ops.global_load(source + Int64(2 * KV_RANK) + Int64(16) * lane, Uint32, 4)
                self.store_cache(target, KV_RANK // 8 + lane, list(rope), k_scale)

    def store_cache(self, target: Int64, chunk: Int32, words: list, k_scale: Float32) -> None:
        """Eight neighbouring elements of a cache row."""
        if not self.fp8:
            ops.global_store(target + Int64(16) * chunk, *words)
            return
        values = [ops.divide(value, k_scale) for word in words for value in ops.unpack_x2(word, BFloat16)]
        packed = ops.pack_e4m3x4(values[:4]), ops.pack_e4m3x4(values[4:])
        ops.global_store(target + Int64(8) * chunk, *packed)
