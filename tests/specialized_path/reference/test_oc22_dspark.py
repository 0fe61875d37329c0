"""OC-22: the drafter's context rows, its parallel block, and its sequential head."""

import dataclasses
import math

import pytest
import torch

from specialized_path.reference import (
    DsparkAttentionWeights,
    DsparkLayer,
    DsparkMlpWeights,
    DsparkPositions,
    DsparkRope,
    draft_confidence,
    dspark_block,
    dspark_cache_row,
    dspark_context,
    markov_draft,
    mla_cache_write,
    rms_norm,
    rotate_interleaved,
    yarn_inv_freq,
)

NAN = float("nan")
F64 = {"acc_dtype": torch.float64}
D, H, NOPE, ROPE, V, Q_RANK, C, WIDTH, PAGE = 12, 4, 6, 4, 5, 7, 8, 10, 4
SCALING = DsparkRope(
    inv_freq=yarn_inv_freq(ROPE, theta=50.0, factor=4.0, original_max_position=64),
    scale=(NOPE + ROPE) ** -0.5,
    mscale=1.1,
)


def attention_weights(randn, dtype=torch.float64):
    def draw(*shape):
        return randn(*shape, dtype=dtype, scale=shape[-1] ** -0.5)

    return DsparkAttentionWeights(
        input_norm=1 + draw(D),
        w_fused=draw(Q_RANK + C + ROPE, D),
        q_a_norm=1 + draw(Q_RANK),
        kv_a_norm=1 + draw(C),
        w_q_b=draw(H * (NOPE + ROPE), Q_RANK),
        w_uk=draw(H, NOPE, C),
        w_uv=draw(H, V, C),
        w_o=draw(D, H * V),
    )


def mlp_weights(randn, dtype=torch.float64):
    return DsparkMlpWeights(
        post_attention_norm=1 + randn(D, dtype=dtype, scale=0.3),
        w_gate_up=randn(2 * WIDTH, D, dtype=dtype, scale=0.3),
        w_down=randn(D, WIDTH, dtype=dtype, scale=0.3),
    )


def make_layers(randn, count=2, dtype=torch.float64):
    return [
        DsparkLayer(attention=(attention_weights(randn, dtype),), mlp=(mlp_weights(randn, dtype),))
        for _ in range(count)
    ]


def shard(layer, ranks):
    """The same layer cut by heads and by the MLP's width."""
    (whole,), (mlp,) = layer.attention, layer.mlp
    per_head = whole.w_q_b.unflatten(0, (H, -1)).chunk(ranks)
    columns = whole.w_o.unflatten(1, (H, -1)).chunk(ranks, dim=1)
    attention = tuple(
        dataclasses.replace(whole, w_q_b=q.flatten(0, 1), w_uk=uk, w_uv=uv, w_o=o.flatten(1))
        for q, uk, uv, o in zip(
            per_head, whole.w_uk.chunk(ranks), whole.w_uv.chunk(ranks), columns, strict=True
        )
    )
    gate, up = (half.chunk(ranks) for half in mlp.w_gate_up.chunk(2))
    parts = zip(gate, up, mlp.w_down.chunk(ranks, dim=1), strict=True)
    return DsparkLayer(
        attention=attention,
        mlp=tuple(dataclasses.replace(mlp, w_gate_up=torch.cat([g, u]), w_down=down) for g, u, down in parts),
    )


