"""What kind of work an engine step is, told from its requests alone."""

from __future__ import annotations

from enum import StrEnum

from harness.model.ledger import LedgerRow


class StepKind(StrEnum):
    """Kinds of steps, by what their requests compute."""

    DECODE = "decode"
    """One token of every request, each after its last."""
    VERIFY = "verify"
    """The same number of drafts of every request, at least one, each behind its last token."""
    RAGGED_VERIFY = "ragged_verify"
    """Drafts in unequal numbers, none included."""
    MIXED = "mixed"
    """Some requests compute their prompt, others decode."""
    PREFILL = "prefill"
    """Every request computes its prompt."""
    PROMPT_END = "prompt_end"
    """The last token of a prompt, computed alone after the others, and maybe decodes: by its shape a decode."""


def kind_of(row: LedgerRow) -> StepKind | None:
    """The kind of a step; None when the tracer did not record what its requests start from."""
    num_prompts, widths, ends_a_prompt = 0, set(), False
    for request in row.requests:
        if request.num_computed_tokens is None:
            return None
        # Prompt work starts from nothing, or takes more than one prompt token.
        num_prompts += request.num_computed_tokens == 0 or request.num_prefill_tokens > 1
        ends_a_prompt = ends_a_prompt or request.num_prefill_tokens > 0
        widths.add(request.num_scheduled_tokens)
    if not widths:
        return None
    if num_prompts:
        return StepKind.PREFILL if num_prompts == len(row.requests) else StepKind.MIXED
    if ends_a_prompt:
        return StepKind.PROMPT_END
    if len(widths) > 1:
        return StepKind.RAGGED_VERIFY
    return StepKind.DECODE if widths == {1} else StepKind.VERIFY


def context_of(row: LedgerRow) -> int:
    """Tokens of the longest request once the step is done; 0 where the tracer did not record it."""
    return max(((r.num_computed_tokens or 0) + r.num_scheduled_tokens for r in row.requests), default=0)


def drafts_of(row: LedgerRow) -> int:
    """The most tokens behind the first that the step computes of one request beyond its prompt."""
    return max((r.num_scheduled_tokens - max(1, r.num_prefill_tokens) for r in row.requests), default=0)
