"""OC-9: absorbed attention over the paged cache."""

import math

import pytest
import torch

from specialized_path.reference import mla_attention, quantize_e4m3, visible_lens

NAN = float("nan")
F64 = {"acc_dtype": torch.float64}
H, C, R, P = 2, 3, 5, 4
SCALE = 0.37


def naive(query, rows):
    """One head over the rows it may see: latent and base-2 LSE in Python floats."""
    scores = [SCALE * math.fsum(a * b for a, b in zip(query, row, strict=True)) for row in rows]
    top = max(scores)
    weights = [math.exp(s - top) for s in scores]
    total = math.fsum(weights)
    latent = [math.fsum(w * row[c] for w, row in zip(weights, rows, strict=True)) / total for c in range(C)]
    return latent, top / math.log(2) + math.log2(total)


def paged(randn, lengths, *, page=P, poison=True):
    """Rows of each request, and a cache with shuffled pages whose every other row is NaN."""
    rows = [randn(n, R) for n in lengths]
    num_pages = [-(-n // page) for n in lengths]
    order = (1 + torch.randperm(sum(num_pages), generator=torch.Generator().manual_seed(1))).tolist()
    cache = torch.full((sum(num_pages) + 2, page, R), NAN if poison else 0.0, dtype=torch.float64)
    table = torch.tensor([[-1, 2**31 - 1] * 16] * len(lengths), dtype=torch.int32)
    for b, n in enumerate(lengths):
        for p in range(num_pages[b]):
            table[b, p] = order.pop()
            part = rows[b][p * page : min(n, (p + 1) * page)]
            cache[table[b, p], : len(part)] = part
    return rows, cache, table


def attend(query, cache, table, lens, **kwargs):
    options = {"kv_lora_rank": C, "scale": SCALE} | F64 | kwargs
    return mla_attention(query, cache, table, torch.tensor(lens, dtype=torch.int32), **options)


@pytest.mark.parametrize("lengths", [[0, 1, P - 1, P, P + 1, 3 * P + 2], [0], [1], [P], [0, 0]])
def test_every_head_attends_to_its_requests_rows_and_to_nothing_else_in_the_cache(randn, lengths):
    rows, cache, table = paged(randn, lengths)
    query = randn(len(lengths), 1, H, R)
    latent, lse = attend(query, cache, table, lengths)
    for b, n in enumerate(lengths):
        for h in range(H):
            expected = naive(query[b, 0, h].tolist(), rows[b].tolist()) if n else ([0.0] * C, -math.inf)
            torch.testing.assert_close(latent[b, 0, h].tolist(), expected[0], rtol=1e-12, atol=1e-13)
            assert lse[b, 0, h].item() == pytest.approx(expected[1], rel=1e-13)


@pytest.mark.parametrize("num_tokens", range(2, 9))
def test_a_new_row_sees_up_to_itself_also_when_later_rows_hold_nan(randn, num_tokens):
    lengths = [num_tokens, 9, 1, 0]
    rows, cache, table = paged(randn, lengths)
    query = randn(4, num_tokens, H, R)
    latent, lse = attend(query, cache, table, lengths)
    for b, n in enumerate(lengths):
        for t in range(num_tokens):
            seen = max(0, n - (num_tokens - 1 - t))
            expected = (
                naive(query[b, t, 0].tolist(), rows[b][:seen].tolist()) if seen else ([0.0] * C, -math.inf)
            )
            torch.testing.assert_close(latent[b, t, 0].tolist(), expected[0], rtol=1e-12, atol=1e-13)
            assert lse[b, t, 0].item() == pytest.approx(expected[1], rel=1e-13)
    cache[table[1, 2], 0] = NAN
    poisoned, _ = attend(query, cache, table, lengths)
    assert torch.equal(poisoned[1, :-1], latent[1, :-1]) and poisoned[1, -1].isnan().all()


def test_a_verify_step_equals_single_steps_on_a_growing_cache(randn):
    _, cache, table = paged(randn, [11, 6])
    query = randn(2, 4, H, R)
    latent, lse = attend(query, cache, table, [11, 6])
    for t in range(4):
        single, single_lse = attend(query[:, t : t + 1], cache, table, [8 + t, 3 + t])
        torch.testing.assert_close(latent[:, t : t + 1], single, rtol=1e-13, atol=1e-14)
        torch.testing.assert_close(lse[:, t : t + 1], single_lse, rtol=1e-13, atol=0)


def test_requests_with_fewer_new_rows_are_aligned_to_their_own_end(randn):
    _, cache, table = paged(randn, [9, 7])
    query = randn(2, 4, H, R)
    query[0, 2:] = NAN
    latent, lse = attend(query, cache, table, [9, 7], query_lens=torch.tensor([2, 4]))
    short, short_lse = attend(query[:1, :2], cache, table[:1], [9])
    torch.testing.assert_close(latent[:1, :2], short, rtol=1e-13, atol=1e-14)
    torch.testing.assert_close(lse[:1, :2], short_lse, rtol=1e-13, atol=0)
    assert latent[0, 2:].eq(0).all() and lse[0, 2:].eq(-math.inf).all()


def test_visible_lengths_are_causal_among_the_new_rows_and_never_negative():
    visible = visible_lens(torch.tensor([5, 1, 0]), 3, query_lens=torch.tensor([3, 3, 1]))
    assert visible.tolist() == [[3, 4, 5], [0, 0, 1], [0, 0, 0]]
    assert visible_lens(torch.tensor([5]), 3, query_lens=torch.tensor([2])).tolist() == [[4, 5, 0]]


def test_equal_scores_give_the_mean_and_their_count(randn):
    rows, cache, table = paged(randn, [8])
    latent, lse = attend(torch.zeros(1, 1, H, R).double(), cache, table, [8])
    torch.testing.assert_close(latent[0, 0, 0], rows[0][:, :C].mean(0), rtol=1e-14, atol=1e-15)
    assert lse.tolist() == [[[3.0, 3.0]]]


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("acc_dtype", [torch.float32, torch.float64])
def test_scores_of_thirty_thousand_neither_overflow_nor_wash_out(randn, sign, acc_dtype):
    _, cache, table = paged(randn, [3], poison=False)
    cache[:] = 0
    cache[table[0, 0], :3, 0] = torch.tensor([1.0, 1.0, 0.999]).double()
    cache[table[0, 0], :3, 1] = torch.tensor([5.0, 7.0, 1000.0]).double()
    query = torch.zeros(1, 1, H, R).double()
    query[..., 0] = sign * 3e4 / SCALE
    latent, lse = attend(query, cache, table, [3], acc_dtype=acc_dtype)
    expected = 6.0 if sign > 0 else 1000.0
    assert latent[0, 0, 0, 1].item() == pytest.approx(expected, rel=1e-6)
    top = 3e4 if sign > 0 else -3e4 * 0.999
    assert lse[0, 0, 0].item() == pytest.approx(top / math.log(2) + (sign > 0), rel=1e-6)


def test_a_table_too_short_for_the_longest_request_is_an_error(randn):
    _, cache, table = paged(randn, [9])
    with pytest.raises(ValueError, match="block_table columns: got 2, expected at least 3"):
        attend(randn(1, 1, H, R), cache, table[:, :2], [9])


def test_bfloat16_output_is_rounded_once(randn, bf16):
    _, cache, table = paged(randn, [7, 2])
    query = randn(2, 1, H, R, dtype=torch.bfloat16)
    wide, _ = attend(query, cache, table, [7, 2], out_dtype=torch.float64)
    latent, _ = attend(query, cache, table, [7, 2])
    assert latent.dtype == torch.bfloat16
    assert latent.flatten().tolist() == [bf16(v) for v in wide.flatten().tolist()]


def test_a_float8_cache_and_query_attend_as_the_values_of_their_codes(randn):
    _, cache, table = paged(randn, [7, 2])
    query = randn(2, 1, H, R)
    codes, query_codes = quantize_e4m3(cache, scale=0.25), quantize_e4m3(query, scale=0.5)
    latent, lse = attend(
        query_codes, codes, table, [7, 2], k_scale=0.25, q_scale=0.5, out_dtype=torch.float64
    )
    expected, expected_lse = attend(query_codes.double() * 0.5, codes.double() * 0.25, table, [7, 2])
    torch.testing.assert_close(latent, expected, rtol=1e-12, atol=1e-13)
    torch.testing.assert_close(lse, expected_lse, rtol=1e-12, atol=1e-13)
    assert attend(query_codes, codes, table, [7, 2])[0].dtype == torch.bfloat16


def test_strided_tables_and_caches_mean_what_contiguous_copies_mean(randn):
    _, cache, table = paged(randn, [9, 5])
    query = randn(2, 1, H, R)
    spread = torch.stack([table, table * 0 - 5], dim=-1).flatten(1)
    latent, _ = attend(query, cache.mT.contiguous().mT, spread[:, ::2], [9, 5])
    torch.testing.assert_close(latent, attend(query, cache, table, [9, 5])[0], rtol=1e-13, atol=1e-14)
