"""Adversarial inputs of OC-4 to OC-7, as data: each case says how it departs from ordinary random inputs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields

import torch
from torch import Tensor

from specialized_path.kernels.kda.geometry import DIM, TAPS
from specialized_path.reference.rounding import round_to

POISON = float("nan")


@dataclass(kw_only=True)
class KdaInputs:
    """What a KDA step reads and writes. Projection padding and all unreferenced slots hold NaN."""

    projected: Tensor
    """[B*q, N] BF16."""
    conv_weight: Tensor
    w_f_b: Tensor
    A_log: Tensor
    dt_bias: Tensor
    o_norm_weight: Tensor
    conv_state: Tensor
    """[slots, 3*H*128, S+2 or more] BF16."""
    state: Tensor
    """[slots, H, 128, 128] FP32."""
    slots: Tensor
    """[B, S] int32; S = q."""
    num_accepted_tokens: Tensor
    """[B] int32."""

    @property
    def heads(self) -> int:
        """Local heads."""
        return self.A_log.numel()

    @property
    def tokens(self) -> int:
        """q, tokens a request."""
        return self.slots.shape[1]

    def columns(self, name: str) -> Tensor:
        """A slice of the projection by name: q, k, v, g, f_a, b or padding. A view."""
        width = self.heads * DIM
        ends = {"q": width, "k": 2 * width, "v": 3 * width, "g": 4 * width, "f_a": 4 * width + DIM}
        ends |= {"b": 4 * width + DIM + self.heads, "padding": self.projected.shape[1]}
        names = list(ends)
        first = ends[names[names.index(name) - 1]] if name != "q" else 0
        return self.projected[:, first : ends[name]]

    def to(self, device: torch.device | str) -> KdaInputs:
        """A copy on a device, strides and what lies between kept."""
        return KdaInputs(**{f.name: _copy(getattr(self, f.name), device) for f in fields(self)})


def _copy(tensor: Tensor, device: torch.device | str) -> Tensor:
    """With everything that lies between the elements."""
    whole = torch.empty(0, dtype=tensor.dtype, device=tensor.device).set_(tensor.untyped_storage())
    copy = torch.empty_like(whole, device=device).copy_(whole)
    return copy.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())


def random_inputs(heads: int, num_reqs: int, tokens: int, seed: int = 0) -> KdaInputs:
    """Ordinary inputs on the CPU: permuted slots, any accepted count, states and windows of earlier steps.

    f_a and F_b hold few bits, so that every order of summation gives the same raw gate: one flipped bit of it would
    move a decay by percents and hide everything else. A case has them of all bits.
    """
    gen = torch.Generator().manual_seed(seed)
    width = heads * DIM
    columns = -(-(4 * width + DIM + heads + 1) // 16) * 16
    projected = torch.randn(num_reqs * tokens, columns, generator=gen)
    projected[:, 4 * width : 4 * width + DIM] = _coarse((num_reqs * tokens, DIM), 8, gen)
    projected[:, 4 * width + DIM + heads :] = POISON
    num_slots = num_reqs * tokens + 3
    slots = torch.randperm(num_slots - 1, generator=gen)[: num_reqs * tokens] + 1
    inputs = KdaInputs(
        projected=projected.bfloat16(),
        conv_weight=torch.randn(3 * width, TAPS, generator=gen) * 0.5,
        w_f_b=_coarse((width, DIM), 16, gen).bfloat16(),
        A_log=torch.randn(heads, generator=gen) * 0.5,
        dt_bias=torch.randn(width, generator=gen),
        o_norm_weight=torch.rand(DIM, generator=gen).add(0.5).bfloat16(),
        conv_state=torch.full((num_slots, 3 * width, tokens + TAPS - 2), POISON, dtype=torch.bfloat16),
        state=torch.full((num_slots, heads, DIM, DIM), POISON),
        slots=slots.reshape(num_reqs, tokens).int(),
        num_accepted_tokens=torch.randint(1, tokens + 1, (num_reqs,), generator=gen).int(),
    )
    # Only the start slots hold a state, only the first slots a window.
    starts = inputs.slots.gather(1, inputs.num_accepted_tokens.long().sub(1).unsqueeze(1)).squeeze(1).long()
    inputs.state[starts] = torch.randn(num_reqs, heads, DIM, DIM, generator=gen)
    windows = torch.randn(num_reqs, 3 * width, tokens + TAPS - 2, generator=gen).bfloat16()
    inputs.conv_state[inputs.slots[:, 0].long()] = windows
    return inputs


def _coarse(shape: tuple[int, ...], steps: int, gen: torch.Generator) -> Tensor:
    return torch.randint(-steps // 2, steps // 2 + 1, shape, generator=gen) / steps


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One kind of input."""

    name: str
    change: Callable[[KdaInputs], None] = field(repr=False)
    """Departs from random inputs, in place; may replace fields."""
    is_for: Callable[[int], bool] = field(default=lambda tokens: tokens >= 1, repr=False)
    """Whether the case makes sense for a number of tokens a request."""


