"""OC-6: the KDA recurrence and its gated output norm, one token."""

import math

import pytest
import torch

from specialized_path.reference import delta_rule_step, gated_rms_norm, kda_step

NAN = float("nan")
F64 = {"acc_dtype": torch.float64}
H, V, K = 2, 3, 4


def draw(randn, batch):
    return (
        randn(batch, H, K),
        randn(batch, H, K),
        randn(batch, H, V),
        -5 * torch.sigmoid(randn(batch, H, K)),
        torch.sigmoid(randn(batch, H)),
    )


def unit(vector, eps=1e-6):
    norm = math.sqrt(math.fsum(x * x for x in vector) + eps)
    return [x / norm for x in vector]


def naive_step(q, k, v, g, beta, S):
    """One head in Python floats: lists q, k, g of K, v of V, S as V rows of K."""
    q, k = [x / math.sqrt(len(q)) for x in unit(q)], unit(k)
    S = [[s * math.exp(a) for s, a in zip(row, g, strict=True)] for row in S]
    for row, value in zip(S, v, strict=True):
        u = beta * (value - math.fsum(s * x for s, x in zip(row, k, strict=True)))
        for c, x in enumerate(k):
            row[c] += u * x
    return [math.fsum(s * x for s, x in zip(row, q, strict=True)) for row in S], S


def naive_output(o, gate, weight):
    rms = math.sqrt(math.fsum(x * x for x in o) / len(o) + 1e-5)
    return [x / rms * w / (1 + math.exp(-z)) for x, w, z in zip(o, weight, gate, strict=True)]


def test_a_step_follows_the_formula_by_request_and_head(randn):
    inputs, gate, weight, pool = draw(randn, 3), randn(3, H * V), randn(V), randn(6, H, V, K)
    slots, before = torch.tensor([5, 1, 2], dtype=torch.int32), pool.clone()
    y = kda_step(*inputs, gate, weight, pool, slots, **F64)
    for b, slot in enumerate(slots.tolist()):
        for h in range(H):
            o, S = naive_step(*(t[b, h].tolist() for t in inputs), before[slot, h].tolist())
            z = gate[b, h * V : h * V + V].tolist()
            torch.testing.assert_close(pool[slot, h].tolist(), S, rtol=1e-12, atol=1e-13)
            torch.testing.assert_close(
                y[b, h * V : h * V + V].tolist(), naive_output(o, z, weight.tolist()), rtol=1e-11, atol=1e-13
            )
    assert torch.equal(pool[[0, 3, 4]], before[[0, 3, 4]])


def test_steps_unrolled_equal_the_closed_form(randn):
    steps = [draw(randn, 1) for _ in range(8)]
    S0 = randn(1, H, V, K)
    S, outputs = S0, []
    for step in steps:
        o, S = delta_rule_step(*step, S, **F64)
        outputs.append(o)
    for h in range(H):
        rows = [[t[0, h] for t in step] for step in steps]
        L = torch.stack([r[3] for r in rows]).cumsum(0)
        keys = [r[1] / (r[1].square().sum() + 1e-6).sqrt() for r in rows]
        queries = [r[0] / (r[0].square().sum() + 1e-6).sqrt() / math.sqrt(K) for r in rows]
        us = []
        for t, row in enumerate(rows):
            recalled = S0[0, h] @ (L[t].exp() * keys[t])
            for i in range(t):
                recalled = recalled + us[i] * ((keys[i] * (L[t] - L[i]).exp()) @ keys[t])
            us.append(row[4] * (row[2] - recalled))
            o = S0[0, h] @ (L[t].exp() * queries[t])
            for i in range(t + 1):
                o = o + us[i] * ((keys[i] * (L[t] - L[i]).exp()) @ queries[t])
            torch.testing.assert_close(outputs[t][0, h], o, rtol=1e-11, atol=1e-12)
        end = S0[0, h] * L[-1].exp()
        for u, key, log_decay in zip(us, keys, L, strict=True):
            end = end + torch.outer(u, key * (L[-1] - log_decay).exp())
        torch.testing.assert_close(S[0, h], end, rtol=1e-11, atol=1e-12)


def test_heads_do_not_know_of_each_other(randn):
    inputs, gate, weight, pool = draw(randn, 2), randn(2, H * V), randn(V), randn(3, H, V, K)
    slots = torch.tensor([2, 1])
    parts = [
        kda_step(
            *(t[:, h : h + 1] for t in inputs),
            gate[:, h * V : h * V + V],
            weight,
            pool[:, h : h + 1].clone(),
            slots,
            **F64,
        )
        for h in range(H)
    ]
    torch.testing.assert_close(
        torch.cat(parts, dim=1), kda_step(*inputs, gate, weight, pool, slots, **F64), rtol=1e-12, atol=1e-14
    )


def test_a_key_of_zeros_writes_nothing_and_a_query_of_zeros_reads_nothing(randn):
    q, k, v, _, beta = draw(randn, 1)
    S = randn(1, H, V, K)
    o, end = delta_rule_step(q * 0, k * 0, v, torch.zeros_like(q), beta, S, **F64)
    assert torch.equal(end, S) and o.eq(0).all()


