"""OC-14: the router."""

import math

import torch

from specialized_path.reference import router, router_logits, select_experts

NAN = float("nan")
F64 = {"acc_dtype": torch.float64, "weight_dtype": torch.float64}


def choose(logits, bias=None, top_k=4, **kwargs):
    logits = torch.as_tensor(logits, dtype=torch.float64)
    bias = torch.zeros(logits.shape[-1]).double() if bias is None else torch.as_tensor(bias).double()
    return select_experts(logits, bias, top_k=top_k, **(F64 | kwargs))


def test_choice_and_weights_follow_the_formula(randn):
    x, w_gate, bias = randn(9, 6), randn(20, 6), randn(20, scale=0.3)
    ids, weights = router(x, w_gate, bias, top_k=5, acc_dtype=torch.float64)
    for b in range(9):
        scores = [1 / (1 + math.exp(-math.fsum((x[b] * row).tolist()))) for row in w_gate]
        best = sorted(range(20), key=lambda e: (-(scores[e] + bias[e].item()), e))[:5]
        total = math.fsum(scores[e] for e in best)
        assert ids[b].tolist() == best
        torch.testing.assert_close(weights[b].tolist(), [scores[e] / total for e in best], rtol=1e-12, atol=0)


def test_logits_are_not_rounded_and_their_shards_concatenate(randn):
    x, w_gate = randn(2, 64, dtype=torch.bfloat16), randn(12, 64, dtype=torch.bfloat16)
    whole = router_logits(x, w_gate)
    assert whole.dtype == torch.float32 and not torch.equal(whole, whole.bfloat16().float())
    shards = torch.cat([router_logits(x, part, acc_dtype=torch.float64) for part in w_gate.split(4)], dim=1)
    torch.testing.assert_close(shards, x.double() @ w_gate.double().T, rtol=1e-13, atol=1e-14)


def test_equal_logits_choose_the_lowest_ids_in_order():
    ids, weights = choose(torch.zeros(3, 896), top_k=16)
    assert ids.tolist() == [list(range(16))] * 3 and weights.eq(1 / 16).all()


def test_maxima_that_straddle_the_last_place_go_to_the_lower_ids():
    logits = torch.full((1, 100), -3.0)
    logits[0, [90, 70, 50, 30, 10, 5]] = 2.0
    logits[0, 99] = 5.0
    assert choose(logits)[0].tolist() == [[99, 5, 10, 30]]


def test_the_bias_moves_the_choice_and_no_weight():
    bias = torch.zeros(8)
    bias[6], bias[0] = 100.0, -100.0
    ids, weights = choose([[3.0, 1.0, 0.5, 0.2, 0.1, 0.0, -2.0, -3.0]], bias, top_k=2)
    low, high = 1 / (1 + math.exp(2)), 1 / (1 + math.exp(-1))
    assert ids.tolist() == [[6, 1]]
    torch.testing.assert_close(
        weights.tolist()[0], [low / (low + high), high / (low + high)], rtol=1e-14, atol=0
    )


def test_nan_ranks_behind_every_number_even_minus_infinity():
    ids, _ = choose([[NAN, 1.0, 0.0, NAN, 2.0, 0.5]], [0.0, 0.0, -math.inf, 0.0, 0.0, 0.0], top_k=6)
    assert ids.tolist() == [[4, 1, 5, 2, 0, 3]]
    ids, _ = choose([[NAN] * 6])
    assert ids.tolist() == [[0, 1, 2, 3]]


def test_scores_of_zero_everywhere_weigh_zero_and_saturated_ones_weigh_evenly():
    _, weights = choose([[-1e4] * 6])
    assert weights.eq(0).all()
    _, weights = choose([[1e4] * 4 + [-1e4] * 2])
    assert weights.eq(0.25).all()


def test_minus_zero_and_plus_zero_keys_tie():
    logits = [[-1e4, -1e4, -1e4, -1e4]]
    assert choose(logits, [-0.0, 0.0, -0.0, 0.0], top_k=2)[0].tolist() == [[0, 1]]


def test_weights_take_the_type_of_the_activations_and_the_scaling_factor(randn, bf16):
    x, w_gate, bias = randn(3, 6, dtype=torch.bfloat16), randn(8, 6), randn(8)
    ids, weights = router(x, w_gate, bias, top_k=3, routed_scaling_factor=2.5, acc_dtype=torch.float64)
    wide = router(x.double(), w_gate, bias, top_k=3, acc_dtype=torch.float64)[1]
    assert weights.dtype == torch.bfloat16 and ids.dtype == torch.int32
    torch.testing.assert_close(
        weights.flatten().tolist(), [bf16(v) for v in (wide * 2.5).flatten().tolist()], rtol=1e-14, atol=0
    )
