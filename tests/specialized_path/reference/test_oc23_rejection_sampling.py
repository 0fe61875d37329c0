"""OC-23: which drafts are kept, and what follows them."""

import itertools
import math

import pytest
import torch

from specialized_path.reference import (
    rejection_sample,
    rejection_sample_greedy,
    rejection_sample_synthetic,
    synthetic_acceptance_rates,
)

NAN = float("nan")


def one_hot_logits(tokens, vocab=5):
    return torch.nn.functional.one_hot(torch.tensor(tokens), vocab).double() * 3


def test_greedy_keeps_drafts_up_to_the_first_that_is_not_the_targets_choice():
    targets = [[1, 2, 3, 4]] * 5
    drafts = torch.tensor([[1, 2, 3], [1, 2, 0], [1, 0, 3], [0, 2, 3], [1, 2, 3]])
    result = rejection_sample_greedy(
        drafts, one_hot_logits(targets), num_draft_tokens=torch.tensor([3, 3, 3, 3, 1])
    )
    assert result.num_accepted_tokens.tolist() == [4, 3, 2, 1, 2]
    assert result.token_ids.tolist() == [
        [1, 2, 3, 4],
        [1, 2, 3, -1],
        [1, 2, -1, -1],
        [1, -1, -1, -1],
        [1, 2, -1, -1],
    ]
    assert result.next_token_ids.tolist() == [4, 3, 2, 1, 2]


def test_greedy_judges_a_tie_by_the_lowest_id():
    logits = torch.tensor([[[0.0, 4.0, 4.0], [1.0, 0.0, 0.0]]])
    kept = rejection_sample_greedy(torch.tensor([[1]]), logits)
    refused = rejection_sample_greedy(torch.tensor([[2]]), logits)
    assert (kept.token_ids.tolist(), refused.token_ids.tolist()) == ([[1, 0]], [[1, -1]])


def grid(*counts):
    """Midpoints of a regular grid in [0, 1)^n, one row a point."""
    axes = [[(i + 0.5) / n for i in range(n)] for n in counts]
    return torch.tensor(list(itertools.product(*axes)), dtype=torch.float64)


P = torch.tensor([0.5, 0.2, 0.3, 0.0], dtype=torch.float64)


@pytest.mark.parametrize("q", [[0.25] * 4, [0.1, 0.8, 0.1, 0.0], [0.5, 0.2, 0.3, 0.0], [0.0, 0.0, 0.0, 1.0]])
def test_the_first_token_is_distributed_as_the_target_whatever_the_drafter_proposes(q):
    q, points = torch.tensor(q, dtype=torch.float64), grid(120, 120)
    frequency = torch.zeros(4, dtype=torch.float64)
    for draft in range(4):
        n = len(points)
        result = rejection_sample(
            torch.full((n, 1), draft),
            q.expand(n, 1, 4),
            P.log().expand(n, 2, 4),
            points[:, :1],
            points[:, 1],
            acc_dtype=torch.float64,
        )
        frequency += q[draft] * torch.bincount(result.token_ids[:, 0], minlength=4) / n
    torch.testing.assert_close(frequency, P, rtol=0, atol=0.01)


@pytest.mark.parametrize("draft", range(4))
def test_a_drafter_without_probabilities_leaves_the_targets_distribution_too(draft):
    points = grid(120, 120)
    n = len(points)
    result = rejection_sample(
        torch.full((n, 1), draft),
        None,
        P.log().expand(n, 2, 4),
        points[:, :1],
        points[:, 1],
        acc_dtype=torch.float64,
    )
    frequency = torch.bincount(result.token_ids[:, 0], minlength=4) / n
    torch.testing.assert_close(frequency.double(), P, rtol=0, atol=0.01)


@pytest.mark.parametrize("num_drafts", [0, 2])
def test_the_bonus_token_is_a_sample_of_the_row_after_the_last_draft_of_the_request(num_drafts):
    rows = torch.stack([P, P.flip(0), P.roll(1)]).log()
    points = grid(400)
    n = len(points)
    result = rejection_sample(
        torch.tensor([[0, 3]]).expand(n, 2),
        torch.stack([P, P.flip(0)]).expand(n, 2, 4),
        rows.expand(n, 3, 4),
        torch.zeros(n, 2),
        points[:, 0],
        num_draft_tokens=torch.full((n,), num_drafts),
        acc_dtype=torch.float64,
    )
    assert result.num_accepted_tokens.eq(num_drafts + 1).all()
    frequency = torch.bincount(result.next_token_ids, minlength=4).double() / n
    torch.testing.assert_close(frequency, rows[num_drafts].exp(), rtol=0, atol=0.01)


