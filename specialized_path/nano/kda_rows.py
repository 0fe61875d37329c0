"""Which tokens of a step belong to which request, and where each request's KDA state lives."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class KdaRows:
    """R requests of a step that read and write their KDA state by the same rule.

    Slot numbers count pages of the layer's state cache. Slots <= 0 are null: read as zeros, never written.
    """

    tokens: Tensor
    """[R, L] row of each request's tokens in the step, padded at the end with any valid row."""

    lengths: Tensor
    """[R] tokens per request, at most L; 0 for padding."""

    window_slots: Tensor
    """[R] slot of the convolution window, read and written."""

    window_offsets: Tensor
    """[R] first tap within the stored window."""

    start_slots: Tensor
    """[R] slot of the recurrent state before the first token; null starts from zeros."""

    has_initial_state: Tensor
    """[R] whether any token came before; if not, what the slots hold belongs to somebody else."""

    end_slots: Tensor
    """[R, L] slot for the state after each token, or [R, 1] slot for the state after the last one."""

    keeps_every_state: bool
    """Whether `end_slots` is per token (a verify step, whose drafts may yet be rejected)."""

    @property
    def is_active(self) -> Tensor:
        """[R, L] which entries of `tokens` are tokens and not padding."""
        return torch.arange(self.tokens.shape[1]) < self.lengths.unsqueeze(1)


def kda_rows_of_step(metadata: Any) -> list[KdaRows]:
    """Splits vLLM's Gated DeltaNet metadata of one layer into requests without and with draft tokens."""
    groups = []
    if metadata.num_prefills + metadata.num_decodes > 0:
        groups.append(_continued_rows(metadata))
    if metadata.num_spec_decodes > 0:
        groups.append(_verify_rows(metadata))
    return groups


def _continued_rows(metadata: Any) -> KdaRows:
    """Prefill chunks and plain decodes: one state a request, replaced at the end of the step."""
    starts = metadata.non_spec_query_start_loc
    slots = metadata.non_spec_state_indices_tensor
    count = min(len(starts) - 1, len(slots))
    starts, slots = starts[: count + 1].long(), slots[:count].long()
    known = metadata.has_initial_state
    tokens, lengths = _token_rows(starts, metadata.non_spec_token_indx)
    return KdaRows(
        tokens=tokens,
        lengths=lengths,
        window_slots=slots,
        window_offsets=torch.zeros_like(slots),
        start_slots=slots,
        has_initial_state=torch.ones_like(slots, dtype=torch.bool) if known is None else known[:count],
        end_slots=slots.unsqueeze(1),
        keeps_every_state=False,
    )


def _verify_rows(metadata: Any) -> KdaRows:
    """Decodes with drafts: the last step's accepted count picks the start state, every token leaves one."""
    count = metadata.num_spec_decodes
    slots = metadata.spec_state_indices_tensor[:count].long()
    accepted = metadata.num_accepted_tokens[:count].long()
    starts = metadata.spec_query_start_loc[: count + 1].long()
    tokens, lengths = _token_rows(starts, metadata.spec_token_indx)
    return KdaRows(
        tokens=tokens,
        lengths=lengths,
        window_slots=slots[:, 0],
        window_offsets=accepted - 1,
        start_slots=slots.gather(1, (accepted - 1).unsqueeze(1)).squeeze(1),
        has_initial_state=torch.ones(count, dtype=torch.bool),
        end_slots=slots[:, : tokens.shape[1]],
        keeps_every_state=True,
    )


def _token_rows(starts: Tensor, token_index: Tensor | None) -> tuple[Tensor, Tensor]:
    """Returns [R, L] token rows, padded with the request's last token, and [R] lengths."""
    lengths = starts.diff()
    longest = max(int(lengths.max()), 1)
    offsets = torch.minimum(torch.arange(longest), (lengths - 1).clamp(min=0).unsqueeze(1))
    tokens = (starts[:-1].unsqueeze(1) + offsets).clamp(max=max(int(starts[-1]) - 1, 0))
    return (tokens if token_index is None else token_index.long()[tokens]), lengths
