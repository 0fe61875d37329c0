"""OC-23: drafted tokens are kept as long as the target agrees, and one more token always follows them."""

from dataclasses import dataclass

import torch
from torch import Tensor

from specialized_path.reference.oc21_output import greedy_token


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyResult:
    """What a verify step yields for each request."""

    num_accepted_tokens: Tensor
    """[B] int64, 1 ... k+1: drafts kept plus the token that follows them; the start slot of the next step."""
    token_ids: Tensor
    """[B, k+1] int64, the tokens kept, then -1."""
    next_token_ids: Tensor
    """[B] int64, the last token kept: the anchor of the next step."""


def rejection_sample_greedy(
    draft_token_ids: Tensor, target_logits: Tensor, *, num_draft_tokens: Tensor | None = None
) -> VerifyResult:
    """A draft is kept while it is the target's largest logit (lowest id on a tie); then the target's follows.

    Args:
        draft_token_ids: [B, k].
        target_logits: [B, k+1, V], row t judges draft t, the last row gives the bonus token. NaN never wins.
        num_draft_tokens: [B], drafts of each request, 0 ... k; None means k.

    Returns:
        The tokens kept.
    """
    target = greedy_token(target_logits)
    return _keep_prefix(draft_token_ids, draft_token_ids == target[:, :-1], target, num_draft_tokens)


def rejection_sample(
    draft_token_ids: Tensor,
    draft_probs: Tensor | None,
    target_logits: Tensor,
    accept_uniform: Tensor,
    resample_uniform: Tensor,
    *,
    num_draft_tokens: Tensor | None = None,
    acc_dtype: torch.dtype = torch.float32,
) -> VerifyResult:
    """Every token kept is distributed as the target alone would sample it.

    Draft d is kept when `u < p(d) / q(d)`; the first refused one is replaced by a sample of `(p - q)+`,
    normalised; after k kept drafts the bonus token is a sample of p. A draft of probability q(d) = 0 is
    refused.

    Args:
        draft_token_ids: [B, k], 0 ... V-1; entries past `num_draft_tokens` may be anything.
        draft_probs: [B, k, V], the drafter's distributions; None for a drafter that always proposes this
            token.
        target_logits: [B, k+1, V]; NaN counts as -infinity, a row without any finite logit yields id 0.
        accept_uniform: [B, k] in [0, 1).
        resample_uniform: [B] in [0, 1), for the one sampled token of each request (inverse of the
            distribution function, ids in ascending order).
        num_draft_tokens: [B], drafts of each request, 0 ... k; None means k.
        acc_dtype: type of the probabilities.

    Returns:
        The tokens kept; every id is in 0 ... V-1.

    Source: Leviathan et al., "Fast Inference from Transformers via Speculative Decoding"; Chen et al.,
    "Accelerating Large Language Model Decoding with Speculative Sampling".
    """
    p = _target_probs(target_logits, acc_dtype)
    q, p_draft, q_draft = _judged(draft_token_ids, draft_probs, p)
    accept = (q_draft > 0) & (accept_uniform.to(acc_dtype) * q_draft < p_draft)
    residual = (p[:, :-1] - q).clamp_min(0)
    sampled = _sample_following(p, residual, resample_uniform.to(acc_dtype), num_draft_tokens)
    return _keep_prefix(draft_token_ids, accept, sampled, num_draft_tokens)


def rejection_sample_block(
    draft_token_ids: Tensor,
    draft_probs: Tensor | None,
    target_logits: Tensor,
    accept_uniform: Tensor,
    resample_uniform: Tensor,
    *,
    num_draft_tokens: Tensor | None = None,
    acc_dtype: torch.dtype = torch.float32,
) -> VerifyResult:
    """Drafts are judged together: tokens distributed as the target's, and on average no fewer than one by one.

    With r_0 = 1 and r_i = min(1, r_(i-1) p(d_i) / q(d_i)), the first i drafts pass when `u_i < h_i`: h_i is r_i
    for the last draft, else R / (R + 1 - r_i) with R the sum of `(r_i p - q)+` of the next place. The longest
    passing run is kept, whether shorter ones pass or not, and followed by a sample of `(r_i p - q)+` behind it,
    normalised; behind the last draft by a sample of p.

    Args:
        draft_token_ids: see `rejection_sample`, as all that follow.
        draft_probs: [B, k, V] or None.
        target_logits: [B, k+1, V].
        accept_uniform: [B, k] in [0, 1), entry i for the run of i + 1 drafts.
        resample_uniform: [B] in [0, 1).
        num_draft_tokens: [B] or None.
        acc_dtype: type of the probabilities.

    Returns:
        The tokens kept; every id is in 0 ... V-1.

    Source: Sun et al., "Block Verification Accelerates Speculative Decoding".
    """
    p = _target_probs(target_logits, acc_dtype)
    q, p_draft, q_draft = _judged(draft_token_ids, draft_probs, p)
    batch_size, num_drafts = draft_token_ids.shape
    ratio = torch.where(q_draft > 0, p_draft / q_draft, 0)
    runs = [p.new_ones(batch_size)]
    for step in range(num_drafts):
        runs.append((runs[-1] * ratio[:, step]).clamp_max(1))
    run = torch.stack(runs, dim=1)
    residual = (run[:, :-1, None] * p[:, :-1] - q).clamp_min(0)
    mass = residual.sum(dim=-1)[:, 1:]
    # At r = 1 the quotient is 1, also where nothing is left over and it would be 0 / 0.
    refused = 1 - run[:, 1:-1]
    passing = torch.cat([torch.where(refused > 0, mass / (mass + refused), 1), run[:, num_drafts:]], dim=1)
    steps = torch.arange(num_drafts, device=p.device)
    last = torch.full((batch_size, 1), num_drafts) if num_draft_tokens is None else num_draft_tokens[:, None]
    chance = torch.where(steps == last.to(steps) - 1, run[:, 1:], passing[:, :num_drafts])
    passes = (accept_uniform.to(acc_dtype) < chance) & (steps < last.to(steps))
    accept = passes.flip(1).long().cumsum(dim=1).flip(1) > 0
    sampled = _sample_following(p, residual, resample_uniform.to(acc_dtype), num_draft_tokens)
    return _keep_prefix(draft_token_ids, accept, sampled, num_draft_tokens)