def _nothing(inputs: KdaInputs) -> None:
    del inputs


def _fine_gates(inputs: KdaInputs) -> None:
    """f_a and F_b of ordinary magnitude and all bits.

    Rows of F_b are drawn again until no raw gate lies so near to the middle of two BF16 numbers that the error
    allowed to its FP32 sum decides on the rounding: the kernel's raw gates are the oracle's.
    """
    gen = torch.Generator().manual_seed(7)
    f_a = inputs.columns("f_a")
    f_a[:] = torch.randn(f_a.shape, generator=gen)
    near = torch.ones(len(inputs.w_f_b), dtype=torch.bool)
    while near.any():
        drawn = torch.randn(int(near.sum()), DIM, generator=gen) * DIM**-0.5
        inputs.w_f_b[near] = drawn.bfloat16()
        exact = f_a.double() @ inputs.w_f_b.double().T
        error = 2.0**-20 * (f_a.double().abs() @ inputs.w_f_b.double().abs().T)
        low, high = (round_to(end, torch.bfloat16) for end in (exact - error, exact + error))
        near = (low != high).any(dim=0)


def _fresh(inputs: KdaInputs) -> None:
    inputs.conv_state[inputs.slots.long()] = 0
    inputs.state[inputs.slots.long()] = 0


def _first_null(inputs: KdaInputs, value: int) -> None:
    inputs.slots[0] = value
    inputs.num_accepted_tokens[0] = -7
    inputs.projected[: inputs.tokens] = POISON


def _all_null(inputs: KdaInputs) -> None:
    inputs.slots[:] = torch.tensor([0, -1])[torch.arange(inputs.slots.numel()) % 2].reshape(
        inputs.slots.shape
    )
    inputs.num_accepted_tokens[:] = 1 << 30
    inputs.projected[:] = POISON


def _strided_slots(inputs: KdaInputs) -> None:
    """Every third column of a wider table whose other entries are slots outside the pool."""
    num_reqs, tokens = inputs.slots.shape
    wide = torch.full((num_reqs, 2, 3 * tokens), 1 << 28, dtype=torch.int32)
    wide[:, 1, ::3] = inputs.slots
    inputs.slots = wide[:, 1, ::3]
    accepted = torch.full((num_reqs, 5), -99, dtype=torch.int32)
    accepted[:, 2] = inputs.num_accepted_tokens
    inputs.num_accepted_tokens = accepted[:, 2]


def _strided_pools(inputs: KdaInputs) -> None:
    """Windows with the channel innermost; states in slots with a gap and heads in reverse order of size."""
    inputs.conv_state = inputs.conv_state.transpose(1, 2).contiguous().transpose(1, 2)
    num_slots, heads = inputs.state.shape[:2]
    wide = torch.full((heads + 1, num_slots, 2, DIM, DIM), POISON)
    wide[:heads, :, 1] = inputs.state.transpose(0, 1)
    inputs.state = wide[:heads, :, 1].transpose(0, 1)


def _wide_window(inputs: KdaInputs) -> None:
    wide = torch.full(
        (*inputs.conv_state.shape[:2], inputs.conv_state.shape[2] + 5), POISON, dtype=torch.bfloat16
    )
    wide[:, :, : inputs.conv_state.shape[2]] = inputs.conv_state
    inputs.conv_state = wide


def _strided_rows(inputs: KdaInputs) -> None:
    rows, columns = inputs.projected.shape
    wide = torch.full((rows, columns + 24), POISON, dtype=torch.bfloat16)
    wide[:, 8 : columns + 8] = inputs.projected
    inputs.projected = wide[:, 8 : columns + 8]


def _silu_tail(inputs: KdaInputs) -> None:
    """z = 80 and -80 on alternating channels."""
    inputs.conv_weight[:] = 0
    inputs.conv_weight[:, 3] = 1
    for name in ("q", "k", "v"):
        inputs.columns(name)[:, ::2] = 80
        inputs.columns(name)[:, 1::2] = -80


def _gate_saturated(inputs: KdaInputs, sign: int) -> None:
    inputs.columns("f_a")[:] = 0
    inputs.A_log[:] = 0
    inputs.dt_bias[:] = 30 * sign


