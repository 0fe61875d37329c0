"""OC-1: sharded embedding."""

import torch

from specialized_path.reference import embedding, rank_order_sum

IDS = torch.tensor([0, 3, 4, 7, 8, 11, 4, 4], dtype=torch.int32)


def test_every_token_gets_the_bits_of_its_row(randn):
    table = randn(12, 5, dtype=torch.bfloat16)
    assert torch.equal(embedding(IDS, table), torch.stack([table[i] for i in IDS.tolist()]))


def test_the_shards_add_up_to_the_whole_table_also_when_one_shard_owns_every_id(randn):
    table = randn(12, 5, dtype=torch.bfloat16)
    for ids in (IDS, torch.full((3,), 5)):
        parts = [embedding(ids, table[r * 4 : r * 4 + 4], vocab_start=r * 4) for r in range(3)]
        assert torch.equal(rank_order_sum(torch.stack(parts)), embedding(ids, table))


def test_ids_of_no_row_give_zero_and_touch_no_row():
    table = torch.full((4, 3), float("nan"))
    ids = torch.tensor([-1, 3, 8, 2**31 - 1, -(2**31)], dtype=torch.int32)
    assert embedding(ids, table, vocab_start=4).eq(0).all()