def synthetic_acceptance_rates(mean_length: float, num_drafts: int) -> list[float]:
    """Acceptance rates of the drafts, each given that the ones before it were kept, for a mean step length.

    Draft i (from 1) survives with probability s_i = 1 for i <= floor(mean_length - 1), then the fraction that is
    left, then 0. The rate s_i / s_(i-1) is s_i itself, since whatever precedes a positive s_i is 1.

    Args:
        mean_length: tokens a step, counting the one that always follows, 1 ... num_drafts + 1.
        num_drafts: drafts k.

    Returns:
        k rates in 0 ... 1.

    Raises:
        ValueError: `mean_length` is out of range.
    """
    if not 1 <= mean_length <= num_drafts + 1:
        raise ValueError(f"mean_length: got {mean_length}, expected 1 ... {num_drafts + 1}")
    return [min(1.0, max(0.0, mean_length - 1 - i)) for i in range(num_drafts)]


def rejection_sample_synthetic(
    draft_token_ids: Tensor,
    target_logits: Tensor,
    accept_uniform: Tensor,
    *,
    mean_length: float,
    num_draft_tokens: Tensor | None = None,
) -> VerifyResult:
    """Drafts are kept at random so that a step yields `mean_length` tokens on average; for benchmarks only.

    Args:
        draft_token_ids: [B, k].
        target_logits: [B, k+1, V]; the token that follows the kept drafts is the target's largest logit.
        accept_uniform: [B, k] in [0, 1); draft i is kept while the uniform is below its rate.
        mean_length: tokens a step on average, 1 ... k+1 (with k drafts for every request).
        num_draft_tokens: [B], drafts of each request, 0 ... k; None means k.

    Returns:
        The tokens kept.

    Raises:
        ValueError: `mean_length` is out of range.
    """
    rates = synthetic_acceptance_rates(mean_length, draft_token_ids.shape[1])
    accept = accept_uniform < accept_uniform.new_tensor(rates)
    return _keep_prefix(draft_token_ids, accept, greedy_token(target_logits), num_draft_tokens)


def _keep_prefix(
    drafts: Tensor, accept: Tensor, following: Tensor, num_drafts: Tensor | None
) -> VerifyResult:
    """Drafts up to the first one refused, then the entry of `following` [B, k+1] at that place."""
    steps = torch.arange(following.shape[1], device=drafts.device)
    if num_drafts is not None:
        accept = accept & (steps[:-1] < num_drafts.unsqueeze(1))
    kept = accept.long().cumprod(dim=1).sum(dim=1, keepdim=True)
    last = following.gather(1, kept)
    padded = torch.cat([drafts.long(), last], dim=1)
    token_ids = torch.where(steps < kept, padded, torch.where(steps == kept, last, -1))
    return VerifyResult(
        num_accepted_tokens=kept.squeeze(1) + 1, token_ids=token_ids, next_token_ids=last.squeeze(1)
    )


def _judged(drafts: Tensor, draft_probs: Tensor | None, p: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The drafter's distributions [B, k, V]; probabilities [B, k] of the drafts by the target and by the drafter."""
    ids = drafts.long().clamp(0, p.shape[-1] - 1).unsqueeze(-1)
    if draft_probs is None:
        q = torch.zeros_like(p[:, :-1]).scatter(-1, ids, 1)
    else:
        q = draft_probs.to(p.dtype).nan_to_num(nan=0.0)
    return q, p[:, :-1].gather(-1, ids).squeeze(-1), q.gather(-1, ids).squeeze(-1)


def _sample_following(p: Tensor, residual: Tensor, uniform: Tensor, num_drafts: Tensor | None) -> Tensor:
    """A token for every place [B, k+1]: of the residual, or of p behind a request's last draft or with none left."""
    exhausted = residual.sum(dim=-1, keepdim=True) <= 0
    weights = torch.cat([torch.where(exhausted, p[:, :-1], residual), p[:, -1:]], dim=1)
    if num_drafts is not None:
        steps = torch.arange(p.shape[1], device=p.device)
        weights = torch.where((steps == num_drafts.unsqueeze(1)).unsqueeze(-1), p, weights)
    return _inverse_cdf(weights, uniform)


def _target_probs(logits: Tensor, acc_dtype: torch.dtype) -> Tensor:
    """Softmax with NaN as -infinity and +infinity as the largest number; all zero if nothing is finite."""
    wide = logits.to(acc_dtype).nan_to_num(nan=float("-inf"), neginf=float("-inf"))
    return torch.softmax(wide, dim=-1).nan_to_num(nan=0.0)


def _inverse_cdf(weights: Tensor, uniform: Tensor) -> Tensor:
    """The first id whose cumulated weight exceeds `uniform` times the total; its weight is positive, or it is 0."""
    cumulated = weights.cumsum(dim=-1)
    threshold = uniform.reshape(-1, 1, 1) * cumulated[..., -1:]
    reached = (cumulated > threshold) & (weights > 0)
    return torch.where(reached.any(dim=-1), reached.long().argmax(dim=-1), greedy_token(weights))
