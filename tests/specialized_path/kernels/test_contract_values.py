"""Each value that a contract lists (OC-1 to OC-12) is among its family's cases, by what the tensors hold.

The lists here are the specification's; a case counts by its values, whatever it is called. A condition that ordinary
inputs meet would ask for nothing.
"""

from functools import cache

import pytest
import torch

from specialized_path.kernels.attn_res import cases as attn_res
from specialized_path.kernels.kda import cases as kda
from specialized_path.kernels.mla import cases as mla
from specialized_path.kernels.projection import cases as projection
from tests.specialized_path.kernels.embedding import test_embedding_kernel as embedding
from tests.specialized_path.kernels.exchange.payloads import NAMES, payload
from tests.specialized_path.kernels.mla.shards import EMPTY, LSES

NUM_REQS, NUM_TOKENS, HEADS = 3, 3, 6
NUM_BLOCKS = 7
"""An odd number: sources that cancel leave nothing of the prefix."""


def missing(listed, cases, ordinary):
    """What no case is, and what an ordinary one is too."""
    return [name for name, holds in listed.items() if not any(map(holds, cases)) or any(map(holds, ordinary))]


def first_is_ordinary(cases):
    assert cases[0].name == "random"
    return cases


# OC-2, OC-13


def sources(inputs, num_blocks):
    new = (inputs.prefix + inputs.delta).unsqueeze(1)
    return torch.cat([inputs.blocks[:, :num_blocks], new], dim=1).double()


def scores(inputs, num_blocks):
    found, query = sources(inputs, num_blocks), inputs.res_norm.double() * inputs.res_proj.double()
    return (found @ query) * torch.rsqrt(found.square().mean(-1) + 1e-5)


def mixture(inputs, num_blocks):
    return (torch.softmax(scores(inputs, num_blocks), 1).unsqueeze(-1) * sources(inputs, num_blocks)).sum(1)


def are_an_ulp_apart(values):
    found = values.float().unique()
    return len(found) == 2 and bool(torch.nextafter(found[0], found[1]) == found[1])


def norms(inputs, num_blocks):
    return sources(inputs, num_blocks).norm(dim=-1)


ATTN_RES = {
    "one source dominant": lambda i, n: bool((torch.softmax(scores(i, n), 1).amax(1) == 1).all()),
    "all sources equal": lambda i, n: bool(
        (sources(i, n) == sources(i, n)[:, :1]).all() and norms(i, n).all()
    ),
    "rows of zeros": lambda i, n: not norms(i, n).any(),
    "M = -P": lambda i, _: bool((i.delta == -i.prefix).all() and i.prefix.any()),
    "norms of 1e4 and 1e-4": lambda i, n: (
        1e7 < (norms(i, n).amax(1) / norms(i, n).amin(1)).min() < float("inf")
    ),
    "denormal": lambda i, n: 0 < sources(i, n).abs().max().item() < 2.0**-126,
    "scores an ulp apart": lambda i, n: all(map(are_an_ulp_apart, scores(i, n))),
    "sources that cancel": lambda i, n: bool(
        (mixture(i, n).norm(dim=-1) < 0.01 * norms(i, n).amin(1)).all() and i.prefix.any()
    ),
}


def test_the_values_of_the_attention_residual():
    made = [
        case.change(attn_res.random_inputs(2, NUM_BLOCKS), NUM_BLOCKS)
        for case in first_is_ordinary(attn_res.CASES)
    ]
    listed = {name: lambda i, holds=holds: holds(i, NUM_BLOCKS) for name, holds in ATTN_RES.items()}
    assert not missing(listed, made[1:], made[:1])
    assert all(inputs.blocks[:, NUM_BLOCKS:].isnan().all() for inputs in made)


# OC-3

PROJECTION = {
    "row 0 only non-zero": lambda x, _: bool(x[0].any() and not x[1:].any()),
    "K tail": lambda x, _: bool(x[:, -1].any() and not x[:, :-1].any()),
    "alternating signs": lambda x, w: bool(
        (x[:, ::2] > 0).all()
        and (x[:, 1::2] < 0).all()
        and (x @ w.T).norm() < 0.01 * (x.abs() @ w.abs().T).norm()
    ),
}


def test_the_values_of_the_projections():
    made = [
        tuple(t.cpu().double() for t in case.change(*projection.random_inputs(4, 16, 768)))
        for case in first_is_ordinary(projection.CASES)
    ]
    listed = {name: lambda xw, holds=holds: holds(*xw) for name, holds in PROJECTION.items()}
    assert not missing(listed, made[1:], made[:1])


# OC-4 to OC-7


def gate(inputs):
    raw = inputs.columns("f_a").double() @ inputs.w_f_b.double().T
    return raw + inputs.dt_bias


