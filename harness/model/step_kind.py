"""What kind of work an engine step is, told from its requests alone."""

from __future__ import annotations

from enum import StrEnum

from harness.model.ledger import LedgerRow, StepRequest


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
    if not row.requests or any(r.num_computed_tokens is None for r in row.requests):
        return None
    prompts = [r for r in row.requests if _computes_prompt(r)]
    if prompts:
        return StepKind.PREFILL if len(prompts) == len(row.requests) else StepKind.MIXED
    widths = {r.num_scheduled_tokens for r in row.requests}
    if any(r.num_prefill_tokens for r in row.requests):
        return StepKind.PROMPT_END
    if len(widths) > 1:
        return StepKind.RAGGED_VERIFY
    return StepKind.DECODE if widths == {1} else StepKind.VERIFY


def _computes_prompt(request: StepRequest) -> bool:
    """Whether a request's part is prompt work: it starts from nothing, or takes more than one prompt token."""
    return request.num_computed_tokens == 0 or request.num_prefill_tokens > 1


def context_of(row: LedgerRow) -> int:
    """Tokens of the longest request once the step is done; 0 where the tracer did not record it."""
    return max(((r.num_computed_tokens or 0) + r.num_scheduled_tokens for r in row.requests), default=0)


def drafts_of(row: LedgerRow) -> int:
    """The most tokens behind the first that the step computes of one request beyond its prompt."""
    return max((r.num_scheduled_tokens - max(1, r.num_prefill_tokens) for r in row.requests), default=0)
