"""The exchange on one GPU: N ranks in one process, published and consumed in phases, or on streams with a late rank."""

import dataclasses
import os

import pytest
import torch

from specialized_path.kernels.attn_res.launch import attn_res_after_attention
from specialized_path.kernels.exchange.boxes import count_full_words, empty_box, make_box, make_table
from specialized_path.kernels.exchange.launch import (
    attn_res_after_exchange,
    publish_projection,
    reduce_chunks,
)
from specialized_path.kernels.exchange.protocol import BoxLayout
from specialized_path.reference import rank_order_sum
from tests.specialized_path.kernels.exchange.payloads import HIDDEN, INPUTS, NAMES, payload
from tests.specialized_path.kernels.tolerance import assert_same_bits

# Streams share eight hardware queues unless told otherwise before CUDA starts: a late rank would stand behind the
# ranks that wait for it.
os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "32")

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU"),
]

MAX_ROWS, NUM_BLOCKS = 64, 3
LAYER = 25
RANKS = [pytest.param(8, id="tp8"), pytest.param(16, id="tp16")]
SHOTS = [pytest.param(False, id="one-shot"), pytest.param(True, id="two-shot")]
LAUNCHES = [pytest.param(False, id="plain"), pytest.param(True, id="dependent")]
FEW_POLLS = 20_000


@dataclasses.dataclass
class Ranks:
    """All ranks' boxes, tables and error words; `boxes[box][rank, copy]`."""

    num_ranks: int
    is_two_shot: bool
    boxes: tuple[torch.Tensor, ...]
    tables: tuple[list[torch.Tensor], ...]
    errors: torch.Tensor
    """[N, 4] int32, a word of each rank's own at an aligned address, for launches that serve one rank."""
    joint_errors: torch.Tensor
    """[N] int32, for launches that serve all."""
    use_pdl: bool = False
    """Whether every kernel of an exchange is launched before the one in front has completed."""

    @property
    def failed(self):
        return bool(self.errors.any() or self.joint_errors.any())

    @property
    def result(self):
        return self.boxes[-1]

    def publish(self, rank, x, weight, copy):
        table = self.tables[0][rank][copy]
        publish_projection(x, weight, table, is_two_shot=self.is_two_shot, use_pdl=self.use_pdl)

    def reduce(self, rank, num_rows, copy, **kwargs):
        if self.is_two_shot:
            chunks = self.boxes[0][rank, copy]
            reduce_chunks(
                chunks,
                self.tables[1][rank][copy],
                self.errors[rank, :1],
                num_rows=num_rows,
                use_pdl=self.use_pdl,
                **kwargs,
            )

    def full_words(self):
        return sum(count_full_words(box) for box in self.boxes)


def connect(num_ranks, is_two_shot, copies=2, *, use_pdl=False):
    width = HIDDEN // num_ranks if is_two_shot else HIDDEN
    layout = BoxLayout(num_ranks=num_ranks, max_rows=MAX_ROWS, width=width, copies=copies)
    boxes, tables = [], []
    for _ in range(1 + is_two_shot):
        box = torch.stack([make_box(layout, "cuda") for _ in range(num_ranks)])
        addresses = [box[rank].data_ptr() for rank in range(num_ranks)]
        boxes.append(box)
        tables.append([make_table(addresses, layout, rank, "cuda") for rank in range(num_ranks)])
    errors = [
        torch.zeros(*shape, dtype=torch.int32, device="cuda") for shape in ((num_ranks, 4), (num_ranks,))
    ]
    return Ranks(num_ranks, is_two_shot, tuple(boxes), tuple(tables), *errors, use_pdl)


def residual_inputs(num_ranks, num_rows, seed=0, num_blocks=NUM_BLOCKS):
    generator = torch.Generator("cuda").manual_seed(seed)

    def draw(*shape):
        return torch.randn(*shape, generator=generator, device="cuda").bfloat16()

    prefix, blocks = draw(num_rows, HIDDEN), draw(num_rows, num_blocks, HIDDEN)
    return prefix.repeat(num_ranks, 1), blocks.repeat(num_ranks, 1, 1), [draw(HIDDEN) for _ in range(3)]


def consume(ranks, copy, prefix, blocks, weights, layer_idx=LAYER, **kwargs):
    """All ranks' rows in one launch, rank as a part of the grid."""
    return attn_res_after_exchange(
        prefix,
        blocks,
        ranks.result[:, copy],
        *weights,
        ranks.joint_errors,
        layer_idx=layer_idx,
        is_two_shot=ranks.is_two_shot,
        use_pdl=ranks.use_pdl,
        **kwargs,
    )


