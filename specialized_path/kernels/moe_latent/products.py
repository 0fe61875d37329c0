"""The projection's kernel with three kinds of outputs: what the MLP input is multiplied by at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import cutlass.cute as cute
from cutlass import Float32, Int32, Int64

from specialized_path.kernels.common import device
from specialized_path.kernels.moe_experts import ops
from specialized_path.kernels.moe_latent.geometry import LATENT, LOGITS_BYTE, NUM_EXPERTS, TAIL_BYTE
from specialized_path.kernels.projection.kernel import ProjectionKernel


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontKernel(ProjectionKernel):
    """Rows of the latent are rounded, those of the router stay FP32, gates and ups are rounded and activated."""

    beta: float = 4.0
    linear_beta: float = 25.0

    def finished(self, low: Any, high: Any) -> Any:
        """Two FP32 sums."""
        return low, high

    def store(self, y: Any, row: Any, column: Any, words: tuple[Any, ...]) -> None:
        """Both go where their kind lies in the buffer."""
        self.store_pair(y, row, column, *words[0])

    @cute.jit
    def store_pair(self, y: Int64, row: Int32, column: Int32, low: Float32, high: Float32) -> None:
        """Two neighbouring outputs of a token: every kind has an even number of them."""
        if column < LATENT:
            device.store_word(y + (Int64(row) * LATENT + column) * 2, device.pack_bf16(low, high))
        elif column < LATENT + NUM_EXPERTS:
            place = y + LOGITS_BYTE + (Int64(row) * NUM_EXPERTS + column - LATENT) * 4
            ops.store_floats(place, low, high)
        else:
            size = (self.num_outputs - LATENT - NUM_EXPERTS) // 2
            gate, up = device.unpack_bf16(device.pack_bf16(low, high))
            at = LATENT + (column - (LATENT + NUM_EXPERTS)) // 2
            place = y + TAIL_BYTE + (Int64(row) * (LATENT + size) + at) * 2
            ops.store_bf16(place, ops.situ(gate, up, self.beta, self.linear_beta))