def place(context_lens, num_rows, live=None):
    """Disjoint shuffled pages a request; the block's rows follow the context; padded rows have no slot."""
    pages = max(context_lens) + num_rows
    pages = -(-pages // PAGE)
    order = torch.randperm(len(context_lens) * pages, generator=torch.Generator().manual_seed(3)) + 1
    table = order.reshape(len(context_lens), pages)
    lens = torch.tensor(context_lens)
    positions = lens.unsqueeze(1) + torch.arange(num_rows)
    slots = table.gather(1, positions // PAGE) * PAGE + positions % PAGE
    rows = torch.full((len(context_lens),), num_rows) if live is None else torch.tensor(live)
    slots = torch.where(torch.arange(num_rows) < rows.unsqueeze(1), slots, -1)
    return DsparkPositions(positions=positions, slot_mapping=slots, block_table=table, context_lens=lens)


def fill_context(context, layers, where):
    """A cache a layer, NaN but for the context rows; `context` is one [length, D] a request."""
    caches = []
    for layer in layers:
        cache = torch.full((int(where.block_table.max()) + 1, PAGE, C + ROPE), NAN, dtype=context[0].dtype)
        (weights,) = layer.attention
        for b, f in enumerate(context):
            at = torch.arange(len(f))
            row = dspark_cache_row(f, at, weights.w_fused[Q_RANK:], weights.kv_a_norm, SCALING, **F64)
            mla_cache_write(row, cache, where.block_table[b, at // PAGE] * PAGE + at % PAGE)
        caches.append(cache)
    return caches


def naive_layer(h, context, weights, mlp, start):
    """Every head with its own keys and values, written out without absorption; every row sees every row."""
    x = rms_norm(h, weights.input_norm, **F64)
    source = torch.cat([context, x])
    at = torch.arange(len(source))
    kv = source @ weights.w_fused[Q_RANK:].T
    latent = rms_norm(kv[:, :C], weights.kv_a_norm, **F64)
    k_pe = rotate_interleaved(kv[:, C:], at, SCALING.inv_freq, mscale=SCALING.mscale, **F64)
    q = rms_norm(x @ weights.w_fused[:Q_RANK].T, weights.q_a_norm, **F64) @ weights.w_q_b.T
    q = q.unflatten(-1, (H, -1))
    heads = []
    for head in range(H):
        q_pe = rotate_interleaved(
            q[:, head, NOPE:], at[start:], SCALING.inv_freq, mscale=SCALING.mscale, **F64
        )
        keys = torch.cat([latent @ weights.w_uk[head].T, k_pe], dim=-1)
        scores = torch.cat([q[:, head, :NOPE], q_pe], dim=-1) @ keys.T * SCALING.scale
        heads.append(torch.softmax(scores, dim=-1) @ (latent @ weights.w_uv[head].T))
    h = h + torch.cat(heads, dim=-1) @ weights.w_o.T
    gate, up = (rms_norm(h, mlp.post_attention_norm, **F64) @ mlp.w_gate_up.T).chunk(2, dim=-1)
    return h + (gate * torch.sigmoid(gate) * up) @ mlp.w_down.T


@pytest.mark.parametrize("num_rows", [1, 3, 7])
def test_a_block_sees_its_context_and_itself_in_both_directions(randn, num_rows):
    lengths, layers, final_norm = [0, 1, 6], make_layers(randn), 1 + randn(D)
    context, embeddings = [randn(n, D) for n in lengths], randn(3, num_rows, D)
    where = place(lengths, num_rows)
    hidden = dspark_block(
        embeddings, layers, final_norm, fill_context(context, layers, where), where, SCALING, **F64
    )
    for b, n in enumerate(lengths):
        h = embeddings[b]
        for layer in layers:
            h = naive_layer(h, context[b], layer.attention[0], layer.mlp[0], n)
        torch.testing.assert_close(hidden[b], rms_norm(h, final_norm, **F64), rtol=1e-10, atol=1e-11)


def test_ranks_that_share_heads_and_width_give_the_unsharded_block(randn):
    layers, final_norm, embeddings, context = make_layers(randn), randn(D), randn(2, 3, D), [randn(5, D)] * 2
    where = place([5, 5], 3)
    whole, halves = (
        dspark_block(
            embeddings, form, final_norm, fill_context(context, layers, where), where, SCALING, **F64
        )
        for form in (layers, [shard(layer, 2) for layer in layers])
    )
    torch.testing.assert_close(halves, whole, rtol=1e-11, atol=1e-12)


def test_padded_rows_neither_write_nor_change_the_rows_that_live(randn):
    layers, final_norm, embeddings, context = make_layers(randn), randn(D), randn(2, 4, D), [randn(5, D)] * 2
    where, short = place([5, 5], 4, live=[2, 0]), place([5, 5], 2)
    embeddings[0, 2:] = embeddings[1] = NAN
    caches = fill_context(context, layers, where)
    before = [cache.clone() for cache in caches]
    hidden = dspark_block(embeddings, layers, final_norm, caches, where, SCALING, **F64)
    alone = dspark_block(
        embeddings[:1, :2].expand(2, 2, D),
        layers,
        final_norm,
        fill_context(context, layers, short),
        short,
        SCALING,
        **F64,
    )
    torch.testing.assert_close(hidden[0, :2], alone[0], rtol=1e-11, atol=1e-12)
    for cache, old in zip(caches, before, strict=True):
        written = (cache.view(torch.int64) != old.view(torch.int64)).any(-1).flatten().nonzero().flatten()
        assert written.tolist() == sorted(where.slot_mapping[0, :2].tolist())


def test_the_rotation_reaches_the_block(randn):
    layers, final_norm, embeddings, context = make_layers(randn), randn(D), randn(1, 2, D), [randn(6, D)]
    where = place([6], 2)
    moved = dataclasses.replace(where, positions=where.positions + 1)
    first, second = (
        dspark_block(embeddings, layers, final_norm, fill_context(context, layers, where), at, SCALING, **F64)
        for at in (where, moved)
    )
    assert (first - second).abs().max() > 1e-3


def test_context_is_projected_and_rounded_before_it_is_normed(randn, bf16):
    aux, w, norm = (randn(*shape, dtype=torch.bfloat16) for shape in ((3, 5, D), (D, 5 * D), (D,)))
    found = dspark_context(aux, w, norm, **F64)
    for t in range(3):
        flat = aux[t].flatten().tolist()
        row = [bf16(math.fsum(a * b for a, b in zip(flat, w[d].tolist(), strict=True))) for d in range(D)]
        root = math.sqrt(math.fsum(v * v for v in row) / D + 1e-5)
        assert found[t].tolist() == [bf16(v / root * s) for v, s in zip(row, norm.tolist(), strict=True)]


def test_a_cache_row_is_the_normed_latent_beside_channels_that_are_only_turned(randn):
    x, w_kv, norm = randn(D), randn(C + ROPE, D), randn(C)
    row = dspark_cache_row(x, torch.tensor(9), w_kv, norm, SCALING, **F64)
    torch.testing.assert_close(row[:C], rms_norm(w_kv[:C] @ x, norm, **F64), rtol=1e-13, atol=0)
    length = row[C:].norm() / (w_kv[C:] @ x).norm()
    assert length.item() == pytest.approx(SCALING.mscale, rel=1e-12)


def test_each_draft_follows_the_draft_before_it(randn):
    base, w_embed, w_bias, anchors = randn(3, 4, 9), randn(9, 2), randn(9, 2), torch.tensor([8, 0, 3])
    tokens, logits = markov_draft(base, anchors, w_embed, w_bias, **F64)
    for b, anchor in enumerate(anchors.tolist()):
        previous = anchor
        for i in range(4):
            expected = [base[b, i, v].item() + float(w_embed[previous] @ w_bias[v]) for v in range(9)]
            assert logits[b, i].tolist() == pytest.approx(expected, rel=1e-12, abs=1e-13)
            previous = max(range(9), key=expected.__getitem__)
            assert tokens[b, i].item() == previous


def test_the_lowest_id_wins_a_tie_between_drafts_and_nan_never_wins():
    base = torch.tensor([[[0.0, 2.0, 2.0, NAN]]]).double()
    tokens, _ = markov_draft(base, torch.tensor([0]), torch.zeros(4, 1).double(), torch.ones(4, 1).double())
    assert tokens.tolist() == [[1]]


def test_the_bias_is_rounded_to_the_type_of_the_base_logits(randn, bf16):
    base, w_embed, w_bias = (randn(*s, dtype=torch.bfloat16) for s in ((1, 1, 6), (6, 3), (6, 3)))
    _, logits = markov_draft(base, torch.tensor([2]), w_embed, w_bias, **F64)
    bias = [
        bf16(math.fsum(a * b for a, b in zip(w_embed[2].tolist(), row, strict=True)))
        for row in w_bias.tolist()
    ]
    assert logits[0, 0].tolist() == [a + b for a, b in zip(base[0, 0].tolist(), bias, strict=True)]


def test_confidence_is_logistic_in_the_hidden_row_and_the_embedding_before_it(randn):
    hidden, embedding, weight, bias = randn(2, D), randn(2, 3), randn(D + 3), randn(1)
    found = draft_confidence(hidden, embedding, weight, bias, **F64)
    z = [float(h @ weight[:D] + e @ weight[D:] + bias) for h, e in zip(hidden, embedding, strict=True)]
    assert found.tolist() == pytest.approx([1 / (1 + math.exp(-v)) for v in z], rel=1e-13)
    bare = draft_confidence(hidden, None, weight[:D], bias, **F64)
    torch.testing.assert_close(bare, torch.sigmoid(hidden @ weight[:D] + bias), rtol=1e-13, atol=0)


def test_bfloat16_weights_and_float32_sums_stay_close_to_the_block_without_roundings(randn):
    layers, final_norm, embeddings = make_layers(randn, dtype=torch.bfloat16), randn(D), randn(2, 3, D)
    context, where = [randn(5, D, dtype=torch.bfloat16)] * 2, place([5, 5], 3)
    norm, rows = final_norm.bfloat16(), embeddings.bfloat16()
    found = dspark_block(rows, layers, norm, fill_context(context, layers, where), where, SCALING)
    wide = [
        DsparkLayer(
            attention=tuple(_double(w) for w in layer.attention), mlp=tuple(_double(w) for w in layer.mlp)
        )
        for layer in layers
    ]
    caches = fill_context([f.double() for f in context], wide, where)
    exact = dspark_block(rows.double(), wide, norm.double(), caches, where, SCALING, **F64)
    assert found.dtype == torch.bfloat16
    assert (found.double() - exact).norm() / exact.norm() < 2e-2


def _double(weights):
    fields = dataclasses.fields(weights)
    return dataclasses.replace(weights, **{f.name: getattr(weights, f.name).double() for f in fields})
