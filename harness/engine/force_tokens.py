"""A vLLM logits processor that makes a request emit given tokens, so that teacher forcing runs the decode path.

Load it with `--logits-processors harness.engine.force_tokens:ForceTokens`. A request opts in with
`vllm_xargs={"force_token_ids": "[1, 2, 3]"}`. Logprobs stay the model's own as long as the engine reports raw
ones, since those are taken before any logits processor.
"""

from __future__ import annotations

import json
from typing import Any

import torch
from vllm.v1.sample.logits_processor import AdapterLogitsProcessor

ARGUMENT = "force_token_ids"


class ForceTokens(AdapterLogitsProcessor):
    """Leaves requests without the argument alone; after the last forced token sampling is free again."""

    @classmethod
    def validate_params(cls, sampling_params: Any) -> None:
        """Raises ValueError, which the server answers with status 400, for anything but a list of token ids."""
        parse_forced(sampling_params.extra_args)

    def is_argmax_invariant(self) -> bool:
        """Forcing changes the most likely token."""
        return False

    def new_req_logits_processor(self, params: Any) -> ForcedRequest | None:
        """The processor of one request, or None when it forces nothing."""
        forced = parse_forced(params.extra_args)
        return ForcedRequest(forced) if forced else None


class ForcedRequest:
    """Puts all probability on the next forced token of one request."""

    def __init__(self, token_ids: tuple[int, ...]) -> None:
        self._token_ids = token_ids

    def __call__(self, output_token_ids: list[int], logits: torch.Tensor) -> torch.Tensor:
        """Logits of shape [vocab]; a token outside the vocabulary is not forced, as the answer then shows."""
        position = len(output_token_ids)
        if position >= len(self._token_ids) or self._token_ids[position] >= logits.shape[-1]:
            return logits
        forced = torch.full_like(logits, float("-inf"))
        forced[self._token_ids[position]] = 0.0
        return forced


def parse_forced(extra_args: dict[str, Any] | None) -> tuple[int, ...]:
    """The token ids that a request's extra arguments force; raises ValueError when they are no such list."""
    text = (extra_args or {}).get(ARGUMENT)
    if text is None:
        return ()
    token_ids = json.loads(text) if isinstance(text, str) else text
    if not isinstance(token_ids, list) or not all(type(t) is int and t >= 0 for t in token_ids):
        raise ValueError(f"{ARGUMENT}: got {text!r}, expected a JSON list of token ids")
    return tuple(token_ids)
