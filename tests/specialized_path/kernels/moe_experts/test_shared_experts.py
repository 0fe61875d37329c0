"""Shared experts and dense MLP: what the host side decides, and on a GPU the kernels against the oracle in float64."""

import pytest
import torch
from torch import Tensor

from specialized_path.kernels.moe_experts.shared_launch import (
    PackedSharedExperts,
    pack_shared_experts,
    shared_experts,
)
from specialized_path.kernels.moe_experts.shared_variants import (
    DENSE,
    HIDDEN,
    INTERMEDIATE,
    find_shared_variant,
    shared_variants,
)
from specialized_path.reference import linear, situ
from specialized_path.reference.rounding import round_to
from tests.specialized_path.kernels.replay import captured
from tests.specialized_path.kernels.tolerance import (
    ACCUMULATION,
    T1,
    assert_close,
    assert_same_bits,
    bf16_ulp,
)

BATCHES = (1, 3, 8, 16, 17, 33, 64)
SIZES = [
    pytest.param(size, id=f"{name}{mlp}")
    for mlp, sizes in (("", INTERMEDIATE), (" dense", DENSE))
    for name, size in sizes.items()
]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("part", ["gate_up", "down"])
def test_every_batch_is_served_by_exactly_one_variant(part, size):
    for tokens in range(1, 65):
        serving = [
            v
            for v in shared_variants()
            if (v.part, v.intermediate) == (part, size)
            and v.kernel.batches[0] <= tokens <= v.kernel.batches[1]
        ]
        assert serving == [find_shared_variant(part, size, tokens)]


@pytest.mark.parametrize("variant", [pytest.param(v, id=v.kernel.name) for v in shared_variants()])
def test_a_cut_fits_its_weight(variant):
    assert variant.tactic.problems(*variant.weight_size) == []


@pytest.mark.parametrize(("tokens", "size"), [(0, 768), (65, 384), (1, 512)])
def test_what_no_variant_serves_is_refused(tokens, size):
    with pytest.raises(ValueError, match="shared experts: got"):
        find_shared_variant("down", size, tokens)


def test_gate_and_up_rows_take_turns_in_the_packed_weight():
    packed = pack_shared_experts(torch.arange(8.0).unsqueeze(1), torch.zeros(3, 4))
    assert packed.gate_up.flatten().tolist() == [0, 4, 1, 5, 2, 6, 3, 7]


def test_a_weight_with_half_its_rows_is_refused():
    with pytest.raises(ValueError, match="w_gate_up rows: got 4, expected 8"):
        pack_shared_experts(torch.zeros(4, 2), torch.zeros(2, 4))


def weights_of(size: int) -> tuple[Tensor, Tensor, PackedSharedExperts]:
    gen = torch.Generator("cuda").manual_seed(size)
    up = (torch.randn(2 * size, HIDDEN, generator=gen, device="cuda") * 2 * HIDDEN**-0.5).bfloat16()
    down = (torch.randn(HIDDEN, size, generator=gen, device="cuda") * size**-0.5).bfloat16()
    return up, down, pack_shared_experts(up, down)


def activations_of(num_tokens: int) -> Tensor:
    gen = torch.Generator("cuda").manual_seed(num_tokens)
    return torch.randn(num_tokens, HIDDEN, generator=gen, device="cuda").bfloat16()


def expected_hidden(x: Tensor, w_gate_up: Tensor) -> tuple[Tensor, Tensor]:
    """The activation of rounded gates and ups, and where FP32 sums cannot but round both as float64 does."""
    products = linear(x, w_gate_up, acc_dtype=torch.float64, out_dtype=torch.float64)
    rounded = round_to(products, torch.bfloat16).double()
    room = bf16_ulp(products) / 2 - (products - rounded).abs()
    is_clear = room > ACCUMULATION * (x.double().abs() @ w_gate_up.double().abs().T)
    gate, up = rounded.chunk(2, dim=-1)
    return situ(gate, up, acc_dtype=torch.float64), torch.stack(is_clear.chunk(2, dim=-1)).all(dim=0)


@pytest.mark.gpu
@pytest.mark.parametrize(
    "scale", [1.0, 2.0**12, 2.0**-12, 0.0], ids=["random", "saturating", "small", "zero"]
)
@pytest.mark.parametrize("num_tokens", BATCHES)
@pytest.mark.parametrize("size", SIZES)
def test_both_halves_agree_with_the_oracle(size: int, num_tokens: int, scale: float) -> None:
    up, down, weights = weights_of(size)
    x = activations_of(num_tokens) * scale
    hidden = torch.full((num_tokens, size), float("nan"), device="cuda", dtype=torch.bfloat16)
    out = torch.full((num_tokens, HIDDEN), float("nan"), device="cuda", dtype=torch.bfloat16)
    shared_experts(x, weights, hidden=hidden, out=out)
    value, is_clear = expected_hidden(x, up)
    assert_close(hidden[is_clear], value[is_clear], T1)
    expected = linear(hidden, down, acc_dtype=torch.float64, out_dtype=torch.float64)
    magnitudes = hidden.double().abs() @ down.double().abs().T
    assert_close(out, expected, T1, term_magnitudes=magnitudes)


@pytest.mark.gpu
@pytest.mark.parametrize("num_tokens", BATCHES)
@pytest.mark.parametrize("size", SIZES)
def test_every_replay_has_the_same_bits(size: int, num_tokens: int) -> None:
    *_, weights = weights_of(size)
    x = activations_of(num_tokens)
    hidden = torch.empty(num_tokens, size, device="cuda", dtype=torch.bfloat16)
    outs = [torch.empty(num_tokens, HIDDEN, device="cuda", dtype=torch.bfloat16) for _ in range(20)]
    graph = captured(lambda: [shared_experts(x, weights, hidden=hidden, out=out) for out in outs])
    first = shared_experts(x, weights, use_pdl=False)
    for out in outs:
        out.fill_(float("nan"))
    graph.replay()
    assert_same_bits(torch.stack(outs), first.expand(20, -1, -1).contiguous())


@pytest.mark.gpu
@pytest.mark.parametrize("num_tokens", BATCHES[1:])
def test_a_token_has_the_same_bits_at_every_position_of_a_batch(num_tokens: int) -> None:
    *_, weights = weights_of(384)
    together = shared_experts(activations_of(1).expand(num_tokens, -1).contiguous(), weights)
    assert_same_bits(together, together[:1].expand(num_tokens, -1).contiguous())
