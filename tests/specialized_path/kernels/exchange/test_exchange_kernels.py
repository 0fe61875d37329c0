"""The exchange on one GPU: N ranks in one process, published and consumed in phases, or on streams with a late rank."""

import dataclasses

import pytest
import torch

from specialized_path.kernels.exchange.boxes import empty_box
from tests.specialized_path.kernels.exchange.payloads import HIDDEN, INPUTS, NAMES, payload
from tests.specialized_path.kernels.exchange.ranks import (
    FEW_POLLS,
    LAYER,
    assert_same_numbers,
    connect,
    consume,
    exchange,
    exchange_on_streams,
    expect,
    residual_inputs,
    wrong_words_of_many,
)
from tests.specialized_path.kernels.tolerance import assert_same_bits

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU"),
]

RANKS = [pytest.param(8, id="tp8"), pytest.param(16, id="tp16")]
SHOTS = [pytest.param(False, id="one-shot"), pytest.param(True, id="two-shot")]
LAUNCHES = [pytest.param(False, id="plain"), pytest.param(True, id="dependent")]


@pytest.mark.parametrize("layer_idx", [LAYER, 24], ids=["add", "block write"])
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("is_two_shot", SHOTS)
@pytest.mark.parametrize("num_ranks", RANKS)
def test_every_rank_gets_the_bits_of_the_rank_order_sum(num_ranks, is_two_shot, name, layer_idx):
    x, weight, partials = payload(name, num_ranks, 3)
    ranks, inputs = connect(num_ranks, is_two_shot), residual_inputs(num_ranks, partials.shape[1])
    out, prefix = exchange(ranks, x, weight, 0, inputs=inputs, layer_idx=layer_idx)
    wanted_out, wanted_prefix = expect(partials, inputs, layer_idx)
    assert_same_numbers(prefix, wanted_prefix.repeat(num_ranks, 1))
    assert_same_numbers(out, wanted_out.repeat(num_ranks, 1))
    assert ranks.full_words() == 0 and not ranks.failed


@pytest.mark.parametrize("num_ranks", RANKS)
def test_the_plain_projection_of_negative_zeros_stores_words_that_look_empty(num_ranks):
    from specialized_path.kernels.projection.launch import project

    x, weight, partials = payload("negative zeros", num_ranks, 3)
    assert_same_bits(project(x[0], weight[0], use_pdl=False), partials[0])


@pytest.mark.parametrize("layer_idx", [*range(0, 96, 12), *range(1, 96, 12)])
@pytest.mark.parametrize("is_two_shot", SHOTS)
@pytest.mark.parametrize("num_ranks", RANKS)
def test_every_number_of_blocks_is_mixed_as_without_an_exchange(num_ranks, is_two_shot, layer_idx):
    x, weight, partials = payload("normal", num_ranks, 2)
    ranks, inputs = connect(num_ranks, is_two_shot), residual_inputs(num_ranks, 2, num_blocks=8)
    out, _ = exchange(ranks, x, weight, 0, inputs=inputs, layer_idx=layer_idx)
    assert_same_bits(out, expect(partials, inputs, layer_idx)[0].repeat(num_ranks, 1))


@pytest.mark.parametrize("num_rows", [1, 2, 8, 9, 16, 32, 64])
@pytest.mark.parametrize("is_two_shot", SHOTS)
@pytest.mark.parametrize("num_ranks", RANKS)
def test_real_products_of_every_batch_are_summed_as_the_plain_projections_are(
    num_ranks, is_two_shot, num_rows
):
    from specialized_path.kernels.projection.launch import project

    generator = torch.Generator("cuda").manual_seed(num_rows)
    shape = (num_ranks, num_rows, INPUTS[num_ranks])
    x = torch.randn(*shape, generator=generator, device="cuda").bfloat16()
    weight = torch.randn(num_ranks, HIDDEN, INPUTS[num_ranks], generator=generator, device="cuda").bfloat16()
    partials = torch.stack([project(x[r], weight[r], use_pdl=False) for r in range(num_ranks)]) + 0.0
    ranks, inputs = connect(num_ranks, is_two_shot), residual_inputs(num_ranks, num_rows)
    out, prefix = exchange(ranks, x, weight, 1, inputs=inputs)
    wanted_out, wanted_prefix = expect(partials, inputs)
    assert_same_bits(prefix, wanted_prefix.repeat(num_ranks, 1))
    assert_same_bits(out, wanted_out.repeat(num_ranks, 1))
    assert ranks.full_words() == 0


@pytest.mark.parametrize("use_pdl", LAUNCHES)
@pytest.mark.parametrize("is_two_shot", SHOTS)
def test_a_thousand_exchanges_with_changing_batch_and_data_leave_every_box_empty(is_two_shot, use_pdl):
    ranks = connect(8, is_two_shot, use_pdl=use_pdl)
    assert wrong_words_of_many(ranks, 1000, (1, 8, 2, 5, 4)) == 0
    assert ranks.full_words() == 0 and not ranks.failed


