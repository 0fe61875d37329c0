"""The latent mixture of experts: routed experts work in a smaller latent space, shared experts do not."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from specialized_path.nano.config import KimiK3NanoConfig
from specialized_path.nano.mlp import GatedMlp, Linear, situ
from specialized_path.nano.norm import RmsNorm


class Router(nn.Module):
    """Sigmoid scores; a correction bias decides who is chosen, never how much a chosen expert weighs."""

    def __init__(self, config: KimiK3NanoConfig, dtype: torch.dtype) -> None:
        """Holds the scoring rows and the float32 correction bias."""
        super().__init__()
        shape = (config.num_experts, config.hidden_size)
        self.top_k = config.num_experts_per_token
        self.weight = nn.Parameter(torch.empty(shape, dtype=dtype), requires_grad=False)
        bias = torch.empty(config.num_experts, dtype=torch.float32)
        self.e_score_correction_bias = nn.Parameter(bias, requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        """Returns the weight [T, num_experts] of every expert, 0 for those not chosen."""
        scores = torch.sigmoid(functional.linear(x.float(), self.weight.float()))
        chosen = (scores + self.e_score_correction_bias).topk(self.top_k, dim=-1).indices
        selected = scores.gather(-1, chosen)
        shares = selected / (selected.sum(-1, keepdim=True) + 1e-20)
        return torch.zeros_like(scores).scatter_(-1, chosen, shares)


class Experts(nn.Module):
    """The routed experts' weights, stacked: w1 gate, w3 up, w2 down."""

    def __init__(self, config: KimiK3NanoConfig, dtype: torch.dtype) -> None:
        """Holds [E, intermediate, latent] twice and [E, latent, intermediate] once."""
        super().__init__()
        experts, inner, latent = config.num_experts, config.moe_intermediate_size, config.moe_latent_size
        self.beta, self.linear_beta = config.situ_beta, config.situ_linear_beta
        self.w1 = nn.Parameter(torch.empty(experts, inner, latent, dtype=dtype), requires_grad=False)
        self.w2 = nn.Parameter(torch.empty(experts, latent, inner, dtype=dtype), requires_grad=False)
        self.w3 = nn.Parameter(torch.empty(experts, inner, latent, dtype=dtype), requires_grad=False)

    def forward(self, latent: Tensor, shares: Tensor) -> Tensor:
        """Returns the weighted sum [T, latent] over experts.

        All experts see all tokens, two matrix products in all: with so few and small experts this is faster
        than sorting tokens by expert.
        """
        gate = functional.linear(latent, self.w1.flatten(0, 1))
        up = functional.linear(latent, self.w3.flatten(0, 1))
        inner = situ(gate, up, self.beta, self.linear_beta).unflatten(-1, (shares.shape[-1], -1))
        weighted = (inner * shares.unsqueeze(-1)).flatten(1)
        return (weighted @ self.w2.float().transpose(1, 2).flatten(0, 1)).to(latent.dtype)


class LatentMoe(nn.Module):
    """Routed experts in the latent space plus shared experts on the hidden state."""

    def __init__(self, config: KimiK3NanoConfig, dtype: torch.dtype) -> None:
        """Builds router, latent projections, experts and their output norm."""
        super().__init__()
        hidden, latent = config.hidden_size, config.moe_latent_size
        self.gate = Router(config, dtype)
        self.latent_down_proj = Linear(hidden, latent, dtype)
        self.experts = Experts(config, dtype)
        self.routed_expert_norm = RmsNorm(latent, config.rms_norm_eps, dtype)
        self.latent_up_proj = Linear(latent, hidden, dtype)
        self.shared_experts = GatedMlp(config, config.shared_intermediate_size, dtype)

    def forward(self, x: Tensor) -> Tensor:
        """Maps [T, hidden] to [T, hidden]."""
        combined = self.experts(self.latent_down_proj(x), self.gate(x))
        return self.latent_up_proj(self.routed_expert_norm(combined)) + self.shared_experts(x)
