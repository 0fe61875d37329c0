"""The gated delta rule on rows of the state in registers, and the gated output norm (OC-6)."""

import cutlass
import cutlass.cute as cute
from cutlass import BFloat16, Boolean, Float32, Int32, Int64, const_expr

from specialized_path.kernels.common.device import rsqrt, select
from specialized_path.kernels.kda.device import at, reduce_transposed, xor_lane
from specialized_path.kernels.kda.geometry import DIM, WARPS, Geometry


class Recurrence(Geometry):
    """Device functions; a half-warp has one row of each of its warp's pairs of rows, a lane 8 columns of it."""

    def is_there(self, column: Int32 | int, num_left: Int32) -> Boolean | bool:
        """Whether a column's request exists; `num_left` counts those from the first column on."""
        return True if self.requests == 1 else column < num_left

    @cute.jit
    def read_state(
        self,
        rS: cute.Tensor,
        state: cute.Pointer,
        slot: Int32,
        slot_stride: Int64,
        element: Int64,
        thread_state: cute.Layout,
    ) -> None:
        if slot > 0:
            start = state + cute.assume(Int64(slot) * slot_stride, divby=4) + element
            cute.autovec_copy(cute.make_tensor(start, thread_state), rS)
        else:
            rS.fill(0.0)

    @cute.jit
    def step(
        self,
        rS: cute.Tensor,
        t: Int32,
        beta: Float32,
        sQ: cute.Tensor,
        sK: cute.Tensor,
        sAlpha: cute.Tensor,
        sV: cute.Tensor,
        sO: cute.Tensor,
        sSquares: cute.Tensor,
        sPairs: cute.Tensor,
        exchange: cute.Pointer,
        rank: Int32,
        warp: Int32,
        lane: Int32,
    ) -> None:
        """One token of the delta rule on the warp's rows; leaves o and the sums of squares of its pairs of rows."""
        pairs = const_expr(self.pairs)
        lane_k = lane % 16
        squares = [sSquares[t, i] for i in range(WARPS)]
        q_scale = rsqrt(((squares[0] + squares[1]) + (squares[2] + squares[3])) + self.l2_eps) * (DIM**-0.5)
        k_scale = rsqrt(((squares[4] + squares[5]) + (squares[6] + squares[7])) + self.l2_eps)
        slice_k = cute.make_layout((4, 2), stride=(1, 64))
        offset = cute.assume(t * DIM + lane_k * 4, divby=4)
        rQ, rK, rAlpha = (
            cute.make_rmem_tensor(cute.make_layout((4, 2)), Float32),
            cute.make_rmem_tensor(cute.make_layout((4, 2)), Float32),
            cute.make_rmem_tensor(cute.make_layout((4, 2)), Float32),
        )
        cute.autovec_copy(cute.make_tensor(sQ.iterator + offset, slice_k), rQ)
        cute.autovec_copy(cute.make_tensor(sK.iterator + offset, slice_k), rK)
        cute.autovec_copy(cute.make_tensor(sAlpha.iterator + offset, slice_k), rAlpha)
        q = [rQ[i] * q_scale for i in range(8)]
        k = [rK[i] * k_scale for i in range(8)]

        k_dot_q = k[0] * q[0]
        for i in cutlass.range_constexpr(1, 8):
            k_dot_q = cute.math.fma(k[i], q[i], k_dot_q)
        for mask in (8, 4, 2, 1):
            k_dot_q = k_dot_q + xor_lane(k_dot_q, mask)

        recalled, read = [], []
        for p in cutlass.range_constexpr(pairs):
            by_k, by_q = Float32(0.0), Float32(0.0)
            for i in cutlass.range_constexpr(8):
                decayed = rS[i % 4, i // 4, p] * rAlpha[i]
                rS[i % 4, i // 4, p] = decayed
                by_k = cute.math.fma(decayed, k[i], by_k)
                by_q = cute.math.fma(decayed, q[i], by_q)
            recalled.append(by_k)
            read.append(by_q)
        # Of a half-warp's 16 lanes, bit 3 holds recalled or read, the bits below the pair.
        mine = reduce_transposed([*recalled, *read], lane, (8, 4, 2, 1))
        other = xor_lane(mine, 8)
        has_read = (lane & 8) != 0
        lanes_a_pair = const_expr(8 // pairs)
        pair = (lane % 8) // lanes_a_pair
        row = warp * (2 * pairs) + 2 * pair + lane // 16
        u = beta * (sV[t, row] - select(has_read, other, mine))
        o = cute.math.fma(u, k_dot_q, select(has_read, mine, other))

        facing = xor_lane(o, 16)
        square = cute.math.fma(facing, facing, o * o)
        if lane % 16 == pair * lanes_a_pair:
            sO[t, row] = o
        first_pair = rank * (self.rows // 2) + warp * pairs
        if const_expr(self.cluster > 1):
            sent_pair, peer = lane % pairs, lane // pairs
            sent = cute.arch.shuffle_sync(square, sent_pair * lanes_a_pair)
            if lane < 8:
                cute.arch.store_async_dsmem(
                    sPairs.iterator + t * (DIM // 2) + first_pair + sent_pair,
                    sent.bitcast(Int32),
                    exchange,
                    peer,
                )
        else:
            if lane < pairs:
                sPairs[t, first_pair + lane] = square

        for p in cutlass.range_constexpr(pairs):
            u_p = u
            if const_expr(pairs > 1):
                u_p = cute.arch.shuffle_sync(u, (lane & 16) + p * lanes_a_pair)
            for i in cutlass.range_constexpr(8):
                rS[i % 4, i // 4, p] = cute.math.fma(u_p, k[i], rS[i % 4, i // 4, p])

    @cute.jit
    def write_output(
        self,
        out_row: cute.Pointer,
        y_stride: Int64,
        sO: cute.Tensor,
        sGate: cute.Tensor,
        sPairs: cute.Tensor,
        num_left: Int32,
        warp: Int32,
        lane: Int32,
    ) -> None:
        """y of the warp's rows. Eight lanes sum a column's 64 pairs, four columns at a time."""
        scales = []
        for i in cutlass.range_constexpr(cute.ceil_div(self.columns, 4)):
            t = cutlass.min(Int32(4 * i + lane // 8), Int32(self.columns - 1))
            rPairs = cute.make_rmem_tensor(8, Float32)
            offset = cute.assume(t * (DIM // 2) + (lane % 8) * 8, divby=8)
            cute.autovec_copy(cute.make_tensor(sPairs.iterator + offset, cute.make_layout(8)), rPairs)
            total = rPairs[0]
            for j in cutlass.range_constexpr(1, 8):
                total = total + rPairs[j]
            for mask in (4, 2, 1):
                total = total + xor_lane(total, mask)
            scales.append(rsqrt(cute.math.fma(total, 1.0 / DIM, self.norm_eps)))
        rows = const_expr(2 * self.pairs)
        for i in cutlass.range_constexpr(cute.ceil_div(rows * self.columns, 32)):
            t, row = i * 32 // rows + lane // rows, warp * rows + lane % rows
            scale = cute.arch.shuffle_sync(scales[0], (t % 4) * 8)
            if const_expr(self.columns > 4):
                scale = select(t >= 4, cute.arch.shuffle_sync(scales[1], (t % 4) * 8), scale)
            if t < self.columns and self.is_there(t, num_left):
                out = BFloat16(sO[t, row] * scale * sGate[t, row])
                at(out_row + Int64(t) * y_stride + row)[0] = out
