"""What surrounds the routed experts, on a GPU, against the oracle in float64."""

from functools import cache

import pytest
import torch
from torch import Tensor

from specialized_path.kernels.moe_experts.benchmarks import draw_weights
from specialized_path.kernels.moe_experts.launch import routed_experts
from specialized_path.kernels.moe_experts.shape import SHAPES
from specialized_path.kernels.moe_latent.geometry import FRONTS, HIDDEN, LATENT, NUM_EXPERTS, FrontShape
from specialized_path.kernels.moe_latent.launch import (
    front,
    front_buffer,
    front_outputs,
    latent_norm,
    pack_front,
    pack_tail,
    project_tail,
    select_experts,
    tail_ahead,
)
from specialized_path.reference import linear, rms_norm, situ
from specialized_path.reference import select_experts as reference_selection
from specialized_path.reference.rounding import round_to
from tests.specialized_path.kernels.replay import captured
from tests.specialized_path.kernels.tolerance import (
    ACCUMULATION,
    T1,
    T2,
    assert_close,
    assert_same_bits,
    bf16_ulp,
    relative_l2,
)

pytestmark = pytest.mark.gpu

BATCHES = (1, 3, 8, 16, 17, 33, 64)
SIZES = [pytest.param(shape, id=shape.name) for shape in FRONTS]
SCALES = pytest.mark.parametrize(
    "scale", [1.0, 2.0**12, 2.0**-12, 0.0], ids=["random", "large", "small", "0"]
)


def draw(seed: int, *size: int) -> Tensor:
    gen = torch.Generator("cuda").manual_seed(seed)
    return torch.randn(size, generator=gen, device="cuda")


def weight(seed: int, rows: int, columns: int) -> Tensor:
    return (draw(seed, rows, columns) * columns**-0.5).bfloat16()


def nan(*size: int) -> Tensor:
    return torch.full(size, float("nan"), device="cuda", dtype=torch.bfloat16)


@cache
def front_weight(shape: FrontShape) -> tuple[Tensor, ...]:
    rows = (LATENT, NUM_EXPERTS, 2 * shape.shared)
    parts = tuple(weight(i, n, HIDDEN) for i, n in enumerate(rows))
    return (*parts, pack_front(*parts))