def exchange(ranks, x, weight, copy, **kwargs):
    """Phase by phase: everything is published before anything is consumed."""
    for rank in range(ranks.num_ranks):
        ranks.publish(rank, x[rank], weight[rank], copy)
    for rank in range(ranks.num_ranks):
        ranks.reduce(rank, x.shape[1], copy)
    return consume(ranks, copy, *kwargs.pop("inputs"), **kwargs)


def expect(partials, inputs, layer_idx=LAYER):
    """The attention residual kernel behind the oracle's sum, for one rank."""
    prefix, blocks, weights = inputs
    num_rows = partials.shape[1]
    attended = rank_order_sum(partials)
    return attn_res_after_attention(
        prefix[:num_rows], blocks[:num_rows], attended, *weights, layer_idx=layer_idx, use_pdl=False
    )


def assert_same_numbers(got, wanted):
    """The same bits, but for what kind of NaN a NaN is."""
    assert torch.equal(got.isnan(), wanted.isnan())
    assert_same_bits(got.nan_to_num(nan=0.0), wanted.nan_to_num(nan=0.0))


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
    num_ranks, ranks = 8, connect(8, is_two_shot, use_pdl=use_pdl)
    generator = torch.Generator("cuda").manual_seed(11)
    x = torch.randn(num_ranks, MAX_ROWS, INPUTS[8], generator=generator, device="cuda").bfloat16()
    weight = torch.randn(num_ranks, HIDDEN, INPUTS[8], generator=generator, device="cuda").bfloat16()
    wrong = torch.zeros((), dtype=torch.int64, device="cuda")
    for iteration in range(1000):
        num_rows = (1, 8, 2, 5, 4)[iteration % 5]
        now = x[:, :num_rows].roll(iteration, dims=2).contiguous()
        inputs = residual_inputs(num_ranks, num_rows, seed=iteration % 7)
        out, prefix = exchange(ranks, now, weight, iteration % 2, inputs=inputs)
        by_rank = prefix.unflatten(0, (num_ranks, num_rows)).view(torch.int16)
        wrong += (by_rank != by_rank[:1]).sum() + out.isnan().sum()
        if iteration % 50 == 0:
            partials = torch.stack([now[r].float() @ weight[r].float().T for r in range(num_ranks)]).sum(0)
            wanted = inputs[0][:num_rows].float() + partials
            error = (prefix[:num_rows].float() - wanted).norm() / wanted.norm()
            assert error < 1e-2, (iteration, error.item())
    assert int(wrong) == 0 and ranks.full_words() == 0 and not ranks.failed


@pytest.mark.parametrize("late", range(4))
@pytest.mark.parametrize("is_two_shot", SHOTS)
def test_ranks_on_streams_of_their_own_wait_for_the_one_that_is_late(is_two_shot, late):
    num_ranks, num_rows = 8, 1
    x, weight, partials = payload("normal", num_ranks, num_rows)
    ranks, inputs = connect(num_ranks, is_two_shot), residual_inputs(num_ranks, num_rows)
    exchange(ranks, x, weight, 1, inputs=inputs)
    # A kernel is loaded at its first launch, which would wait for the ranks that wait.
    torch.cuda._sleep(1)
    streams = [torch.cuda.Stream() for _ in range(num_ranks)]
    outs = [
        torch.full((num_rows, HIDDEN), float("nan"), device="cuda").bfloat16() for _ in range(2 * num_ranks)
    ]
    torch.cuda.synchronize()
    for rank in [r for r in range(num_ranks) if r != late] + [late]:
        with torch.cuda.stream(streams[rank]):
            if rank == late:
                torch.cuda._sleep(2_000_000)
            ranks.publish(rank, x[rank], weight[rank], 0)
            ranks.reduce(rank, num_rows, 0)
            prefix, blocks, weights = inputs
            attn_res_after_exchange(
                prefix[:num_rows],
                blocks[:num_rows],
                ranks.result[rank : rank + 1, 0],
                *weights,
                ranks.errors[rank, :1],
                layer_idx=LAYER,
                is_two_shot=is_two_shot,
                out=outs[2 * rank],
                prefix_out=outs[2 * rank + 1],
                use_pdl=False,
            )
    torch.cuda.synchronize()
    wanted_out, wanted_prefix = expect(partials, inputs)
    for rank in range(num_ranks):
        assert_same_bits(outs[2 * rank], wanted_out)
        assert_same_bits(outs[2 * rank + 1], wanted_prefix)
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
