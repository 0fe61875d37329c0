"""OC-2, OC-13 and OC-21: attention residuals."""

import math

import pytest
import torch

from specialized_path.reference import (
    attn_res_after_attention,
    attn_res_before_attention,
    attn_res_output,
    greedy_token,
    mix_sources,
    output_logits,
)

NAN = float("nan")
F64 = {"acc_dtype": torch.float64}


def naive_mixture(sources, norm, proj, eps=1e-5):
    """Mixture of a list of rows, one row at a time, in Python floats."""
    size = len(norm)
    scores = []
    for row in sources:
        rms = math.sqrt(math.fsum(v * v for v in row) / size + eps)
        scores.append(math.fsum(v * a * c for v, a, c in zip(row, norm, proj, strict=True)) / rms)
    top = max(scores)
    weights = [math.exp(s - top) for s in scores]
    return [
        math.fsum(w * r[d] for w, r in zip(weights, sources, strict=True)) / sum(weights) for d in range(size)
    ]


def naive_norm(row, weight, eps=1e-5):
    rms = math.sqrt(math.fsum(v * v for v in row) / len(row) + eps)
    return [v / rms * w for v, w in zip(row, weight, strict=True)]


def draw(randn, batch=3, blocks=8, size=16):
    weights = [1 + randn(size, scale=0.3), randn(size), 1 + randn(size, scale=0.3)]
    return randn(batch, size), randn(batch, blocks, size), randn(batch, size), weights


