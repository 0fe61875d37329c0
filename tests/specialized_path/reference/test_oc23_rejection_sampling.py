"""OC-23: which drafts are kept, and what follows them."""

import itertools
import math

import pytest
import torch

from specialized_path.reference import (
    rejection_sample,
    rejection_sample_block,
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


@pytest.mark.parametrize("sample", [rejection_sample, rejection_sample_block])
def test_a_draft_that_the_drafter_gave_no_chance_is_refused(sample):
    p = torch.tensor([0.5, 0.5])
    result = sample(
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
    points = grid(24, 24, 24)
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


def every_draft(p1, p2, q1, q2, points, sample):
    """(weight, result) for each pair of drafts; the distributions of the second place depend on the first draft."""
    vocab, n = len(p1), len(points)
    for first, second in itertools.product(range(vocab), repeat=2):
        logits = torch.stack([p1, p2[first], p1]).log().expand(n, 3, vocab)
        probs = torch.stack([q1, q2[first]]).expand(n, 2, vocab)
        drafts = torch.tensor([[first, second]]).expand(n, 2)
        result = sample(drafts, probs, logits, points[:, :2], points[:, 2], acc_dtype=torch.float64)
        yield (q1[first] * q2[first, second]).item(), result


def conditionals(*seeds):
    """Distributions over three tokens, alone and given one token."""
    generators = [torch.Generator().manual_seed(seed) for seed in seeds]
    tables = []
    for shape, generator in zip(((3,), (3, 3)) * 2, (g for g in generators for _ in range(2)), strict=True):
        weights = torch.rand(shape, generator=generator, dtype=torch.float64) ** 3
        tables.append(weights / weights.sum(dim=-1, keepdim=True))
    return tables


@pytest.mark.parametrize("seeds", [(3, 4), (7, 8)])
def test_block_verification_leaves_the_joint_distribution_of_two_tokens_to_the_target(seeds):
    p1, p2, q1, q2 = conditionals(*seeds)
    points = grid(24, 24, 24)
    joint = torch.zeros(3, 3, dtype=torch.float64)
    for weight, result in every_draft(p1, p2, q1, q2, points, rejection_sample_block):
        both = result.token_ids[:, 1] >= 0
        index = result.token_ids[both, 0] * 3 + result.token_ids[both, 1]
        alone = torch.bincount(result.token_ids[~both, 0], minlength=3)
        counts = torch.bincount(index, minlength=9).reshape(3, 3) + alone[:, None] * p2
        joint += weight * counts / len(points)
    torch.testing.assert_close(joint, p1[:, None] * p2, rtol=0, atol=0.016)


def test_block_verification_keeps_more_drafts_on_average_than_one_by_one():
    tables, points = conditionals(3, 4), grid(24, 24, 1)
    block, single = (
        sum(w * r.num_accepted_tokens.double().mean().item() for w, r in every_draft(*tables, points, sample))
        for sample in (rejection_sample_block, rejection_sample)
    )
    assert block > single + 0.02


@pytest.mark.parametrize("q", [[0.25] * 4, [0.1, 0.8, 0.1, 0.0], [0.5, 0.2, 0.3, 0.0], None])
def test_a_block_of_one_draft_is_judged_as_a_draft_alone(q):
    points = grid(40, 40)
    n = len(points)
    probs = None if q is None else torch.tensor(q).double().expand(n, 1, 4)
    for draft in range(4):
        given = (torch.full((n, 1), draft), probs, P.log().expand(n, 2, 4), points[:, :1], points[:, 1])
        block = rejection_sample_block(*given, acc_dtype=torch.float64)
        alone = rejection_sample(*given, acc_dtype=torch.float64)
        assert torch.equal(block.token_ids, alone.token_ids)


def test_a_longer_block_that_passes_is_kept_though_a_shorter_one_does_not():
    p = torch.tensor([[0.2, 0.8], [0.9, 0.1], [0.5, 0.5]])
    q = torch.tensor([[0.4, 0.6], [0.1, 0.9]])
    # r = 0.5, then 1; h of the first alone is 0.35 / 0.85.
    result = rejection_sample_block(
        torch.tensor([[0, 0]]), q[None], p.log()[None], torch.tensor([[0.45, 0.9]]), torch.zeros(1)
    )
    assert result.num_accepted_tokens.item() == 3


def test_a_draft_likelier_than_the_drafter_thinks_lends_nothing_to_the_next():
    p = torch.tensor([[0.8, 0.2], [0.5, 0.5], [0.5, 0.5]])
    q = torch.tensor([[0.4, 0.6], [1.0, 0.0]])
    # r = 1, not 2, so that h of both is 0.5.
    result = rejection_sample_block(
        torch.tensor([[0, 0]]), q[None], p.log()[None], torch.tensor([[0.9, 0.7]]), torch.zeros(1)
    )
    assert result.token_ids.tolist() == [[0, 1, -1]]


def test_requests_with_fewer_drafts_are_judged_as_if_they_had_only_those():
    p1, p2, q1, q2 = conditionals(3, 4)
    points = grid(6, 3, 6)
    n = len(points)
    for first, second, k in itertools.product(range(3), range(3), range(3)):
        logits = torch.stack([p1, p2[first], p1]).log().expand(n, 3, 3)
        probs = torch.stack([q1, q2[first]]).expand(n, 2, 3)
        drafts = torch.tensor([[first, second]]).expand(n, 2)
        padded = rejection_sample_block(
            drafts, probs, logits, points[:, :2], points[:, 2], num_draft_tokens=torch.full((n,), k)
        )
        short = rejection_sample_block(
            drafts[:, :k], probs[:, :k], logits[:, : k + 1], points[:, :k], points[:, 2]
        )
        assert torch.equal(padded.token_ids[:, : k + 1], short.token_ids)


@pytest.mark.parametrize("with_probs", [True, False])
def test_a_block_between_equal_distributions_is_kept_whole(with_probs):
    p = torch.tensor([0.5, 0.5, 0.0, 0.0]) if with_probs else torch.tensor([1.0, 0.0, 0.0, 0.0])
    result = rejection_sample_block(
        torch.zeros(1, 2, dtype=torch.long),
        p.expand(1, 2, 4) if with_probs else None,
        p.log().expand(1, 3, 4),
        torch.full((1, 2), 1 - 2**-24),
        torch.zeros(1),
    )
    assert result.num_accepted_tokens.item() == 3


@pytest.mark.parametrize("fill", [NAN, math.inf, -math.inf])
@pytest.mark.parametrize("with_probs", [True, False])
def test_no_logits_lead_a_block_outside_the_vocabulary(fill, with_probs):
    logits = torch.full((2, 3, 4), fill)
    logits[1, :, 2] = 1.0
    probs = torch.full((2, 2, 4), NAN) if with_probs else None
    drafts = torch.tensor([[3, 2], [-1, 10**6]])
    for uniform in (0.0, 1 - 2**-24):
        result = rejection_sample_block(drafts, probs, logits, torch.zeros(2, 2), torch.full((2,), uniform))
        assert ((result.next_token_ids >= 0) & (result.next_token_ids < 4)).all()