def test_equal_distributions_keep_every_draft_and_disjoint_ones_keep_none():
    p = torch.tensor([0.5, 0.5, 0.0, 0.0])
    almost_one = torch.full((1, 2), 1 - 2**-24)
    same = rejection_sample(
        torch.tensor([[0, 1]]), p.expand(1, 2, 4), p.log().expand(1, 3, 4), almost_one, torch.zeros(1)
    )
    apart = rejection_sample(
        torch.tensor([[2, 3]]),
        p.flip(0).expand(1, 2, 4),
        p.log().expand(1, 3, 4),
        torch.zeros(1, 2),
        torch.zeros(1),
    )
    assert same.num_accepted_tokens.item() == 3
    assert apart.num_accepted_tokens.item() == 1 and apart.next_token_ids.item() in (0, 1)


def test_a_refused_draft_of_a_drafter_equal_to_the_target_is_replaced_by_a_sample_of_the_target():
    p = torch.tensor([0.0, 0.5, 0.5, 0.0])
    for uniform, token in ((0.4, 1), (0.6, 2)):
        result = rejection_sample(
            torch.tensor([[0]]),
            p.expand(1, 1, 4),
            p.log().expand(1, 2, 4),
            torch.zeros(1, 1),
            torch.tensor([uniform]),
        )
        assert result.token_ids.tolist() == [[token, -1]]


def test_a_draft_that_the_drafter_gave_no_chance_is_refused():
    p = torch.tensor([0.5, 0.5])
    result = rejection_sample(
        torch.tensor([[0]]),
        torch.tensor([[[0.0, 1.0]]]),
        p.log().expand(1, 2, 2),
        torch.zeros(1, 1),
        torch.zeros(1),
    )
    assert result.token_ids.tolist() == [[0, -1]]


@pytest.mark.parametrize("fill", [NAN, math.inf, -math.inf])
@pytest.mark.parametrize("with_probs", [True, False])
def test_no_logits_lead_outside_the_vocabulary(fill, with_probs):
    logits = torch.full((2, 3, 4), fill)
    logits[1, :, 2] = 1.0
    probs = torch.full((2, 2, 4), NAN) if with_probs else None
    for uniform in (0.0, 1 - 2**-24):
        result = rejection_sample(
            torch.tensor([[3, 2], [-1, 10**6]]), probs, logits, torch.zeros(2, 2), torch.full((2,), uniform)
        )
        assert ((result.next_token_ids >= 0) & (result.next_token_ids < 4)).all()
        greedy = rejection_sample_greedy(torch.tensor([[3, 2], [-1, 10**6]]), logits)
        assert ((greedy.next_token_ids >= 0) & (greedy.next_token_ids < 4)).all()


def test_a_token_without_probability_is_never_sampled_at_either_end_of_the_uniform():
    p = torch.tensor([0.0, 0.5, 0.5, 0.0])
    for uniform in (0.0, 1 - 2**-24):
        result = rejection_sample(
            torch.zeros(1, 0, dtype=torch.long),
            None,
            p.log().expand(1, 1, 4),
            torch.zeros(1, 0),
            torch.tensor([uniform]),
        )
        assert result.next_token_ids.item() in (1, 2)


@pytest.mark.parametrize("mean_length", [1.0, 1.5, 2.0, 2.75, 4.0])
def test_synthetic_acceptance_keeps_the_mean_length_asked_for(mean_length):
    points = grid(20, 20, 20)
    n = len(points)
    result = rejection_sample_synthetic(
        torch.zeros(n, 3, dtype=torch.long), torch.zeros(n, 4, 5), points, mean_length=mean_length
    )
    assert result.num_accepted_tokens.double().mean().item() == pytest.approx(mean_length)
    assert (result.num_accepted_tokens - mean_length).abs().max() < 1


def test_synthetic_rates_are_conditional_and_a_mean_out_of_reach_is_an_error():
    assert synthetic_acceptance_rates(2.75, 4) == [1.0, 0.75, 0.0, 0.0]
    for mean_length in (0.9, 5.1):
        with pytest.raises(ValueError, match="mean_length"):
            synthetic_acceptance_rates(mean_length, 4)