@pytest.mark.parametrize("late", range(4))
@pytest.mark.parametrize("is_two_shot", SHOTS)
def test_ranks_on_streams_of_their_own_wait_for_the_one_that_is_late(is_two_shot, late):
    x, weight, partials = payload("normal", 8, 1)
    ranks, inputs = connect(8, is_two_shot), residual_inputs(8, 1)
    # A kernel is loaded at its first launch, which would wait for the ranks that wait.
    exchange(ranks, x, weight, 1, inputs=inputs)
    torch.cuda._sleep(1)
    outs = exchange_on_streams(ranks, x, weight, 0, inputs, late)
    assert_same_bits(outs, torch.stack(expect(partials, inputs)).expand_as(outs).contiguous())
    assert ranks.full_words() == 0 and not ranks.failed


@pytest.mark.parametrize("absent", [0, 5])
def test_a_rank_that_never_arrives_is_named_in_bounded_time_and_an_emptied_box_serves_again(absent):
    num_ranks, num_rows = 8, 2
    x, weight, partials = payload("normal", num_ranks, num_rows)
    ranks, inputs = connect(num_ranks, False), residual_inputs(num_ranks, num_rows)
    for rank in range(num_ranks):
        if rank != absent:
            ranks.publish(rank, x[rank], weight[rank], 0)
    out, _ = consume(ranks, 0, *inputs, polls=FEW_POLLS)
    assert ranks.joint_errors.tolist() == [1 + absent] * num_ranks
    assert out.isnan().all()
    for box in ranks.boxes:
        empty_box(box)
    out, _ = exchange(ranks, x, weight, 0, inputs=inputs)
    assert_same_bits(out, expect(partials, inputs)[0].repeat(num_ranks, 1))


def test_a_two_shot_exchange_names_the_owner_that_never_arrives():
    num_ranks, num_rows, absent = 8, 1, 6
    x, weight, _ = payload("normal", num_ranks, num_rows)
    ranks, inputs = connect(num_ranks, True), residual_inputs(num_ranks, num_rows)
    for rank in range(num_ranks):
        ranks.publish(rank, x[rank], weight[rank], 0)
    for rank in range(num_ranks):
        if rank != absent:
            ranks.reduce(rank, num_rows, 0)
    out, _ = consume(ranks, 0, *inputs, polls=FEW_POLLS)
    assert ranks.joint_errors.tolist() == [1 + absent] * num_ranks and out.isnan().all()


def test_a_two_shot_exchange_names_the_publisher_that_never_arrives_and_an_emptied_box_serves_again():
    num_ranks, num_rows, absent = 8, 2, 3
    x, weight, partials = payload("normal", num_ranks, num_rows)
    ranks, inputs = connect(num_ranks, True), residual_inputs(num_ranks, num_rows)
    for rank in range(num_ranks):
        if rank != absent:
            ranks.publish(rank, x[rank], weight[rank], 0)
    for rank in range(num_ranks):
        ranks.reduce(rank, num_rows, 0, polls=FEW_POLLS)
    out, _ = consume(ranks, 0, *inputs, polls=FEW_POLLS)
    # The owners' NaN did arrive: the consumers awaited nobody.
    assert ranks.errors[:, 0].tolist() == [1 + absent] * num_ranks and not ranks.joint_errors.any()
    assert out.isnan().all()
    for box in ranks.boxes:
        empty_box(box)
    out, _ = exchange(ranks, x, weight, 0, inputs=inputs)
    assert_same_bits(out, expect(partials, inputs)[0].repeat(num_ranks, 1))


def run_layers(ranks, x, weight, inputs, outs):
    """Layers of one row a rank; each publishes what the one before consumed, so every kernel needs the one in front."""
    for layer, (out, prefix_out) in enumerate(outs):
        exchange(ranks, x, weight, layer % 2, inputs=inputs, out=out, prefix_out=prefix_out)
        x, inputs = out.unsqueeze(1)[..., : x.shape[-1]], (prefix_out, *inputs[1:])


@pytest.mark.parametrize("use_pdl", LAUNCHES)
@pytest.mark.parametrize("is_two_shot", SHOTS)
def test_a_graph_of_four_layers_replays_with_the_bits_of_plain_launches_and_new_data(is_two_shot, use_pdl):
    num_ranks = 8
    ranks = connect(num_ranks, is_two_shot, use_pdl=use_pdl)
    generator = torch.Generator("cuda").manual_seed(13)
    weight = torch.randn(num_ranks, HIDDEN, INPUTS[8], generator=generator, device="cuda").bfloat16()
    x = torch.randn(num_ranks, 1, INPUTS[8], generator=generator, device="cuda").bfloat16()
    inputs, plain = residual_inputs(num_ranks, 1), dataclasses.replace(ranks, use_pdl=False)

    def poisoned():
        return torch.full((4, 2, num_ranks, HIDDEN), float("nan"), dtype=torch.bfloat16, device="cuda")

    wanted = {sign: poisoned() for sign in (1, -1)}
    for sign, outs in wanted.items():
        run_layers(plain, sign * x, weight, inputs, outs)
    outs, graph = poisoned(), torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run_layers(ranks, x, weight, inputs, outs)
    assert not torch.equal(wanted[1], wanted[-1])
    first = x.clone()
    for sign in (1, 1, -1, 1):
        x.copy_(sign * first)
        outs.fill_(float("nan"))
        graph.replay()
        assert_same_bits(outs, wanted[sign])
    assert ranks.full_words() == 0 and not ranks.failed