def windows(inputs):
    return inputs.conv_state[inputs.slots[:, 0].long()]


def taps(inputs):
    """z of the newest token, where only the last tap counts."""
    return inputs.conv_weight[:, 3] * inputs.projected[:, : len(inputs.conv_weight)]


def starts(inputs):
    return inputs.slots.gather(1, inputs.num_accepted_tokens.long().clamp(1, NUM_TOKENS).unsqueeze(1) - 1)


KDA = {
    "fresh request": lambda i: not windows(i).any() and not i.state[starts(i)[:, 0].long()].any(),
    "slot 0": lambda i: bool((i.slots[0] == 0).all() and (i.slots[1:] > 0).all()),
    "slot -1": lambda i: bool((i.slots[0] == -1).all() and (i.slots[1:] > 0).all()),
    "strided slot indices": lambda i: i.slots.stride(1) > 1 and i.num_accepted_tokens.stride(0) > 1,
    "z = 80 and -80": lambda i: (
        not i.conv_weight[:, :3].any() and set(taps(i).flatten().tolist()) == {80.0, -80.0}
    ),
    "a wider window": lambda i: i.conv_state.shape[2] > NUM_TOKENS + 2,
    "raw_g + dt_bias = 30": lambda i: bool((gate(i) == 30).all()),
    "raw_g + dt_bias = -30": lambda i: bool((gate(i) == -30).all()),
    "A_log from -4 to 4": lambda i: (i.A_log.min().item(), i.A_log.max().item()) == (-4, 4),
    "b = 40 and -40": lambda i: set(i.columns("b").flatten().tolist()) == {40.0, -40.0},
    "f_a all zero": lambda i: not i.columns("f_a").any(),
    "k = 0": lambda i: not i.columns("k").any() and bool(i.columns("v").any()),
    "entries of 1e6 in S": lambda i: i.state.nan_to_num().abs().max().item() > 1e6,
    "o = 0": lambda i: not any(i.columns(name).any() for name in "qkv"),
    "a NULL tail": lambda i: bool((i.slots[:, 0] > 0).all() and (i.slots[:, -1] <= 0).all()),
    "one slot both start and target": lambda i: bool(
        ((starts(i)[:, 0] == i.slots[:, -1]) & (i.slots[:, -1] > 0)).all()
    ),
    "all NULL": lambda i: not (i.slots > 0).any(),
}


def test_the_values_of_kda():
    made = [kda.case_inputs(case, HEADS, NUM_REQS, NUM_TOKENS) for case in first_is_ordinary(kda.CASES)]
    assert not missing(KDA, made[1:], made[:1])
    # Permuted slots, NaN in those of nobody, and a different count for each are in ordinary inputs already.
    assert (made[0].slots.flatten().diff() < 0).any() and made[0].state.isnan().any()
    assert sorted(made[0].num_accepted_tokens.tolist()) == [*range(1, NUM_TOKENS + 1)]


# OC-8 to OC-11


