"""Rows through the boxes on one GPU: N ranks in one process, published first and then taken."""

import pytest
import torch

from specialized_path.kernels.exchange.boxes import count_full_words, make_box, make_table
from specialized_path.kernels.exchange.protocol import BoxLayout
from specialized_path.kernels.exchange.row_launch import gather_rows, publish_rows, sum_rows
from specialized_path.kernels.mla.launch import dcp_merge
from specialized_path.reference import rank_order_sum
from tests.specialized_path.kernels.tolerance import assert_same_bits

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU"),
]

MAX_ROWS = 64
RANKS = [pytest.param(8, id="tp8"), pytest.param(16, id="tp16")]
ROWS = [pytest.param(rows, id=f"rows={rows}") for rows in (1, 7, 64)]
LAUNCHES = [pytest.param(False, id="plain"), pytest.param(True, id="dependent")]
FEW_POLLS = 20_000


class Ranks:
    """All ranks' boxes, of one copy, with their tables and error words."""

    def __init__(self, num_ranks, *, halves, floats=0):
        layout = BoxLayout(num_ranks=num_ranks, max_rows=MAX_ROWS, width=2 * floats + halves, copies=1)
        self.boxes = [make_box(layout, "cuda") for _ in range(num_ranks)]
        addresses = [box.data_ptr() for box in self.boxes]
        self.tables = [make_table(addresses, layout, rank, "cuda")[0] for rank in range(num_ranks)]
        self.errors = torch.zeros(num_ranks, 4, dtype=torch.int32, device="cuda")

    def taken(self, take, rank, *args, **kwargs):
        take(self.boxes[rank][0], self.errors[rank, :1], *args, **kwargs)

    def at_rest(self):
        return not self.errors.any() and not any(map(count_full_words, self.boxes))


def draw(*shape, seed=0, dtype=torch.bfloat16):
    generator = torch.Generator("cuda").manual_seed(seed)
    return torch.randn(*shape, generator=generator, device="cuda").to(dtype)


def nothing(*shape, dtype=torch.bfloat16):
    return torch.full(shape, float("nan"), dtype=dtype, device="cuda")


def with_words_that_look_empty(rows):
    """-0 in all the ways in which it can make a word: all of it, its high half, its low half."""
    rows[..., 0:2], rows[..., 2:4] = -0.0, 0.0
    rows[..., 3], rows[..., 4:6] = -0.0, 0.0
    rows[..., 4] = -0.0
    return rows


def gather_columns(ranks, shards, floats, *, use_pdl=False):
    """Every rank's columns of [N, B, W] and [N, B, F], gathered by each rank: [N, B, N * W], [N, B, N * F]."""
    count, num_rows = shards.shape[:2]
    for rank in range(count):
        publish_rows(shards[rank], ranks.tables[rank], floats=floats[rank], use_pdl=use_pdl)
    found = nothing(count, num_rows, count * shards.shape[2])
    found_floats = nothing(count, num_rows, count * floats.shape[2], dtype=torch.float32)
    for rank in range(count):
        columns, float_columns = (
            t[rank].unflatten(1, (count, -1)).transpose(0, 1) for t in (found, found_floats)
        )
        ranks.taken(gather_rows, rank, columns, floats=float_columns, use_pdl=use_pdl)
    return found, found_floats


