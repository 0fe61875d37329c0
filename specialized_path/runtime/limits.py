"""The scope of the specialised path in numbers: steps beyond it run on the plain forward."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Largest batch, verify step and context that the path runs."""

    max_num_reqs: int = 8
    """Requests in a step."""

    max_num_drafts: int = 3
    """Draft tokens per request in a verify step."""

    max_context_len: int = 1_048_576
    """Tokens of the longest request in a step."""


LIMITS = Limits()
