"""N ranks in one process on one GPU: their boxes, one exchange in phases, many of them, and one on streams."""

import dataclasses
import os

import torch

from specialized_path.kernels.attn_res.launch import attn_res_after_attention
from specialized_path.kernels.exchange.boxes import count_full_words, make_box, make_table
from specialized_path.kernels.exchange.launch import (
    attn_res_after_exchange,
    publish_projection,
    reduce_chunks,
)
from specialized_path.kernels.exchange.protocol import BoxLayout
from specialized_path.reference import rank_order_sum
from tests.specialized_path.kernels.exchange.payloads import HIDDEN, INPUTS
from tests.specialized_path.kernels.tolerance import assert_same_bits

# Streams share eight hardware queues unless told otherwise before CUDA starts: a late rank would stand behind the
# ranks that wait for it.
os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "32")

MAX_ROWS, NUM_BLOCKS = 64, 3
LAYER = 25
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


def wrong_words_of_many(ranks, num_exchanges, batches):
    """Exchanges one after the other, each of other data and the next batch: words not equal on all ranks, and NaN.

    Now and then, at every batch in turn, they are compared with the products.
    """
    num_ranks, num_inputs = ranks.num_ranks, INPUTS[ranks.num_ranks]
    generator = torch.Generator("cuda").manual_seed(11)
    x = torch.randn(num_ranks, MAX_ROWS, num_inputs, generator=generator, device="cuda").bfloat16()
    weight = torch.randn(num_ranks, HIDDEN, num_inputs, generator=generator, device="cuda").bfloat16()
    wrong = torch.zeros((), dtype=torch.int64, device="cuda")
    for iteration in range(num_exchanges):
        num_rows = batches[iteration % len(batches)]
        now = x[:, :num_rows].roll(iteration, dims=2).contiguous()
        inputs = residual_inputs(num_ranks, num_rows, seed=iteration % 7)
        out, prefix = exchange(ranks, now, weight, iteration % 2, inputs=inputs)
        by_rank = prefix.unflatten(0, (num_ranks, num_rows)).view(torch.int16)
        wrong += (by_rank != by_rank[:1]).sum() + out.isnan().sum()
        if iteration % 49 == 0:
            partials = torch.stack([now[r].float() @ weight[r].float().T for r in range(num_ranks)]).sum(0)
            wanted = inputs[0][:num_rows].float() + partials
            error = (prefix[:num_rows].float() - wanted).norm() / wanted.norm()
            assert error < 1e-2, (iteration, error.item())
    return int(wrong)


def exchange_on_streams(ranks, x, weight, copy, inputs, late):
    """A stream a rank, one of them late by a millisecond: [N, 2, B, 7168], each rank's MLP input and prefix."""
    num_ranks, num_rows = x.shape[:2]
    streams = [torch.cuda.Stream() for _ in range(num_ranks)]
    outs = torch.full((num_ranks, 2, num_rows, HIDDEN), float("nan"), dtype=torch.bfloat16, device="cuda")
    torch.cuda.synchronize()
    for rank in [r for r in range(num_ranks) if r != late] + [late]:
        with torch.cuda.stream(streams[rank]):
            if rank == late:
                torch.cuda._sleep(2_000_000)
            ranks.publish(rank, x[rank], weight[rank], copy)
            ranks.reduce(rank, num_rows, copy)
            prefix, blocks, weights = inputs
            attn_res_after_exchange(
                prefix[:num_rows],
                blocks[:num_rows],
                ranks.result[rank : rank + 1, copy],
                *weights,
                ranks.errors[rank, :1],
                layer_idx=LAYER,
                is_two_shot=ranks.is_two_shot,
                out=outs[rank, 0],
                prefix_out=outs[rank, 1],
                use_pdl=False,
            )
    torch.cuda.synchronize()
    return outs