@cache
def attention_scores(case):
    """Of the first head of each request's last row, where that is quick to say."""
    if sum(case.lengths) > 6000 or case.pages_before > 100 or not any(case.lengths):
        return []
    inputs, found = mla.attention_inputs(case, torch.bfloat16, "cpu"), []
    for row, length in enumerate(case.lengths):
        pages = inputs.block_table[row, : -(-length // case.page_size)].long()
        cached = inputs.kv_cache[pages].reshape(-1, mla.ROW)[:length].double()
        found += [(cached @ inputs.query[row, 0, 0].double() * 192**-0.5, cached)] if length > 1 else []
    return found


def any_scores(holds):
    return lambda case: any(holds(values, cached) for values, cached in attention_scores(case))


def elements(case):
    return (case.pages_before + sum(-(-n // case.page_size) for n in case.lengths)) * case.page_size * mla.ROW


ATTENTION = {
    "lengths 0, 1, P-1, P, P+1": lambda c: (
        {0, 1, c.page_size - 1, c.page_size, c.page_size + 1} <= {*c.lengths}
    ),
    "length 131072": lambda c: c.lengths == (131072,),
    "one score dominates": any_scores(lambda s, _: s.max() - s.topk(2).values[1] > 40),
    "all scores equal": any_scores(lambda s, c: (s == s[0]).all() and c.any()),
    "-0.0": any_scores(lambda _, c: (c == 0).all() and c.signbit().all()),
    "scores around 3e4 and -3e4": any_scores(lambda s, _: s.max() > 2e4 and s.min() < -2e4),
    "a cache of more than 2^31 elements": lambda c: elements(c) > 2**31,
    "mixed lengths, one of 128k": lambda c: len(c.lengths) > 2 and 131072 in c.lengths and 0 in c.lengths,
    **{f"verify, q = {q}": lambda c, q=q: c.num_tokens == q and max(c.lengths) >= q for q in range(2, 9)},
}
PLAIN = mla.AttentionCase(name="", lengths=(200, 90))


def test_the_values_of_the_attention_core():
    assert not missing(ATTENTION, mla.ATTENTION_CASES, [PLAIN])
    inputs = mla.attention_inputs(mla.AttentionCase(name="", lengths=(200, 90)), torch.bfloat16, "cpu")
    used = -(-90 // 64)
    assert {*inputs.block_table[1, used:].tolist()} >= {*mla.PAGE_GARBAGE} and inputs.kv_cache.isnan().any()
    assert (inputs.block_table[0, :4].diff() != 1).any()


@cache
def query(case):
    return mla.query_inputs(case, torch.bfloat16, "cpu")


def cached_values(case):
    inputs = query(case)
    rows = inputs.projected[:, mla.Q_RANK : mla.Q_RANK + mla.KV_RANK].double()
    return rows * torch.rsqrt(rows.square().mean(-1, keepdim=True) + 1e-5) * inputs.kv_a_norm.double()


QUERY = {
    "s = -1": lambda c: -1 in query(c).slot_mapping.tolist() and not c.nan_rows,
    "the last slot of the last page": lambda c: (
        query(c).kv_cache.shape[0] * c.page_size - 1 in c.slots and c.page_size != 64
    ),
    "a page's edge": lambda c: (
        {c.page_size - 1, c.page_size} <= {*query(c).slot_mapping.tolist()} and len(c.slots)
    ),
    "values above 448": lambda c: cached_values(c).nan_to_num().abs().max().item() > 448,
    "zero rows": lambda c: bool((query(c).projected == 0).all(1).any()),
    "padded rows of NaN, more than one": lambda c: (
        (query(c).projected.isnan().all(1) & (query(c).slot_mapping == -1)).sum() > 1
    ),
}


def test_the_values_of_the_query_side():
    assert not missing(QUERY, mla.QUERY_CASES, [mla.QueryCase(name="", num_rows=8)])


SHARDS = {
    "only one rank": lambda lse: sum(value > EMPTY for value in lse) == 1,
    "all equal": lambda lse: len({*lse}) == 1 and lse[0] > EMPTY,
    "differing by 200": lambda lse: 200 in {a - b for a in lse for b in lse},
    "no rank": lambda lse: {*lse} == {EMPTY},
    "NaN and infinities": lambda lse: {"nan", "inf", "-inf"} <= {str(value) for value in lse},
}


def test_the_values_of_the_merge():
    assert not missing(SHARDS, LSES.values(), [[3.0, -2.0, 0.5, 1.0]])


# OC-12


def words(partials):
    return partials.contiguous().view(torch.int32)


EXCHANGE = {
    "cancelling": lambda p: bool((p.double().sum(0) == 0).all() and (p != 0).any()),
    "one rank infinite": lambda p: p.isinf().flatten(1).any(1).sum() == 1,
    "one rank NaN": lambda p: p.isnan().flatten(1).any(1).sum() == 1,
    "-0.0 everywhere": lambda p: bool(((p == 0) & p.signbit()).all(-1).any()),
    "a row that looks empty": lambda p: bool((words(p) == -(2**31)).all(-1).any()),
    "1e38, overflowing once": lambda p: bool((p.float() > 9e37).all() and p.float().sum(0).isinf().all()),
}


def test_the_values_of_the_exchange():
    assert NAMES[0] == "normal"
    made = [payload(name, 8, 3, "cpu")[2] for name in NAMES]
    assert not missing(EXCHANGE, made[1:], made[:1])


# OC-1

FIRST, LAST = embedding.START, embedding.START + embedding.ROWS - 1
EMBEDDING = {
    "the shard's edges": lambda ids: {FIRST - 1, FIRST, LAST, LAST + 1} <= {*ids},
    "ids of padded rows: 0, -1, stale": lambda ids: {0, -1} <= {*ids} and max(ids) > 163840,
    "one id everywhere, all of one shard": lambda ids: (
        len(ids) > 1 and len({*ids}) == 1 and FIRST <= ids[0] <= LAST
    ),
}


def test_the_values_of_the_embedding():
    assert not missing(EMBEDDING, embedding.IDS.values(), [[FIRST + 3, LAST - 5]])


def without(cases, dropped):
    return [case for case in cases if case is not dropped]


@pytest.mark.parametrize("dropped", [case for case in mla.QUERY_CASES if case.slots or case.zero_rows])
def test_a_case_that_is_dropped_is_missed(dropped):
    assert missing(QUERY, without(mla.QUERY_CASES, dropped), [])
