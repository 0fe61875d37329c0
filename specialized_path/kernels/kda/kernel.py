"""KDA decode, OC-4 to OC-7, in one launch: short convolution, gates, L2 norms, delta rule, gated output norm.

A cluster serves one request and head; each of its CTAs keeps some rows of the state in registers from before the
dependency wait until they are stored. Everything that does not depend on the projection (weights, slots, states,
windows) is loaded before `griddepcontrol.wait`.

The order of every sum is the same for all cluster sizes and token counts, and multiply-adds are spelled out, so all
schedules give the same bits, and token t of a verify step those of t+1 single steps.

Sources: Kimi team, "Kimi Linear" (KDA); the single pass over the state, o = S'q + u(k.q), as in FlashInfer's KDA
decode (PR 4417).
"""

from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass import BFloat16, Boolean, Float32, Int32, Int64, Uint32, const_expr
from cutlass.memory import SmemAllocator

from specialized_path.kernels.common.device import release_dependents, wait_for_dependencies
from specialized_path.kernels.kda.device import LOG2E, at, exp2, sigmoid
from specialized_path.kernels.kda.geometry import DIM, TAPS, THREADS, WARPS
from specialized_path.kernels.kda.preparation import Preparation
from specialized_path.kernels.kda.recurrence import Recurrence