def _every_rate(inputs: KdaInputs) -> None:
    inputs.A_log[:] = torch.linspace(-4, 4, inputs.heads)


def _beta_saturated(inputs: KdaInputs) -> None:
    inputs.columns("b")[:, ::2] = 40
    inputs.columns("b")[:, 1::2] = -40


def _no_key(inputs: KdaInputs) -> None:
    width = inputs.heads * DIM
    inputs.columns("k")[:] = 0
    inputs.conv_state[inputs.slots[:, 0].long(), width : 2 * width] = 0


def _no_output(inputs: KdaInputs) -> None:
    """q = k = v = 0, so o = 0 and the norm's eps decides."""
    for name in ("q", "k", "v"):
        inputs.columns(name)[:] = 0
    inputs.conv_state[inputs.slots[:, 0].long()] = 0


def _large_state(inputs: KdaInputs) -> None:
    inputs.state *= 1e6


def _gate_extreme(inputs: KdaInputs) -> None:
    inputs.columns("g")[:, ::2] = 3e4
    inputs.columns("g")[:, 1::2] = -3e4


def _every_accepted(inputs: KdaInputs) -> None:
    """A different accepted count for each request, first and last among them."""
    tokens = inputs.tokens
    counts = torch.tensor([1, tokens, (tokens + 1) // 2])[torch.arange(inputs.slots.shape[0]) % 3]
    _restart(inputs, counts)


def _restart(inputs: KdaInputs, counts: Tensor) -> None:
    inputs.num_accepted_tokens = counts.int()
    starts = inputs.slots.gather(1, counts.long().sub(1).unsqueeze(1)).squeeze(1).long()
    shape = (len(starts), *inputs.state.shape[1:])
    inputs.state[starts] = torch.randn(shape, generator=torch.Generator().manual_seed(5))


def _null_tail(inputs: KdaInputs) -> None:
    _restart(inputs, torch.ones(inputs.slots.shape[0]))
    inputs.slots[:, inputs.tokens // 2 :] = torch.tensor([0, -1])[
        torch.arange(inputs.tokens - inputs.tokens // 2) % 2
    ]


def _null_start(inputs: KdaInputs) -> None:
    """Live requests whose start slot is null begin from zeros, and leave the window's slot alone when it is that."""
    _restart(inputs, torch.ones(inputs.slots.shape[0]))
    inputs.slots[:, 0] = 0


def _same_slot(inputs: KdaInputs) -> None:
    """The start slot is the last target."""
    _restart(inputs, torch.full((inputs.slots.shape[0],), inputs.tokens))


CASES = (
    Case(name="random", change=_nothing),
    Case(name="raw gates of all bits", change=_fine_gates),
    Case(name="fresh request", change=_fresh),
    Case(name="slot 0 among live requests", change=lambda i: _first_null(i, 0)),
    Case(name="slot -1 among live requests", change=lambda i: _first_null(i, -1)),
    Case(name="all requests null", change=_all_null),
    Case(name="strided slot indices", change=_strided_slots),
    Case(name="strided pools", change=_strided_pools),
    Case(name="window wider than needed", change=_wide_window),
    Case(name="strided rows", change=_strided_rows),
    Case(name="z = 80 and -80", change=_silu_tail),
    Case(name="decay exactly 1", change=lambda i: _gate_saturated(i, -1)),
    Case(name="decay e^-5", change=lambda i: _gate_saturated(i, 1)),
    Case(name="A_log from -4 to 4", change=_every_rate),
    Case(name="b = 40 and -40", change=_beta_saturated),
    Case(name="k = 0", change=_no_key),
    Case(name="o = 0", change=_no_output),
    Case(name="state entries of 1e6", change=_large_state),
    Case(name="output gate saturated", change=_gate_extreme),
    Case(name="a different accepted count for each request", change=_every_accepted, is_for=lambda t: t > 1),
    Case(name="null tail", change=_null_tail, is_for=lambda t: t > 1),
    Case(name="null start slot", change=_null_start, is_for=lambda t: t > 1),
    Case(name="start slot is the last target", change=_same_slot, is_for=lambda t: t > 1),
)
"""Every listed value of the contracts; what needs many steps or a pool beyond 2^31 elements has tests of its own."""


def case_inputs(case: Case, heads: int, num_reqs: int, tokens: int, seed: int = 0) -> KdaInputs:
    """Inputs of a case on the CPU."""
    inputs = random_inputs(heads, num_reqs, tokens, seed)
    case.change(inputs)
    return inputs