@pytest.mark.parametrize("use_pdl", LAUNCHES)
@pytest.mark.parametrize("num_rows", ROWS)
@pytest.mark.parametrize("num_ranks", RANKS)
def test_every_rank_gathers_the_columns_of_all(num_ranks, num_rows, use_pdl):
    latents, logits = draw(num_rows, 3584), draw(num_rows, 896, seed=1, dtype=torch.float32)
    ranks = Ranks(num_ranks, halves=3584 // num_ranks, floats=896 // num_ranks)
    shards = latents.unflatten(1, (num_ranks, -1)).transpose(0, 1).contiguous()
    float_shards = logits.unflatten(1, (num_ranks, -1)).transpose(0, 1).contiguous()
    found, found_floats = gather_columns(ranks, shards, float_shards, use_pdl=use_pdl)
    assert_same_bits(found, latents.expand_as(found).contiguous())
    assert_same_bits(found_floats, logits.expand_as(found_floats).contiguous())
    assert ranks.at_rest()


@pytest.mark.parametrize("num_ranks", RANKS)
def test_words_that_look_empty_arrive_as_positive_zeros(num_ranks):
    shards = with_words_that_look_empty(draw(num_ranks, 2, 3584 // num_ranks))
    floats = draw(num_ranks, 2, 896 // num_ranks, seed=1, dtype=torch.float32)
    floats[..., ::3] = -0.0
    ranks = Ranks(num_ranks, halves=shards.shape[2], floats=floats.shape[2])
    found, found_floats = gather_columns(ranks, shards, floats)
    wanted = (shards + 0.0).transpose(0, 1).flatten(1)
    wanted_floats = (floats + 0.0).transpose(0, 1).flatten(1)
    assert_same_bits(found, wanted.expand_as(found).contiguous())
    assert_same_bits(found_floats, wanted_floats.expand_as(found_floats).contiguous())
    assert ranks.at_rest()


def test_numbers_that_are_none_and_denormal_ones_arrive():
    shards, floats = draw(8, 1, 448), draw(8, 1, 112, seed=1, dtype=torch.float32)
    for rows, least in ((shards, 2.0**-133), (floats, 2.0**-149)):
        rows[..., :4] = torch.tensor([float("inf"), float("-inf"), least, -least])
    ranks = Ranks(8, halves=448, floats=112)
    found, found_floats = gather_columns(ranks, shards, floats)
    assert_same_bits(found, shards.transpose(0, 1).flatten(1).expand_as(found).contiguous())
    assert_same_bits(found_floats, floats.transpose(0, 1).flatten(1).expand_as(found_floats).contiguous())


@pytest.mark.parametrize("use_pdl", LAUNCHES)
@pytest.mark.parametrize("num_rows", ROWS)
@pytest.mark.parametrize("num_ranks", RANKS)
def test_partials_are_added_in_the_order_of_the_ranks(num_ranks, num_rows, use_pdl):
    partials = draw(num_ranks, num_rows, 3584)
    ranks = Ranks(num_ranks, halves=3584)
    for rank in range(num_ranks):
        publish_rows(partials[rank], ranks.tables[rank], use_pdl=use_pdl)
    found = nothing(num_ranks, num_rows, 3584)
    for rank in range(num_ranks):
        ranks.taken(sum_rows, rank, found[rank], use_pdl=use_pdl)
    assert_same_bits(found, rank_order_sum(partials).expand_as(found).contiguous())
    assert ranks.at_rest()


@pytest.mark.parametrize("use_pdl", LAUNCHES)
@pytest.mark.parametrize("num_rows", ROWS)
def test_shards_of_attention_meet_at_the_owners_of_their_heads(num_rows, use_pdl):
    """The merge behind the exchange gives the bits of the merge of shards that lie side by side."""
    num_ranks, heads = 8, 12
    latents = draw(num_ranks, num_rows, 96, 512)
    lse = draw(num_ranks, num_rows, 96, seed=1, dtype=torch.float32)
    lse[1, :, ::2], latents[1, :, ::2] = -3e38, float("nan")
    wanted, wanted_lse = dcp_merge(latents, lse, use_pdl=False)
    ranks = Ranks(num_ranks, halves=heads * 512, floats=heads)
    for rank in range(num_ranks):
        publish_rows(
            latents[rank].view(num_rows, num_ranks, -1),
            ranks.tables[rank],
            floats=lse[rank].view(num_rows, num_ranks, heads),
            to_owners=True,
            use_pdl=use_pdl,
        )
    for rank in range(num_ranks):
        taken = nothing(num_ranks, num_rows, heads * 512)
        taken_lse = nothing(num_ranks, num_rows, heads, dtype=torch.float32)
        ranks.taken(gather_rows, rank, taken, floats=taken_lse, use_pdl=use_pdl)
        by_head = taken.view(num_ranks, num_rows, heads, 512)
        merged, merged_lse = dcp_merge(by_head, taken_lse, use_pdl=use_pdl)
        own = slice(rank * heads, (rank + 1) * heads)
        assert_same_bits(merged, wanted[:, own].contiguous())
        assert_same_bits(merged_lse, wanted_lse[:, own].contiguous())
    assert ranks.at_rest()


@pytest.mark.parametrize("num_ranks", RANKS)
def test_shared_partials_are_added_by_the_owners_of_their_columns(num_ranks):
    partials = draw(num_ranks, 5, 7168)
    ranks = Ranks(num_ranks, halves=7168 // num_ranks)
    for rank in range(num_ranks):
        publish_rows(partials[rank].view(5, num_ranks, -1), ranks.tables[rank], to_owners=True)
    found = nothing(num_ranks, 5, 7168 // num_ranks)
    for rank in range(num_ranks):
        ranks.taken(sum_rows, rank, found[rank])
    assert_same_bits(found.transpose(0, 1).flatten(1), rank_order_sum(partials))
    assert ranks.at_rest()


@pytest.mark.parametrize("adds", [False, True], ids=["gather", "sum"])
def test_a_rank_that_never_comes_is_named_and_its_rows_are_not_numbers(adds):
    partials = draw(8, 2, 3584)
    ranks = Ranks(8, halves=3584)
    for rank in set(range(8)) - {5}:
        publish_rows(partials[rank], ranks.tables[rank])
    found = torch.zeros(*([] if adds else [8]), 2, 3584, dtype=torch.bfloat16, device="cuda")
    ranks.taken(sum_rows if adds else gather_rows, 0, found, polls=FEW_POLLS)
    missing = found if adds else found[5]
    assert bool(missing.isnan().all()) and ranks.errors[:, 0].tolist() == [6] + [0] * 7


@pytest.mark.parametrize(
    ("halves", "floats", "why"),
    [
        ((2, 12), None, "multiples of 4 and 8"),
        ((2, 16), (2, 6), "multiples of 4 and 8"),
        ((2, 16), (3, 4), "floats"),
    ],
)
def test_columns_that_are_not_whole_fragments_are_refused(halves, floats, why):
    table = torch.zeros(8, dtype=torch.int64, device="cuda")
    rows = None if floats is None else draw(*floats, dtype=torch.float32)
    with pytest.raises(ValueError, match=why):
        publish_rows(draw(*halves), table, floats=rows)