class KdaDecode(Preparation, Recurrence):
    """One compiled schedule; `__call__` is its host entry."""

    @cute.jit
    def __call__(
        self,
        projected: cute.Pointer,
        conv_weight: cute.Pointer,
        w_f_b: cute.Pointer,
        A_log: cute.Pointer,
        dt_bias: cute.Pointer,
        o_norm_weight: cute.Pointer,
        conv_state: cute.Pointer,
        state: cute.Pointer,
        slots: cute.Pointer,
        num_accepted_tokens: cute.Pointer,
        y: cute.Pointer,
        projected_stride: Int64,
        conv_slot_stride: Int64,
        conv_channel_stride: Int64,
        conv_width_stride: Int64,
        state_slot_stride: Int64,
        state_head_stride: Int64,
        slots_request_stride: Int64,
        slots_token_stride: Int64,
        slots_columns: Int32,
        accepted_stride: Int64,
        y_stride: Int64,
        num_reqs: Int32,
        use_pdl: Int32,
        stream: Any,
    ) -> None:
        self.kernel(
            projected,
            conv_weight,
            w_f_b,
            A_log,
            dt_bias,
            o_norm_weight,
            conv_state,
            state,
            slots,
            num_accepted_tokens,
            y,
            projected_stride,
            conv_slot_stride,
            conv_channel_stride,
            conv_width_stride,
            state_slot_stride,
            state_head_stride,
            slots_request_stride,
            slots_token_stride,
            slots_columns,
            accepted_stride,
            y_stride,
            num_reqs,
        ).launch(
            grid=[self.cluster, self.heads, cute.ceil_div(num_reqs, self.requests)],
            block=[THREADS, 1, 1],
            cluster=[self.cluster, 1, 1] if const_expr(self.cluster > 1) else None,
            min_blocks_per_mp=self.min_blocks,
            # Given outright: left open, the DSL asks the driver, which a cross-compiling machine does not have.
            preferred_smem_carveout=50,
            stream=stream,
            use_pdl=use_pdl,
        )

    @cute.kernel
    def kernel(
        self,
        projected: cute.Pointer,
        conv_weight: cute.Pointer,
        w_f_b: cute.Pointer,
        A_log: cute.Pointer,
        dt_bias: cute.Pointer,
        o_norm_weight: cute.Pointer,
        conv_state: cute.Pointer,
        state: cute.Pointer,
        slots: cute.Pointer,
        num_accepted_tokens: cute.Pointer,
        y: cute.Pointer,
        projected_stride: Int64,
        conv_slot_stride: Int64,
        conv_channel_stride: Int64,
        conv_width_stride: Int64,
        state_slot_stride: Int64,
        state_head_stride: Int64,
        slots_request_stride: Int64,
        slots_token_stride: Int64,
        slots_columns: Int32,
        accepted_stride: Int64,
        y_stride: Int64,
        num_reqs: Int32,
    ) -> None:
        columns = const_expr(self.columns)
        rows = const_expr(self.rows)
        pairs = const_expr(self.pairs)
        width = const_expr(self.heads * DIM)
        tid, _, _ = cute.arch.thread_idx()
        rank, head, block = cute.arch.block_idx()
        request = block * self.requests
        warp, lane = tid // 32, tid % 32
        half, lane_k = lane // 16, lane % 16

        smem = SmemAllocator()
        by_channel = cute.make_ordered_layout((columns, DIM), order=(1, 0))
        by_row = cute.make_ordered_layout((columns, rows), order=(1, 0))
        sQ = smem.allocate_tensor(Float32, by_channel, byte_alignment=16)
        sK = smem.allocate_tensor(Float32, by_channel, byte_alignment=16)
        sAlpha = smem.allocate_tensor(Float32, by_channel, byte_alignment=16)
        sV = smem.allocate_tensor(Float32, by_row, byte_alignment=16)
        sGate = smem.allocate_tensor(Float32, by_row, byte_alignment=16)
        sO = smem.allocate_tensor(Float32, by_row, byte_alignment=16)
        sSquares = smem.allocate_tensor(
            Float32, cute.make_ordered_layout((columns, WARPS), order=(1, 0)), byte_alignment=16
        )
        sPairs = smem.allocate_tensor(
            Float32, cute.make_ordered_layout((columns, DIM // 2), order=(1, 0)), byte_alignment=16
        )
        exchange = smem.allocate_array(Int64, num_elems=1)

        # ---- before the dependency wait: slots, states, windows and weights
        slot_row = slots + Int64(request) * slots_request_stride
        table = Int32(0)
        accepted = Int32(1)
        if const_expr(columns == 1):
            table = at(slot_row)[0]
        elif const_expr(self.requests > 1):
            if lane < columns and request + lane < num_reqs:
                table = at(slot_row + Int64(lane) * slots_request_stride)[0]
        else:
            if lane < slots_columns:
                table = at(slot_row + Int64(lane) * slots_token_stride)[0]
            accepted_at = num_accepted_tokens + Int64(request) * accepted_stride
            accepted = at(accepted_at)[0]
            # Padding may carry any count; it must stay inside the table.
            accepted = cutlass.max(cutlass.min(accepted, slots_columns), Int32(1))
        is_live = cute.arch.vote_any_sync(table > 0)
        start_slot = table
        # Of each request, the slot of its window; of a group of requests, that of its state as well.
        slot_of = [table]
        if const_expr(columns > 1):
            start_slot = cute.arch.shuffle_sync(table, accepted - 1)
            slot_of = [cute.arch.shuffle_sync(table, r) for r in range(self.requests)]

        first_row = rank * rows + warp * (2 * pairs) + half
        element = cute.assume(Int64(head) * state_head_stride + Int64(first_row * DIM + lane_k * 4), divby=4)
        thread_state = cute.make_layout((4, 2, pairs), stride=(1, 64, 2 * DIM))
        rS = cute.make_rmem_tensor(cute.make_layout((4, 2, pairs)), Float32)
        self.read_state(rS, state, start_slot, state_slot_stride, element, thread_state)

        # A thread's 16-byte pieces of two rows of F_b serve as A fragments of eight MMAs: the order of k inside a
        # sum is free, so the fragments are defined by what one load brings.
        group, quad = lane // 4, lane % 4
        channel_low = warp * 16 + group
        words = cute.make_layout((4, 4, 2), stride=(1, 16, 8 * DIM // 2))
        fragment = cute.assume((head * DIM + channel_low) * (DIM // 2) + quad * 4, divby=4)
        rF = cute.make_rmem_tensor(cute.make_layout((4, 4, 2)), Uint32)
        cute.autovec_copy(cute.make_tensor(cute.recast_ptr(w_f_b, dtype=Uint32) + fragment, words), rF)
        bias = cute.make_tensor(dt_bias + head * DIM + channel_low, cute.make_layout(2, stride=8))
        bias_low, bias_high = bias[0], bias[1]
        log_rate = at(A_log + head)[0]

        part, within = tid // DIM, tid % DIM
        channel = part * width + head * DIM + within
        rW = cute.make_rmem_tensor(TAPS, Float32)
        self.copy_taps(rW, conv_weight, channel)
        rTap = cute.make_rmem_tensor((TAPS - 1, self.requests), BFloat16)
        first_tap = Int64(accepted - 1) * conv_width_stride
        window = conv_state + Int64(channel) * conv_channel_stride
        self.read_windows(rTap, window + first_tap, conv_slot_stride, conv_width_stride, slot_of)
        value_channel = 2 * width + head * DIM + rank * rows + tid
        window_v = conv_state + Int64(value_channel) * conv_channel_stride
        rWv = cute.make_rmem_tensor(TAPS, Float32)
        rTapV = cute.make_rmem_tensor((TAPS - 1, self.requests), BFloat16)
        rWv.fill(0.0)
        rTapV.fill(0.0)
        if tid < rows:
            self.copy_taps(rWv, conv_weight, value_channel)
            self.read_windows(rTapV, window_v + first_tap, conv_slot_stride, conv_width_stride, slot_of)
        gate_row = tid % rows
        norm_weight = at(o_norm_weight + (rank * rows + gate_row))[0]

        if const_expr(self.cluster > 1):
            if tid == 0:
                cute.arch.mbarrier_init(exchange, 1)
                cute.arch.mbarrier_init_fence()
                cute.arch.mbarrier_arrive_and_expect_tx(exchange, columns * (DIM // 2) * 4)
            cute.arch.cluster_arrive_relaxed()

        wait_for_dependencies()
        release_dependents()

        row_of = projected + cute.assume(Int64(block * columns) * projected_stride, divby=8)
        out_row = y + Int64(block * columns) * y_stride + head * DIM + rank * rows
        if is_live:
            # ---- everything that is read of the projection, before any of it is used
            rX = cute.make_rmem_tensor(columns, BFloat16)
            self.read_column(rX, row_of + channel, projected_stride, slot_of)
            rXv = cute.make_rmem_tensor(columns, BFloat16)
            rXv.fill(0.0)
            if tid < rows:
                self.read_column(rXv, row_of + value_channel, projected_stride, slot_of)
            rB = cute.make_rmem_tensor(cute.make_layout((4, 4)), Uint32)
            rB.fill(0)
            # Rows of null requests in a group are taken as zeros.
            has_row, has_logit = Boolean(True), Boolean(True)
            if const_expr(self.requests > 1):
                has_row, has_logit = cute.arch.shuffle_sync(table, group) > 0, table > 0
            if group < columns and has_row:
                f_a = row_of + cute.assume(Int64(group) * projected_stride + (4 * width + quad * 8), divby=8)
                f_a_words = cute.recast_ptr(f_a, dtype=Uint32)
                cute.autovec_copy(cute.make_tensor(f_a_words, cute.make_layout((4, 4), stride=(1, 16))), rB)
            rGate = self.read_gates(
                row_of + (3 * width + head * DIM + rank * rows), projected_stride, table, tid
            )
            logit = BFloat16(0.0)
            if lane < columns and has_logit:
                logit = at(row_of + Int64(lane) * projected_stride + (4 * width + DIM + head))[0]

            # ---- convolution, decay, gates
            self.convolve(rTap, rW, rX, sQ, sK, sSquares, part, within, warp, lane)
            if tid < rows:
                self.convolve_values(rTapV, rWv, rXv, sV, tid)
            self.decay(rF, rB, exp2(log_rate * LOG2E), bias_low, bias_high, sAlpha, channel_low, quad)
            self.write_gates(rGate, Float32(norm_weight), sGate, tid)
            beta_of_column = sigmoid(Float32(logit))
            if const_expr(self.cluster == 1):
                self.write_windows(window, conv_slot_stride, conv_width_stride, rTap, rX, slot_of)
                if tid < rows:
                    self.write_windows(window_v, conv_slot_stride, conv_width_stride, rTapV, rXv, slot_of)
            cute.arch.sync_threads()
            if const_expr(self.cluster > 1):
                # Peers run, and their barriers count, before anything is sent to them.
                cute.arch.cluster_wait()

            # ---- recurrence
            rNext = cute.make_rmem_tensor(cute.make_layout((4, 2, pairs)), Float32)
            for t in cutlass.range(columns, unroll=1):
                if const_expr(self.requests > 1):
                    next_slot = cute.arch.shuffle_sync(table, t + 1)
                    self.read_state(rNext, state, next_slot, state_slot_stride, element, thread_state)
                beta = cute.arch.shuffle_sync(beta_of_column, t)
                self.step(rS, t, beta, sQ, sK, sAlpha, sV, sO, sSquares, sPairs, exchange, rank, warp, lane)
                target = table
                if const_expr(columns > 1):
                    target = cute.arch.shuffle_sync(table, t)
                if target > 0:
                    stop = state + cute.assume(Int64(target) * state_slot_stride, divby=4) + element
                    cute.autovec_copy(rS, cute.make_tensor(stop, thread_state))
                if const_expr(self.requests > 1):
                    rS.store(rNext.load())

            if const_expr(self.cluster > 1):
                cute.arch.mbarrier_wait(exchange, 0)
                cute.arch.sync_warp()
            else:
                cute.arch.sync_threads()

            # ---- gated output norm
            self.write_output(out_row, y_stride, sO, sGate, sPairs, num_reqs - request, warp, lane)
            if const_expr(self.cluster > 1):
                # Last, since every CTA of the cluster has read the windows by now.
                if within >= rank * rows and within < (rank + 1) * rows:
                    self.write_windows(window, conv_slot_stride, conv_width_stride, rTap, rX, slot_of)
                if tid < rows:
                    self.write_windows(window_v, conv_slot_stride, conv_width_stride, rTapV, rXv, slot_of)
        else:
            for t in cutlass.range_constexpr(columns):
                if tid < rows and self.is_there(t, num_reqs - request):
                    at(out_row + Int64(t) * y_stride + tid)[0] = BFloat16(0.0)
            if const_expr(self.cluster > 1):
                cute.arch.cluster_wait()