def test_a_repeated_key_comes_to_recall_its_value_and_keeps_it(randn):
    q, k, v, g, _ = draw(randn, 1)
    k, S = k * 1e3, randn(1, H, V, K)
    for _ in range(1000):
        _, S = delta_rule_step(q, k, v, g * 0, torch.ones(1, H).double(), S, **F64)
    recalled = (S @ (k / k.norm(dim=-1, keepdim=True)).unsqueeze(-1)).squeeze(-1)
    torch.testing.assert_close(recalled, v, rtol=1e-10, atol=1e-10)


def test_the_strongest_decay_forgets_by_e_to_minus_five_a_token(randn):
    q, k, v, _, beta = draw(randn, 1)
    S = randn(1, H, V, K, scale=1e6)
    _, end = delta_rule_step(q, k, v, torch.full_like(q, -5.0), beta * 0, S, **F64)
    torch.testing.assert_close(end, S * math.exp(-5), rtol=1e-14, atol=0)


def test_float32_does_not_drift_over_thousands_of_steps_without_decay(randn):
    q, k, v, g, beta = draw(randn, 4)
    narrow, wide = torch.zeros(4, H, V, K), torch.zeros(4, H, V, K, dtype=torch.float64)
    for n in range(2000):
        step = [t.roll(n % 4, 0).float() for t in (q, k, v, g * 1e-4, beta)]
        _, narrow = delta_rule_step(*step, narrow)
        _, wide = delta_rule_step(*step, wide, **F64)
    assert (narrow - wide).norm() / wide.norm() < 1e-5


@pytest.mark.parametrize("null", [0, -1])
def test_a_null_slot_gives_zero_and_leaves_the_whole_pool_alone(randn, null):
    inputs = [torch.full_like(t, NAN) for t in draw(randn, 2)]
    pool = randn(3, H, V, K)
    pool[0] = NAN
    before = pool.clone()
    y = kda_step(
        *inputs, torch.full((2, H * V), NAN).double(), randn(V), pool, torch.tensor([null, null]), **F64
    )
    assert y.eq(0).all() and torch.equal(pool.nan_to_num(7), before.nan_to_num(7))


def test_nan_in_other_slots_and_padded_rows_reaches_no_live_request(randn):
    inputs, gate, weight = draw(randn, 3), randn(3, H * V), randn(V)
    for t in (*inputs, gate):
        t[0] = t[2] = NAN
    pool = torch.full((5, H, V, K), NAN, dtype=torch.float64)
    pool[2] = randn(H, V, K)
    alone = pool[1:3].clone()
    y = kda_step(*inputs, gate, weight, pool, torch.tensor([0, 2, -1]), **F64)
    expected = kda_step(*(t[1:2] for t in inputs), gate[1:2], weight, alone, torch.tensor([1]), **F64)
    torch.testing.assert_close(y[1:2], expected, rtol=1e-13, atol=0)
    torch.testing.assert_close(pool[2], alone[1], rtol=1e-13, atol=0)
    assert pool[[0, 1, 3, 4]].isnan().all() and y[[0, 2]].eq(0).all()


def test_strided_slots_and_a_strided_pool_mean_what_contiguous_copies_mean(randn):
    inputs, gate, weight = draw(randn, 2), randn(2, H * V), randn(V)
    table = torch.tensor([[7, 3], [7, 1]], dtype=torch.int32)
    storage = randn(4, K, H, V + 2)
    view = storage.permute(0, 2, 3, 1)[:, :, :V]
    copy = view.contiguous()
    y = kda_step(*inputs, gate, weight, view, table[:, 1], **F64)
    torch.testing.assert_close(
        y, kda_step(*inputs, gate, weight, copy, torch.tensor([3, 1]), **F64), rtol=1e-13, atol=1e-15
    )
    torch.testing.assert_close(view, copy, rtol=1e-13, atol=1e-15)


def test_an_output_of_zeros_stays_zero_and_the_norm_is_by_head(randn):
    assert gated_rms_norm(torch.zeros(1, H, V), randn(1, H * V), randn(V)).eq(0).all()
    o, gate = randn(1, H, V), randn(1, H * V)
    scaled = o * torch.tensor([1.0, 1e6]).double().reshape(1, H, 1)
    first = gated_rms_norm(scaled, gate, randn(V), eps=0.0, **F64)[:, :V]
    assert first.abs().max() > 1e-3


def test_state_keeps_its_own_type_and_the_output_takes_the_gates(randn):
    inputs, pool = draw(randn, 1), torch.zeros(2, H, V, K, dtype=torch.bfloat16)
    _, end = delta_rule_step(*inputs, pool[1:], **F64)
    y = kda_step(*inputs, randn(1, H * V, dtype=torch.float16), randn(V), pool, torch.tensor([1]), **F64)
    assert torch.equal(pool[1:], end.bfloat16()) and y.dtype == torch.float16


def test_the_output_is_rounded_once(randn, bf16):
    inputs, pool, weight = draw(randn, 2), randn(3, H, V, K), randn(V)
    gate, slots = randn(2, H * V, dtype=torch.bfloat16), torch.tensor([1, 2])
    wide = kda_step(*inputs, gate.double(), weight, pool.clone(), slots, **F64)
    y = kda_step(*inputs, gate, weight, pool.clone(), slots, **F64)
    assert y.flatten().tolist() == [bf16(v) for v in wide.flatten().tolist()]
