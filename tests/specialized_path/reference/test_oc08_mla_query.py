"""OC-8: MLA query rows and cache rows."""

import math

import pytest
import torch

from specialized_path.reference import mla_cache_write, mla_query, split_kv_b

NAN = float("nan")
F64 = {"acc_dtype": torch.float64}
D, H, Q_RANK, KV_RANK, NOPE, ROPE, V = 7, 2, 5, 6, 4, 2, 3


def weights(randn, dtype=torch.float64):
    return {
        "w_fused": randn(Q_RANK + KV_RANK + ROPE + H * V, D, dtype=dtype),
        "q_a_norm_weight": randn(Q_RANK, dtype=dtype),
        "kv_a_norm_weight": randn(KV_RANK, dtype=dtype),
        "w_q_b": randn(H * (NOPE + ROPE), Q_RANK, dtype=dtype),
        "w_uk": randn(H, NOPE, KV_RANK, dtype=dtype),
    }


def product(x, rows, rounded):
    return [rounded(math.fsum(a * b for a, b in zip(x, row, strict=True))) for row in rows]


def normed(x, weight, rounded):
    rms = math.sqrt(math.fsum(v * v for v in x) / len(x) + 1e-5)
    return [rounded(v / rms * w) for v, w in zip(x, weight, strict=True)]


def naive(x, w, rounded):
    """One row in Python floats: query rows by head, cache row, gate."""
    y = product(x, w["w_fused"].tolist(), rounded)
    kv_end = Q_RANK + KV_RANK
    q_c = normed(y[:Q_RANK], w["q_a_norm_weight"].tolist(), rounded)
    row = normed(y[Q_RANK:kv_end], w["kv_a_norm_weight"].tolist(), rounded) + y[kv_end : kv_end + ROPE]
    q = product(q_c, w["w_q_b"].tolist(), rounded)
    query = []
    for h in range(H):
        head = q[h * (NOPE + ROPE) : (h + 1) * (NOPE + ROPE)]
        query.append(product(head[:NOPE], w["w_uk"][h].T.tolist(), rounded) + head[NOPE:])
    return query, row, y[kv_end + ROPE :]


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_rows_follow_the_formula_with_one_rounding_at_each_stage(randn, bf16, dtype):
    w, x = weights(randn, dtype), randn(3, D, dtype=dtype)
    x[2] = 0
    y = mla_query(x, **w, **F64)
    for b in range(3):
        query, row, gate = naive(x[b].tolist(), w, bf16 if dtype == torch.bfloat16 else float)
        tolerance = {"rtol": 0, "atol": 0} if dtype == torch.bfloat16 else {"rtol": 1e-11, "atol": 1e-12}
        torch.testing.assert_close(y.query[b].tolist(), query, **tolerance)
        torch.testing.assert_close(y.cache_row[b].tolist(), row, **tolerance)
        torch.testing.assert_close(y.gate[b].tolist(), gate, **tolerance)


def test_a_rank_with_some_heads_computes_its_part_of_the_whole(randn):
    w, x = weights(randn), randn(3, D)
    whole = mla_query(x, **w, **F64)
    latent = Q_RANK + KV_RANK + ROPE
    for h in range(H):
        own = w | {
            "w_fused": torch.cat([w["w_fused"][:latent], w["w_fused"][latent + h * V : latent + h * V + V]]),
            "w_q_b": w["w_q_b"].unflatten(0, (H, -1))[h],
            "w_uk": w["w_uk"][h : h + 1],
        }
        part = mla_query(x, **own, **F64)
        torch.testing.assert_close(part.query[:, 0], whole.query[:, h], rtol=1e-12, atol=1e-13)
        torch.testing.assert_close(part.cache_row, whole.cache_row, rtol=1e-12, atol=1e-13)
        torch.testing.assert_close(part.gate, whole.gate[:, h * V : h * V + V], rtol=1e-12, atol=1e-13)


def test_a_heads_key_rows_come_before_its_value_rows(randn):
    w_kv_b = randn(H * (NOPE + V), KV_RANK)
    w_uk, w_uv = split_kv_b(w_kv_b, num_heads=H, qk_nope_head_dim=NOPE)
    assert torch.equal(w_uk[1], w_kv_b[NOPE + V : 2 * NOPE + V]) and torch.equal(w_uv[1], w_kv_b[-V:])


def test_fused_rows_without_a_gate_are_an_error(randn):
    w = weights(randn)
    with pytest.raises(ValueError, match="w_fused rows: got 13, expected more than 13"):
        mla_query(randn(1, D), **(w | {"w_fused": w["w_fused"][:13]}))


def test_rows_land_at_page_and_offset_and_nowhere_else(randn):
    cache, rows = randn(4, 3, 5), randn(6, 5)
    rows[1] = NAN
    expected = cache.clone()
    slots = torch.tensor([2, -1, 3, 11, 7, 0], dtype=torch.int32)
    for b, (page, offset) in {0: (0, 2), 2: (1, 0), 3: (3, 2), 4: (2, 1), 5: (0, 0)}.items():
        expected[page, offset] = rows[b]
    mla_cache_write(rows, cache, slots)
    assert torch.equal(cache, expected)


def test_only_negative_slots_write_nothing(randn):
    cache = randn(2, 3, 5)
    before = cache.clone()
    mla_cache_write(torch.full((3, 5), NAN).double(), cache, torch.tensor([-1, -1, -7]))
    assert torch.equal(cache, before)


def test_a_strided_cache_takes_the_bits_of_the_rows(randn):
    storage, rows = torch.zeros(2, 5, 3, dtype=torch.bfloat16), randn(1, 5, dtype=torch.bfloat16)
    mla_cache_write(rows, storage.mT, torch.tensor([4]))
    assert torch.equal(storage[1, :, 1], rows[0]) and storage.count_nonzero() == 5


def test_a_float8_cache_is_scaled_and_pinned_to_its_range():
    cache = torch.zeros(1, 2, 3).to(torch.float8_e4m3fn)
    mla_cache_write(torch.tensor([[1.0, 1000.0, -1e9]]), cache, torch.tensor([1]), k_scale=2.0)
    assert cache.float().tolist() == [[[0, 0, 0], [0.5, 448.0, -448.0]]]
