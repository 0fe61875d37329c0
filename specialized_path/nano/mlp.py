"""The SiTU activation and the gated MLP of layer 0 and of the shared experts."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from specialized_path.nano.config import KimiK3NanoConfig
from specialized_path.nano.fused_rows import FusedRows


def situ(gate: Tensor, up: Tensor, beta: float, linear_beta: float) -> Tensor:
    """Returns SiTU(gate, up), bounded by beta * linear_beta, in float32."""
    gate, up = gate.float(), up.float()
    bounded_gate = beta * torch.tanh(gate / beta) * torch.sigmoid(gate)
    return bounded_gate * (linear_beta * torch.tanh(up / linear_beta))


class Linear(nn.Module):
    """A bias-free projection under its checkpoint name."""

    def __init__(self, columns: int, rows: int, dtype: torch.dtype) -> None:
        """Maps vectors of `columns` to vectors of `rows`."""
        super().__init__()
        self.weight = nn.Parameter(torch.empty(rows, columns, dtype=dtype), requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        """Returns x times the transposed weight."""
        return functional.linear(x, self.weight)


class GatedMlp(nn.Module):
    """down( SiTU( gate(x), up(x) ) )."""

    def __init__(self, config: KimiK3NanoConfig, intermediate_size: int, dtype: torch.dtype) -> None:
        """Sizes the MLP; layer 0 and the shared experts differ in `intermediate_size` only."""
        super().__init__()
        self.beta, self.linear_beta = config.situ_beta, config.situ_linear_beta
        rows = {"gate_proj": intermediate_size, "up_proj": intermediate_size}
        self.gate_up = FusedRows(rows, config.hidden_size, dtype)
        self.down_proj = Linear(intermediate_size, config.hidden_size, dtype)

    def forward(self, x: Tensor) -> Tensor:
        """Maps [T, hidden] to [T, hidden]."""
        gate, up = self.gate_up(x)
        return self.down_proj(situ(gate, up, self.beta, self.linear_beta).to(x.dtype))
