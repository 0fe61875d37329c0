"""Gate, up and activation of the shared experts in one product: the first half of OC-18."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cutlass import Int64

from specialized_path.kernels.common import device
from specialized_path.kernels.moe_experts import ops
from specialized_path.kernels.projection.kernel import ProjectionKernel


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedGateUpKernel(ProjectionKernel):
    """The projection by interleaved rows of gate and up; each pair is rounded, activated, and rounded again."""

    beta: float = 4.0
    linear_beta: float = 25.0

    def store(self, y: Any, row: Any, column: Any, words: tuple[Any, ...]) -> None:
        """Gate and up of one hidden value give that value."""
        gate, up = device.unpack_bf16(words[0])
        place = y + (Int64(row) * (self.num_outputs // 2) + column // 2) * 2
        ops.store_bf16(place, ops.situ(gate, up, self.beta, self.linear_beta))
