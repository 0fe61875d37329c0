"""What a KDA step does before the recurrence: short convolution, decay, output gate, windows (OC-4, OC-5)."""

import cutlass
import cutlass.cute as cute
from cutlass import BFloat16, Boolean, Float32, Int32, Int64, const_expr

from specialized_path.kernels.common.device import mma_bf16
from specialized_path.kernels.kda.device import LOG2E, at, exp2, sigmoid, xor_lane
from specialized_path.kernels.kda.geometry import TAPS, THREADS, Geometry


class Preparation(Geometry):
    """Device functions; a thread has one channel of q or k, some also one of v."""

    @cute.jit
    def copy_taps(self, rW: cute.Tensor, conv_weight: cute.Pointer, channel: Int32) -> None:
        taps = conv_weight + cute.assume(channel * TAPS, divby=TAPS)
        cute.autovec_copy(cute.make_tensor(taps, cute.make_layout(TAPS)), rW)

    @cute.jit
    def read_windows(
        self, rTap: cute.Tensor, oldest: cute.Pointer, slot_stride: Int64, stride: Int64, slot_of: list[Int32]
    ) -> None:
        rTap.fill(0.0)
        for r in cutlass.range_constexpr(self.requests):
            if slot_of[r] > 0:
                for i in cutlass.range_constexpr(TAPS - 1):
                    rTap[i, r] = at(oldest + Int64(slot_of[r]) * slot_stride + i * stride)[0]

    @cute.jit
    def read_column(self, rX: cute.Tensor, first: cute.Pointer, stride: Int64, slot_of: list[Int32]) -> None:
        rX.fill(0.0)
        for t in cutlass.range_constexpr(self.columns):
            is_read = Boolean(True)
            if const_expr(self.requests > 1):
                is_read = slot_of[t] > 0
            if is_read:
                rX[t] = at(first + t * stride)[0]

    @cute.jit
    def filter(self, taps: list[Float32], rW: cute.Tensor, x: Float32) -> Float32:
        z = taps[0] * rW[0]
        z = cute.math.fma(taps[1], rW[1], z)
        z = cute.math.fma(taps[2], rW[2], z)
        z = cute.math.fma(x, rW[3], z)
        return z * sigmoid(z)

    @cute.jit
    def convolve(
        self,
        rTap: cute.Tensor,
        rW: cute.Tensor,
        rX: cute.Tensor,
        sQ: cute.Tensor,
        sK: cute.Tensor,
        sSquares: cute.Tensor,
        part: Int32,
        within: Int32,
        warp: Int32,
        lane: Int32,
    ) -> None:
        """q or k of one channel a thread, and the sum of squares of each warp's channels."""
        taps = [Float32(rTap[i, 0]) for i in range(TAPS - 1)]
        for t in cutlass.range_constexpr(self.columns):
            x = Float32(rX[t])
            if const_expr(self.requests > 1):
                taps = [Float32(rTap[i, t]) for i in range(TAPS - 1)]
            mixed = self.filter(taps, rW, x)
            taps = [taps[1], taps[2], x]
            if part == 0:
                sQ[t, within] = mixed
            else:
                sK[t, within] = mixed
            other = xor_lane(mixed, 16)
            square = cute.math.fma(other, other, mixed * mixed)
            for mask in (8, 4, 2, 1):
                square = square + xor_lane(square, mask)
            if lane == 0:
                sSquares[t, warp] = square

    @cute.jit
    def convolve_values(
        self, rTap: cute.Tensor, rW: cute.Tensor, rX: cute.Tensor, sV: cute.Tensor, row: Int32
    ) -> None:
        taps = [Float32(rTap[i, 0]) for i in range(TAPS - 1)]
        for t in cutlass.range_constexpr(self.columns):
            x = Float32(rX[t])
            if const_expr(self.requests > 1):
                taps = [Float32(rTap[i, t]) for i in range(TAPS - 1)]
            sV[t, row] = self.filter(taps, rW, x)
            taps = [taps[1], taps[2], x]

    @cute.jit
    def read_gates(self, first: cute.Pointer, stride: Int64, table: Int32, tid: Int32) -> cute.Tensor:
        """Gate of row `tid % rows`, of every `THREADS // rows`-th column."""
        rGate = cute.make_rmem_tensor(self.gates_a_thread, BFloat16)
        rGate.fill(0.0)
        for i in cutlass.range_constexpr(self.gates_a_thread):
            t = i * (THREADS // self.rows) + tid // self.rows
            is_read = t < self.columns
            if const_expr(self.requests > 1):
                # With a cluster of 1, t is the same in a whole warp.
                is_read = is_read and cute.arch.shuffle_sync(table, t) > 0
            if is_read:
                rGate[i] = at(first + Int64(t) * stride + tid % self.rows)[0]
        return rGate

    @cute.jit
    def write_gates(self, rGate: cute.Tensor, norm_weight: Float32, sGate: cute.Tensor, tid: Int32) -> None:
        """The factor of each output: norm weight times the sigmoid of the gate."""
        for i in cutlass.range_constexpr(self.gates_a_thread):
            t = i * (THREADS // self.rows) + tid // self.rows
            if t < self.columns:
                sGate[t, tid % self.rows] = norm_weight * sigmoid(Float32(rGate[i]))

    @cute.jit
    def decay(
        self,
        rF: cute.Tensor,
        rB: cute.Tensor,
        rate: Float32,
        bias_low: Float32,
        bias_high: Float32,
        sAlpha: cute.Tensor,
        channel_low: Int32,
        quad: Int32,
    ) -> None:
        """exp(g) of 16 key channels a warp, for up to 8 tokens, which are the MMA's columns."""
        even = (Float32(0.0), Float32(0.0), Float32(0.0), Float32(0.0))
        odd = even
        for block in cutlass.range_constexpr(4):
            low = [rF[i, block, 0] for i in range(4)]
            high = [rF[i, block, 1] for i in range(4)]
            b = [rB[i, block] for i in range(4)]
            even = mma_bf16(even, (low[0], high[0], low[1], high[1]), (b[0], b[1]))
            odd = mma_bf16(odd, (low[2], high[2], low[3], high[3]), (b[2], b[3]))
        for column in cutlass.range_constexpr(min(self.columns, 2)):
            t = quad * 2 + column
            if t < self.columns:
                sAlpha[t, channel_low] = self.alpha(even[column] + odd[column], rate, bias_low)
                sAlpha[t, channel_low + 8] = self.alpha(even[column + 2] + odd[column + 2], rate, bias_high)

    @cute.jit
    def alpha(self, product: Float32, rate: Float32, bias: Float32) -> Float32:
        raw_g = Float32(BFloat16(product))
        return exp2((self.lower_bound * LOG2E) * sigmoid(rate * (raw_g + bias)))

    @cute.jit
    def write_windows(
        self,
        oldest: cute.Pointer,
        slot_stride: Int64,
        stride: Int64,
        rTap: cute.Tensor,
        rX: cute.Tensor,
        slot_of: list[Int32],
    ) -> None:
        """The last two taps and the new inputs."""
        for r in cutlass.range_constexpr(self.requests):
            if slot_of[r] > 0:
                window = oldest + Int64(slot_of[r]) * slot_stride
                for i in cutlass.range_constexpr(2):
                    at(window + i * stride)[0] = rTap[i + 1, r]
                for t in cutlass.range_constexpr(self.tokens):
                    at(window + (t + 2) * stride)[0] = rX[r * self.tokens + t]
