"""The decision, once per engine step, whether the step runs on the specialised path."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from specialized_path.runtime.limits import LIMITS, Limits

Path = Literal["specialized", "plain"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPlan:
    """What was decided for one step, and why."""

    path: Path

    reason: str
    """Stable slug; "pure-decode" and "uniform-verify" are the two specialised ones."""

    num_reqs: int
    """Requests in the step, padding not counted; 0 when unknown."""

    num_tokens: int
    """Tokens in the step, padding not counted; rows of the step when there is no metadata."""

    query_len: int
    """Tokens per request when all have the same number, otherwise 0."""


class StepPlanner:
    """Plans steps from the engine's attention metadata alone; it keeps nothing between steps."""

    def __init__(
        self, kda_layers: tuple[str, ...], mla_layers: tuple[str, ...], limits: Limits = LIMITS
    ) -> None:
        """Plans for a model.

        Args:
            kda_layers: Names under which the KDA layers' metadata is found, at least one.
            mla_layers: The same for the MLA layers.
            limits: The scope.
        """
        self._kda_layers = kda_layers
        self._mla_layers = mla_layers
        self._limits = limits

    def plan(self, attn_metadata: Any, num_rows: int, has_token_ids: bool) -> StepPlan:
        """Decides one step.

        Args:
            attn_metadata: The forward context's metadata by layer name, or None in the engine's dry runs.
            num_rows: Rows of the step's tensors, padding included.
            has_token_ids: Whether the step brings token ids rather than embeddings.
        """
        layers = (*self._kda_layers, *self._mla_layers)
        if not isinstance(attn_metadata, Mapping) or any(name not in attn_metadata for name in layers):
            return StepPlan(path="plain", reason="no-metadata", num_reqs=0, num_tokens=num_rows, query_len=0)
        shapes = {_shape_of(attn_metadata[name]) for name in self._kda_layers}
        shape = shapes.pop()
        reason = "layers-disagree" if shapes else self._reason_for_plain(shape, attn_metadata)
        if reason is None and not has_token_ids:
            reason = "input-embeddings"
        if reason is None and num_rows % shape.query_len:
            reason = "padding-not-whole-requests"
        return StepPlan(
            path="specialized" if reason is None else "plain",
            reason=reason or ("pure-decode" if shape.query_len == 1 else "uniform-verify"),
            num_reqs=shape.num_reqs,
            num_tokens=shape.num_tokens,
            query_len=shape.query_len,
        )

    def _reason_for_plain(self, shape: "_StepShape", attn_metadata: Mapping[str, Any]) -> str | None:
        """Returns why a step of this shape is out of scope, or None."""
        if shape.num_prefills:
            return "mixed" if shape.num_prefills < shape.num_reqs else "prefill"
        if shape.num_reqs == 0:
            return "empty"
        if shape.query_len == 0:
            return "irregular-verify"
        if shape.query_len > 1 + self._limits.max_num_drafts:
            return "drafts-over-limit"
        if shape.num_reqs > self._limits.max_num_reqs:
            return "batch-over-limit"
        longest = max((attn_metadata[name].max_seq_len for name in self._mla_layers), default=0)
        return "context-over-limit" if longest > self._limits.max_context_len else None


@dataclass(frozen=True, slots=True, kw_only=True)
class _StepShape:
    """How many requests of which kind one layer's metadata describes."""

    num_prefills: int
    num_reqs: int
    num_tokens: int
    query_len: int


def _shape_of(metadata: Any) -> _StepShape:
    """Reads the step's shape out of vLLM's Gated DeltaNet metadata of one layer.

    A request without prior state counts there as a prefill, even with a single token.
    """
    num_prefills, num_decodes = metadata.num_prefills, metadata.num_decodes
    num_verifies = metadata.num_spec_decodes
    if num_verifies and not num_decodes and not num_prefills:
        query_len = metadata.uniform_spec_sequence_length or 0
    else:
        query_len = 1 if num_decodes and not num_verifies and not num_prefills else 0
    return _StepShape(
        num_prefills=num_prefills,
        num_reqs=num_prefills + num_decodes + num_verifies,
        num_tokens=metadata.num_actual_tokens,
        query_len=query_len,
    )
