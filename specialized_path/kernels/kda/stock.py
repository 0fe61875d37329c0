"""The same step by vLLM 0.33.0's own kernels, called as its Kimi K3 layer calls them, and by PyTorch: baselines."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import linear

from specialized_path.kernels.kda.geometry import DIM, TAPS
from specialized_path.kernels.kda.launch import KdaWeights

LOWER_BOUND = -5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One decode or verify step, all requests live."""

    projected: Tensor
    """[B*q, N] BF16."""
    weights: KdaWeights
    conv_state: Tensor
    """[slots, 3*H*128, q+2] BF16, channels innermost, as vLLM keeps it by default."""
    state: Tensor
    """[slots, H, 128, 128] FP32."""
    slots: Tensor
    """[B, q] int32."""
    num_accepted_tokens: Tensor
    """[B] int32."""

    @property
    def heads(self) -> int:
        """Local heads."""
        return self.weights.A_log.numel()

    def slices(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """q|k|v, gate, f_a and b."""
        width = self.heads * DIM
        rest = self.projected.shape[1] - 4 * width - DIM - self.heads
        qkv, gate, f_a, b, _ = self.projected.split([3 * width, width, DIM, self.heads, rest], dim=-1)
        return qkv, gate, f_a, b


Run = Callable[[], Tensor]
"""One launch of everything that the step takes, from the projection to y."""


def native(step: Step) -> Run:
    """F_b's product by cuBLAS, then vLLM's fused CUDA kernel: its choice for 12 heads on Hopper without drafts."""
    if step.slots.shape[1] > 1 or step.heads not in (12, 24, 48, 96):
        raise NotImplementedError("one token, 12 to 96 heads")
    ops: Any = importlib.import_module("vllm._custom_ops")
    if not hasattr(torch.ops._C, "fused_kda_decode"):
        raise NotImplementedError("vLLM without fused_kda_decode")
    weights = step.weights
    taps_first = weights.conv_weight.view(3, step.heads * DIM, TAPS).transpose(1, 2).contiguous()
    norm_weight = weights.o_norm_weight.float()
    qkv, gate, f_a, b = step.slices()
    indices = step.slots[:, 0].contiguous()
    out = torch.empty(1, len(qkv), step.heads, DIM, dtype=torch.bfloat16, device=qkv.device)

    def run() -> Tensor:
        raw_g = linear(f_a, weights.w_f_b).view(1, -1, step.heads, DIM)
        ops.fused_kda_decode(
            x=qkv,
            weight=taps_first,
            bias=None,
            conv_state=step.conv_state,
            raw_g=raw_g,
            raw_beta=b.unsqueeze(0),
            A_log=weights.A_log,
            dt_bias=weights.dt_bias,
            state_indices=indices,
            state=step.state,
            out=out,
            lower_bound=LOWER_BOUND,
            output_gate=gate.unflatten(-1, (step.heads, DIM)),
            norm_weight=norm_weight,
            norm_eps=1e-5,
        )
        return out.view(len(qkv), -1)

    return run


def triton(step: Step) -> Run:
    """F_b's product by cuBLAS, then Triton: convolution, recurrence (flash-linear-attention's), gated norm."""
    conv: Any = importlib.import_module("vllm.model_executor.layers.mamba.ops.causal_conv1d")
    kda: Any = importlib.import_module("vllm.models.kimi_k3.nvidia.ops.third_party.kda.fused_recurrent")
    norms: Any = importlib.import_module("vllm.third_party.flash_linear_attention.ops.kda")
    weights, heads = step.weights, step.heads
    num_reqs, tokens = step.slots.shape
    qkv, gate, f_a, b = step.slices()
    gate = gate.unflatten(-1, (heads, DIM))
    first = step.slots[:, 0].contiguous()
    starts = torch.arange(num_reqs + 1, dtype=torch.int32, device=qkv.device) * tokens
    mixed = torch.empty(qkv.shape, dtype=qkv.dtype, device=qkv.device)

    def run() -> Tensor:
        raw_g = linear(f_a, weights.w_f_b).view(1, -1, heads, DIM)
        common = {
            "raw_g": raw_g,
            "raw_beta": b.unsqueeze(0),
            "A_log": weights.A_log,
            "dt_bias": weights.dt_bias,
            "lower_bound": LOWER_BOUND,
            "initial_state": step.state,
        }
        if tokens == 1:
            conv.causal_conv1d_update(
                qkv,
                step.conv_state,
                weights.conv_weight,
                activation="silu",
                conv_state_indices=first,
                out=mixed,
            )
            o, _ = kda.fused_recurrent_kda_packed_decode(mixed_qkv=mixed, state_indices=first, **common)
        else:
            conv.causal_conv1d_update(
                qkv,
                step.conv_state,
                weights.conv_weight,
                activation="silu",
                conv_state_indices=first,
                num_accepted_tokens=step.num_accepted_tokens,
                query_start_loc=starts,
                max_query_len=tokens,
                out=mixed,
            )
            q, k, v = mixed.view(1, -1, 3, heads, DIM).unbind(dim=2)
            o, _ = kda.fused_recurrent_kda(
                q=q,
                k=k,
                v=v,
                cu_seqlens=starts,
                ssm_state_indices=step.slots,
                num_accepted_tokens=step.num_accepted_tokens,
                **common,
            )
        y: Tensor = norms.rms_norm_gated(o[0], gate, weights.o_norm_weight, None, "sigmoid", eps=1e-5)
        return y.view(len(qkv), -1)

    return run


def eager(step: Step) -> Run:
    """PyTorch's own operators, FP32 between the projection and y."""
    weights, heads = step.weights, step.heads
    num_reqs, tokens = step.slots.shape
    first, taps = step.slots[:, 0].long(), torch.arange(TAPS - 1, device=step.slots.device)
    rate = weights.A_log.exp().unsqueeze(-1)
    bias = weights.dt_bias.view(heads, DIM)

    def run() -> Tensor:
        qkv, gate, f_a, b = (x.unflatten(0, (num_reqs, tokens)) for x in step.slices())
        start = step.num_accepted_tokens.long().unsqueeze(1) - 1
        columns = (start + taps).unsqueeze(1).expand(-1, qkv.shape[-1], -1)
        joined = torch.cat([step.conv_state[first].gather(2, columns), qkv.transpose(1, 2)], dim=2)
        z = (joined.unfold(2, TAPS, 1).float() * weights.conv_weight.unsqueeze(1)).sum(-1).transpose(1, 2)
        q, k, v = (z * z.sigmoid()).unflatten(-1, (3, heads, DIM)).unbind(dim=2)
        q = q * torch.rsqrt(q.square().sum(-1, keepdim=True) + 1e-6) * DIM**-0.5
        k = k * torch.rsqrt(k.square().sum(-1, keepdim=True) + 1e-6)
        raw_g = linear(f_a, weights.w_f_b).unflatten(-1, (heads, DIM)).float()
        decay = (LOWER_BOUND * torch.sigmoid(rate * (raw_g + bias))).exp()
        beta = b.float().sigmoid().unsqueeze(-1)
        current = step.state[step.slots.long().gather(1, start).squeeze(1)]
        outs = []
        for t in range(tokens):
            current = current * decay[:, t].unsqueeze(-2)
            u = beta[:, t] * (v[:, t] - (current @ k[:, t].unsqueeze(-1)).squeeze(-1))
            current = current + u.unsqueeze(-1) * k[:, t].unsqueeze(-2)
            step.state.index_copy_(0, step.slots[:, t].long(), current)
            outs.append((current @ q[:, t].unsqueeze(-1)).squeeze(-1))
        step.conv_state.index_copy_(0, first, joined[:, :, 1:])
        o = torch.stack(outs, dim=1)
        o = o * torch.rsqrt(o.square().mean(-1, keepdim=True) + 1e-5) * weights.o_norm_weight.float()
        y = o * gate.unflatten(-1, (heads, DIM)).float().sigmoid()
        return y.bfloat16().view(num_reqs * tokens, -1)

    return run


MAKERS: dict[str, Callable[[Step], Run]] = {"vllm native": native, "vllm triton": triton, "torch": eager}
"""Each raises ImportError where its code is not installed, NotImplementedError for a step that it does not serve."""