def exact(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    """The product in float64, and the sums of its terms' magnitudes."""
    value = linear(x, w, acc_dtype=torch.float64, out_dtype=torch.float64)
    return value, x.double().abs() @ w.double().abs().T


def rounded(value: Tensor, terms: Tensor) -> tuple[Tensor, Tensor]:
    """BF16 of a product, and where FP32 sums cannot but round alike."""
    result = round_to(value, torch.bfloat16).double()
    return result, bf16_ulp(value) / 2 - (value - result).abs() > ACCUMULATION * terms


@SCALES
@pytest.mark.parametrize("num_tokens", BATCHES)
@pytest.mark.parametrize("shape", SIZES)
def test_each_part_of_the_front_agrees_with_its_oracle(
    shape: FrontShape, num_tokens: int, scale: float
) -> None:
    w_latent, w_router, w_shared, packed = front_weight(shape)
    x = (draw(num_tokens, num_tokens, HIDDEN) * scale).bfloat16()
    buffer = front_buffer(packed).fill_(0xFF)
    found = front(x, packed, buffer=buffer)
    value, terms = exact(x, w_latent)
    assert_close(found.latent, value, T1, term_magnitudes=terms)
    value, terms = exact(x, w_router)
    assert bool(((found.logits.double() - value).abs() <= ACCUMULATION * terms).all())
    products, is_clear = rounded(*exact(x, w_shared))
    gate, up = products.chunk(2, dim=-1)
    is_clear = torch.stack(is_clear.chunk(2, dim=-1)).all(dim=0)
    assert bool(found.shared_hidden.isfinite().all()) and is_clear.double().mean().item() > 0.8
    hidden = situ(gate, up, acc_dtype=torch.float64)
    assert_close(found.shared_hidden[is_clear], hidden[is_clear], T1)


def test_the_front_leaves_what_lies_behind_the_batch_alone() -> None:
    packed = front_weight(FRONTS[1])[-1]
    buffer = front_buffer(packed).fill_(0xFF)
    front(draw(1, 5, HIDDEN).bfloat16(), packed, buffer=buffer)
    everything = front_outputs(buffer, 64)
    behind = [view[5:].isnan().all() for view in (everything.latent, everything.logits, everything.tail)]
    behind.append(everything.normed.isnan().all())
    assert bool(torch.stack(behind).all())


def on_a_grid(num_tokens: int) -> Tensor:
    """Logits with many equal ones, and no two keys nearer than 1e-4 that are not equal."""
    return (draw(num_tokens, num_tokens, NUM_EXPERTS) * 16).round() / 16


def with_non_finite(logits: Tensor) -> Tensor:
    logits = logits.clone()
    logits[:, ::3] = float("nan")
    logits[:, 1::50], logits[:, 2::50] = float("inf"), -float("inf")
    return logits


ROUTINGS = {
    "ties": lambda n: on_a_grid(n),
    "all equal": lambda n: torch.full((n, NUM_EXPERTS), 0.25, device="cuda"),
    "two values": lambda n: (draw(n, n, NUM_EXPERTS) > 1.5).float(),
    "saturated": lambda n: on_a_grid(n) * 16,
    "not finite": lambda n: with_non_finite(on_a_grid(n)),
    "NaN but for nine": lambda n: torch.where(
        torch.arange(NUM_EXPERTS, device="cuda") % 100 == 99, on_a_grid(n), float("nan")
    ),
    "one or zero": lambda n: on_a_grid(n).sign() * 1e4,
    "all zero": lambda n: torch.full((n, NUM_EXPERTS), -1e4, device="cuda"),
    "falling": lambda n: -torch.arange(NUM_EXPERTS, device="cuda").float().expand(n, -1).contiguous() / 64,
}


@pytest.mark.parametrize("num_tokens", [1, 7, 64])
@pytest.mark.parametrize("routing", ROUTINGS)
def test_the_chosen_experts_are_the_oracles_lower_ids_first_on_a_tie(routing: str, num_tokens: int) -> None:
    logits, bias = ROUTINGS[routing](num_tokens), torch.zeros(NUM_EXPERTS, device="cuda")
    ids, _ = select_experts(logits, bias)
    expected, _ = reference_selection(logits, bias, top_k=16)
    assert torch.equal(ids, expected)


@pytest.mark.parametrize("num_tokens", [1, 64])
@pytest.mark.parametrize("num_bytes", [0, 14, 4096, 5 << 20])
def test_weights_that_come_to_l2_meanwhile_change_neither_ids_nor_weights(
    num_tokens: int, num_bytes: int
) -> None:
    logits, bias = draw(num_tokens, num_tokens, NUM_EXPERTS), draw(2, NUM_EXPERTS) / 8
    ahead = draw(3, num_bytes // 2).bfloat16()
    before = ahead.clone()
    expected = select_experts(logits, bias)
    found = select_experts(logits, bias, weights=nan(num_tokens, 16), ahead=ahead)
    assert_same_bits(ahead, before)
    for mine, theirs in zip(found, expected, strict=True):
        assert_same_bits(mine, theirs)


@pytest.mark.parametrize("num_tokens", [1, 7, 64])
@pytest.mark.parametrize("bias_spread", [0.125, 100.0])
@pytest.mark.parametrize("spread", [0.01, 1.0, 10.0])
def test_no_expert_that_was_left_out_has_a_larger_key(
    num_tokens: int, spread: float, bias_spread: float
) -> None:
    logits, bias = draw(1, num_tokens, NUM_EXPERTS) * spread, draw(2, NUM_EXPERTS) * bias_spread
    ids, _ = select_experts(logits, bias)
    keys = logits.double().sigmoid() + bias.double()
    chosen = keys.gather(1, ids.long())
    best = keys.sort(dim=1, descending=True).values[:, :16]
    # Two FP32 roundings, of the sigmoid and of the sum.
    allowed = 2.0**-23 * (1.0 + bias.double().abs().max().item())
    assert (chosen - best).abs().max().item() <= allowed and all(len(set(row)) == 16 for row in ids.tolist())


@pytest.mark.parametrize("spread", [0.01, 1.0, 10.0, 60.0])
def test_weights_are_renormalised_sigmoids_that_no_bias_moves(spread: float) -> None:
    logits, bias = -(draw(3, 64, NUM_EXPERTS) * spread).abs(), draw(4, NUM_EXPERTS)
    ids, weights = select_experts(logits, bias, weights=nan(64, 16))
    scores = logits.double().sigmoid().gather(1, ids.long())
    assert_close(weights, scores / (scores.sum(1, keepdim=True) + 1e-20), T1)


@SCALES
@pytest.mark.parametrize("num_tokens", [1, 64])
def test_the_norm_agrees_with_the_oracle(num_tokens: int, scale: float) -> None:
    x, w = (draw(5, num_tokens, LATENT) * scale).bfloat16(), draw(6, LATENT).bfloat16()
    out = latent_norm(x, w, out=nan(num_tokens, LATENT))
    assert_close(out, rms_norm(x, w, acc_dtype=torch.float64), T1)


def test_the_norm_leaves_what_lies_between_its_rows_alone() -> None:
    room = nan(5, LATENT + 384)
    latent_norm(draw(5, 5, LATENT).bfloat16(), draw(6, LATENT).bfloat16(), out=room[:, :LATENT])
    assert bool(room[:, :LATENT].isfinite().all()) and bool(room[:, LATENT:].isnan().all())


@cache
def tail_weight(shape: FrontShape) -> tuple[Tensor, Tensor]:
    return weight(7, HIDDEN, LATENT), weight(14, HIDDEN, shape.shared)


@SCALES
@pytest.mark.parametrize("num_tokens", BATCHES)
@pytest.mark.parametrize("shape", SIZES)
def test_the_layers_output_is_the_sum_of_both_products_rounded_once(
    shape: FrontShape, num_tokens: int, scale: float
) -> None:
    x = (draw(num_tokens, num_tokens, shape.tail_inputs) * scale).bfloat16()
    w = pack_tail(*tail_weight(shape))
    value, terms = exact(x, w)
    assert_close(project_tail(x, w, out=nan(num_tokens, HIDDEN)), value, T1, term_magnitudes=terms)


@pytest.mark.parametrize("shape", SIZES)
def test_the_layers_output_lies_near_the_contracts_three_roundings(shape: FrontShape) -> None:
    x, (w_up, w_down) = draw(3, 64, shape.tail_inputs).bfloat16(), tail_weight(shape)
    parts = (rounded(*exact(x[:, :LATENT], w_up))[0], rounded(*exact(x[:, LATENT:], w_down))[0])
    expected = round_to(parts[0] + parts[1], torch.bfloat16)
    assert relative_l2(project_tail(x, pack_tail(w_up, w_down)), expected) < T2.relative_l2


@pytest.mark.parametrize("num_tokens", [3, 16, 33, 64])
def test_a_row_has_the_same_bits_at_every_place_of_a_batch(num_tokens: int) -> None:
    packed, w = front_weight(FRONTS[0])[-1], pack_tail(*tail_weight(FRONTS[0]))
    x = draw(10, num_tokens, HIDDEN).bfloat16()

    def chain(x: Tensor) -> list[Tensor]:
        found = front(x, packed)
        ids, weights = select_experts(found.logits, torch.zeros(NUM_EXPERTS, device="cuda"))
        latent_norm(found.latent, w[0, :LATENT].contiguous(), out=found.normed)
        return [found.latent, found.logits, found.tail, ids, weights, project_tail(found.tail, w)]

    for straight, turned in zip(chain(x), chain(x.roll(1, 0)), strict=True):
        assert_same_bits(turned, straight.roll(1, 0))


@pytest.mark.parametrize("num_tokens", [1, 8, 64])
@pytest.mark.parametrize("at", [0, 1], ids=["tp8", "tp16"])
def test_the_whole_half_layer_has_the_same_bits_in_every_replay_and_without_early_launches(
    at: int, num_tokens: int
) -> None:
    packed, experts = front_weight(FRONTS[at])[-1], draw_weights(SHAPES[at])
    bias, w_tail, w_norm = (
        draw(11, NUM_EXPERTS) / 8,
        pack_tail(*tail_weight(FRONTS[at])),
        draw(13, LATENT).bfloat16(),
    )
    buffer = front_buffer(packed)
    x = draw(15, num_tokens, HIDDEN).bfloat16()
    hidden, combined = nan(num_tokens, 16, SHAPES[at].intermediate), nan(num_tokens, LATENT)
    ids, weights = torch.empty(num_tokens, 16, dtype=torch.int32, device="cuda"), nan(num_tokens, 16)

    def half_layer(x: Tensor, out: Tensor, use_pdl: bool) -> Tensor:
        found = front(x, packed, buffer=buffer, use_pdl=use_pdl)
        ahead = tail_ahead(w_tail, num_tokens)
        select_experts(found.logits, bias, ids=ids, weights=weights, ahead=ahead, use_pdl=use_pdl)
        routed_experts(found.latent, ids, weights, experts, hidden=hidden, out=combined, use_pdl=use_pdl)
        latent_norm(combined, w_norm, out=found.normed, use_pdl=use_pdl)
        return project_tail(found.tail, w_tail, out=out, use_pdl=use_pdl)

    outs = [nan(num_tokens, HIDDEN) for _ in range(8)]
    expected = []
    rows = x
    for _ in outs:
        rows = half_layer(rows, nan(num_tokens, HIDDEN), False)
        expected.append(rows.clone())

    def layers() -> None:
        rows = x
        for out in outs:
            rows = half_layer(rows, out, True)

    graph = captured(layers)
    for _ in range(3):
        graph.replay()
    assert_same_bits(torch.stack(outs), torch.stack(expected))