@pytest.mark.parametrize("layer_idx", range(24))
def test_attention_reads_the_mixture_of_earlier_blocks_and_the_new_prefix(randn, layer_idx):
    prefix, blocks, delta, (norm, proj, w) = draw(randn)
    blocks[:, -(-layer_idx // 3) :] = NAN
    before = blocks.clone()
    x, new = attn_res_before_attention(
        prefix, blocks, delta, norm, proj, w, layer_idx=layer_idx, block_size=3, **F64
    )
    for b in range(3):
        expected_prefix = [p + m for p, m in zip(prefix[b].tolist(), delta[b].tolist(), strict=True)]
        visible = [before[b, j].tolist() for j in range(math.ceil(layer_idx / 3))]
        mixture = naive_mixture([*visible, expected_prefix], norm.tolist(), proj.tolist())
        assert new[b].tolist() == expected_prefix
        torch.testing.assert_close(x[b].tolist(), naive_norm(mixture, w.tolist()), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("layer_idx", range(24))
def test_attention_writes_the_new_prefix_as_a_block_on_every_block_size_th_layer_only(randn, layer_idx):
    prefix, blocks, delta, weights = draw(randn)
    expected = blocks.clone()
    if layer_idx in (0, 3, 6, 9, 12, 15, 18, 21):
        expected[:, layer_idx // 3] = prefix + delta
    attn_res_before_attention(prefix, blocks, delta, *weights, layer_idx=layer_idx, block_size=3, **F64)
    assert torch.equal(blocks, expected)


def test_the_default_block_is_twelve_layers(randn):
    prefix, blocks, delta, weights = draw(randn)
    blocks[:, 1:] = NAN
    x, _ = attn_res_before_attention(prefix, blocks, delta, *weights, layer_idx=12, **F64)
    assert x.isfinite().all() and torch.equal(blocks[:, 1], prefix + delta)


def test_layer_zero_reads_the_normed_embedding(randn):
    prefix, blocks, _, (norm, proj, w) = draw(randn)
    x, new = attn_res_before_attention(prefix, blocks, None, norm, proj, w, layer_idx=0, **F64)
    assert torch.equal(new, prefix)
    torch.testing.assert_close(x[0].tolist(), naive_norm(prefix[0].tolist(), w.tolist()), rtol=1e-12, atol=0)


@pytest.mark.parametrize("layer_idx", range(24))
def test_the_mlp_reads_the_mixture_after_attention_joined_or_replaced_the_prefix(randn, layer_idx):
    prefix, blocks, attn_out, (norm, proj, w) = draw(randn)
    write = layer_idx % 3 == 0
    if write:
        prefix[:] = NAN
    blocks[:, layer_idx // 3 + 1 :] = NAN
    before = blocks.clone()
    x, new = attn_res_after_attention(
        prefix, blocks, attn_out, norm, proj, w, layer_idx=layer_idx, block_size=3, **F64
    )
    expected_prefix = attn_out if write else prefix + attn_out
    assert torch.equal(new, expected_prefix) and torch.equal(blocks.nan_to_num(), before.nan_to_num())
    for b in range(3):
        visible = [before[b, j].tolist() for j in range(layer_idx // 3 + 1)]
        mixture = naive_mixture([*visible, expected_prefix[b].tolist()], norm.tolist(), proj.tolist())
        torch.testing.assert_close(x[b].tolist(), naive_norm(mixture, w.tolist()), rtol=1e-12, atol=1e-12)


def test_the_output_mixes_every_block_and_the_final_prefix(randn):
    prefix, blocks, delta, (norm, proj, w) = draw(randn)
    hidden, new = attn_res_output(prefix, blocks, delta, norm, proj, w, **F64)
    for b in range(3):
        sources = [*blocks[b].tolist(), (prefix[b] + delta[b]).tolist()]
        mixture = naive_mixture(sources, norm.tolist(), proj.tolist())
        torch.testing.assert_close(
            hidden[b].tolist(), naive_norm(mixture, w.tolist()), rtol=1e-12, atol=1e-12
        )
    assert torch.equal(new, prefix + delta)


def test_the_output_ignores_blocks_that_no_layer_wrote(randn):
    prefix, blocks, delta, weights = draw(randn)
    short, _ = attn_res_output(prefix, blocks[:, :5], delta, *weights, **F64)
    blocks[:, 5:] = NAN
    hidden, _ = attn_res_output(prefix, blocks, delta, *weights, num_blocks=5, **F64)
    assert torch.equal(hidden, short)


def test_bfloat16_rounds_the_prefix_before_mixing_and_the_output_mixture_before_its_norm(randn, bf16):
    prefix, blocks, delta, weights = (
        [t.bfloat16() for t in part] if isinstance(part, list) else part.bfloat16() for part in draw(randn)
    )
    norm, proj, w = (t.tolist() for t in weights)
    hidden, new = attn_res_output(prefix, blocks, delta, *weights, **F64)
    x, _ = attn_res_before_attention(prefix, blocks, delta, *weights, layer_idx=15, block_size=2, **F64)
    for b in range(3):
        rounded = [bf16(p + m) for p, m in zip(prefix[b].tolist(), delta[b].tolist(), strict=True)]
        mixture = naive_mixture([*blocks[b].tolist(), rounded], norm, proj)
        assert new[b].tolist() == rounded
        assert x[b].tolist() == [bf16(v) for v in naive_norm(mixture, w)]
        assert hidden[b].tolist() == [bf16(v) for v in naive_norm([bf16(v) for v in mixture], w)]


def test_the_output_rounding_of_the_mixture_can_be_seen(randn):
    prefix, blocks, delta, weights = draw(randn)
    args = [t.bfloat16() for t in (prefix, blocks, delta, *weights)]
    hidden, new = attn_res_output(*args, **F64)
    mixture = mix_sources(new, args[1], 8, args[3], args[4], **F64)
    unrounded = mixture * torch.rsqrt(mixture.square().mean(-1, keepdim=True) + 1e-5) * args[5].double()
    assert not torch.equal(hidden, unrounded.bfloat16())


def test_equal_sources_mix_to_themselves_and_one_dominant_score_takes_all(randn):
    prefix, _, _, (norm, proj, _) = draw(randn)
    same = mix_sources(prefix, prefix.unsqueeze(1).expand(-1, 8, -1), 8, norm, proj, **F64)
    torch.testing.assert_close(same, prefix, rtol=1e-14, atol=1e-14)
    blocks = randn(3, 8, 16)
    blocks[:, 3] = proj / norm
    dominated = mix_sources(prefix, blocks, 8, norm, proj * 1e4, **F64)
    torch.testing.assert_close(dominated, blocks[:, 3], rtol=0, atol=0)


def test_cancelling_sources_and_rows_of_zeros_stay_finite(randn):
    _, _, _, (norm, proj, w) = draw(randn)
    prefix = randn(3, 16, dtype=torch.bfloat16)
    x, new = attn_res_before_attention(
        prefix, torch.zeros(3, 8, 16, dtype=torch.bfloat16), -prefix, norm, proj, w, layer_idx=13
    )
    assert new.eq(0).all() and x.eq(0).all()


@pytest.mark.parametrize("scale", [1e4, 1e-4, 1e-40])
def test_the_mixture_of_sources_of_very_different_size_follows_the_formula(randn, scale):
    prefix, blocks, _, (norm, proj, _) = draw(randn)
    blocks[:, ::2] *= scale
    mixture = mix_sources(prefix, blocks, 8, norm, proj, **F64)
    for b in range(3):
        expected = naive_mixture([*blocks[b].tolist(), prefix[b].tolist()], norm.tolist(), proj.tolist())
        torch.testing.assert_close(mixture[b].tolist(), expected, rtol=1e-11, atol=1e-300)


def test_more_blocks_than_there_are_is_an_error(randn):
    prefix, blocks, _, (norm, proj, _) = draw(randn)
    with pytest.raises(ValueError, match="num_blocks: got 9"):
        mix_sources(prefix, blocks, 9, norm, proj)


def test_logit_shards_concatenate_and_are_rounded_once(randn, bf16):
    hidden, head = randn(2, 8, dtype=torch.bfloat16), randn(12, 8, dtype=torch.bfloat16)
    shards = [output_logits(hidden, part, **F64) for part in head.split(4)]
    expected = [
        [bf16(math.fsum(h * w for h, w in zip(row, col, strict=True))) for col in head.tolist()]
        for row in hidden.tolist()
    ]
    assert torch.cat(shards, dim=1).tolist() == expected


def test_the_lowest_id_wins_a_tie_and_nan_never_wins():
    logits = torch.tensor([[1.0, 2.0, NAN, 2.0], [NAN, -5.0, NAN, -5.0], [NAN] * 4, [-math.inf] * 4])
    assert greedy_token(logits).tolist() == [1, 1, 0, 0]
    wide = torch.zeros(3, 100_003)
    wide[:, 77_777] = wide[:, 99_999] = 1
    assert greedy_token(wide).tolist() == [77_777] * 3
