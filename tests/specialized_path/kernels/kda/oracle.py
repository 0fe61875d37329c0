"""What a KDA step must give, from the oracle in float64, and one call that runs a kernel on the same inputs."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from specialized_path.kernels.kda.cases import KdaInputs
from specialized_path.kernels.kda.geometry import DIM
from specialized_path.kernels.kda.launch import KdaWeights, kda_decode, kda_verify
from specialized_path.kernels.kda.variants import KdaVariant
from specialized_path.reference.oc05_kda_gates import kda_gates
from specialized_path.reference.oc06_kda_step import delta_rule_step, gated_rms_norm
from specialized_path.reference.oc07_kda_verify import kda_recurrence_verify, short_conv_verify


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """Results in the arithmetic's type, y not rounded."""

    y: Tensor
    """[B*q, H*128]."""
    y_terms: Tensor
    """[B*q, H*128], the sums of magnitudes behind y."""
    state: Tensor
    """The pool afterwards; what was not written is as it was, NaN included."""
    conv_state: Tensor
    """BF16, likewise."""


def expect(inputs: KdaInputs, acc_dtype: torch.dtype = torch.float64) -> Expected:
    """Runs the oracle in `acc_dtype`; the inputs stay as they are."""
    i = inputs
    width, num_reqs, tokens = i.heads * DIM, i.slots.shape[0], i.tokens
    rows = i.projected.unflatten(0, (num_reqs, tokens))
    gate, f_a, b = (i.columns(n).unflatten(0, (num_reqs, tokens)) for n in ("g", "f_a", "b"))
    conv_state, state = i.conv_state.clone(), i.state.to(acc_dtype, copy=True)
    accepted = i.num_accepted_tokens
    mixed = short_conv_verify(
        rows[..., : 3 * width], i.conv_weight, conv_state, i.slots, accepted, acc_dtype=acc_dtype
    )
    q, k, v = mixed.unflatten(-1, (3, i.heads, DIM)).unbind(dim=2)
    g, beta = kda_gates(f_a, b, i.w_f_b, i.A_log, i.dt_bias, acc_dtype=acc_dtype)
    start = _start_states(i).to(acc_dtype)
    o = kda_recurrence_verify(q, k, v, g, beta, state, i.slots, accepted, acc_dtype=acc_dtype)
    y = gated_rms_norm(o, gate.to(acc_dtype), i.o_norm_weight, acc_dtype=acc_dtype)
    terms = torch.zeros_like(o)
    for t in range(tokens):
        _, start = delta_rule_step(q[:, t], k[:, t], v[:, t], g[:, t], beta[:, t], start, acc_dtype=acc_dtype)
        unit = q[:, t] * torch.rsqrt(q[:, t].square().sum(-1, keepdim=True) + 1e-6) * DIM**-0.5
        terms[:, t] = (start.abs() @ unit.abs().unsqueeze(-1)).squeeze(-1)
    factor = torch.rsqrt(o.square().mean(-1, keepdim=True) + 1e-5) * i.o_norm_weight.to(acc_dtype)
    terms = (terms * factor).flatten(-2) * torch.sigmoid(gate.to(acc_dtype))
    live = (i.slots > 0).any(dim=1)[:, None, None]
    return Expected(
        y=torch.where(live, y, 0).flatten(0, 1),
        y_terms=torch.where(live, terms.abs(), 0).flatten(0, 1),
        state=state,
        conv_state=conv_state,
    )


def _start_states(inputs: KdaInputs) -> Tensor:
    last = inputs.slots.shape[1]
    column = inputs.num_accepted_tokens.long().clamp(1, last) - 1
    slot = inputs.slots.long().gather(1, column.unsqueeze(1)).squeeze(1)
    found = inputs.state.double()[slot.clamp_min(0)]
    return torch.where((slot > 0)[:, None, None, None], found, 0)


def launch(
    inputs: KdaInputs, variant: KdaVariant | None = None, *, out: Tensor | None = None, use_pdl: bool = False
) -> Tensor:
    """Runs the kernel: y; states and windows of `inputs` advance. y comes poisoned unless given."""
    i = inputs
    if out is None:
        out = torch.full(
            (i.projected.shape[0], i.heads * DIM), float("nan"), dtype=torch.bfloat16, device="cuda"
        )
    weights = KdaWeights(
        conv_weight=i.conv_weight,
        w_f_b=i.w_f_b,
        A_log=i.A_log,
        dt_bias=i.dt_bias,
        o_norm_weight=i.o_norm_weight,
    )
    pools = (i.conv_state, i.state)
    if i.tokens == 1:
        return kda_decode(
            i.projected, weights, *pools, i.slots[:, 0], out=out, use_pdl=use_pdl, variant=variant
        )
    return kda_verify(
        i.projected,
        weights,
        *pools,
        i.slots,
        i.num_accepted_tokens,
        out=out,
        use_pdl=use_pdl,
        variant=variant,
    )
