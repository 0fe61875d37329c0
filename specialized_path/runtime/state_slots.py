"""Where the requests of a specialised step keep a KDA layer's state."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class StateSlots:
    """Slots of one layer for B requests, padded ones included; slots <= 0 are null."""

    table: Tensor
    """[B, S] slot for the state after each token of the step; S = 1 without speculation."""

    num_accepted_tokens: Tensor
    """[B] tokens kept of the last step: the state to start from is in column a - 1 of the table."""


def state_slots_of_step(metadata: Any, num_reqs: int) -> StateSlots:
    """Reads one layer's slots out of vLLM's Gated DeltaNet metadata and pads with null slots.

    Args:
        metadata: Metadata of a pure decode or of a verify step.
        num_reqs: Requests B of the step's tensors, padding included.
    """
    if metadata.num_spec_decodes:
        live = metadata.num_spec_decodes
        table, accepted = metadata.spec_state_indices_tensor[:live], metadata.num_accepted_tokens[:live]
    else:
        live = metadata.num_decodes
        table = metadata.non_spec_state_indices_tensor[:live].unsqueeze(1)
        accepted = torch.ones_like(table[:, 0])
    if live == num_reqs:
        return StateSlots(table=table, num_accepted_tokens=accepted)
    padding = num_reqs - live
    return StateSlots(
        table=torch.cat((table, table.new_zeros(padding, table.shape[1]))),
        num_accepted_tokens=torch.cat((accepted, accepted.new_ones(padding))),
    )
