"""Which slots the engine gives a step, read from its own attention metadata and block tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import torch


@dataclass(slots=True, kw_only=True)
class StepSlots:
    """Pages of one step, by layer."""

    writable: dict[str, list[int]] = field(default_factory=dict)
    """Pages that the step is to write, in the order of its rows."""
    starts: dict[str, list[tuple[int, int, int]]] = field(default_factory=dict)
    """State layers: for each request with prior state, in the metadata's order, the page of its state, the page of its
    convolution window, and the first entry of the window that counts."""
    history: dict[str, list[int]] = field(default_factory=dict)
    """Cache layers: pages that hold the tokens before the step."""
    owners: dict[int, tuple[str, int]] = field(default_factory=dict)
    """The request that owns each page, by the engine's id, and the group of layers whose page it is."""

    def as_record(self) -> dict[str, Any]:
        """The fields as JSON takes them, whose keys are text."""
        return {**asdict(self), "owners": {str(page): owner for page, owner in self.owners.items()}}


LiveBlocks = Mapping[str, Sequence[Sequence[int]]]
"""Blocks that the scheduler holds for each running request, by group; the engine's ids."""


def read_step_slots(runner: Any, metadata: Any, slot_mapping: Any, live: LiveBlocks) -> StepSlots:
    """The slots of the step that the runner is about to compute.

    Args:
        runner: vLLM's model runner.
        metadata: attention metadata by layer name; anything else (a dry run) gives no slots.
        slot_mapping: cache rows of the step's tokens by layer name.
        live: whose the blocks are. A runner's own list keeps the blocks of a preempted request, which may be
            another's by now.
    """
    slots = StepSlots()
    if not isinstance(metadata, Mapping):
        return slots
    for request_id, groups in live.items():
        for index, pages in enumerate(groups):
            slots.owners.update({page: (request_id, index) for page in pages if page > 0})
    for group_index, group in enumerate(runner.kv_cache_config.kv_cache_groups):
        for layer in group.layer_names:
            if layer not in metadata:
                continue
            fields = dict(_tensors_of(metadata[layer]))
            if any("state_indices" in name for name in fields):
                slots.writable[layer] = _state_pages(fields)
                slots.starts[layer] = list(_state_starts(metadata[layer]))
            else:
                rows = (slot_mapping or {}).get(layer, fields.get("slot_mapping"))
                block_size = group.kv_cache_spec.block_size
                slots.writable[layer] = _row_pages(rows, block_size)
                slots.history[layer] = list(_history_pages(runner, group_index, block_size))
    return slots


def _tensors_of(metadata: Any) -> Iterator[tuple[str, torch.Tensor]]:
    for name, value in vars(metadata).items():
        if isinstance(value, torch.Tensor):
            yield name, value


def _state_pages(fields: Mapping[str, torch.Tensor]) -> list[int]:
    """Every live page in a field of state indices; null and padding are not positive."""
    values = [v.flatten().tolist() for name, v in fields.items() if "state_indices" in name]
    return list(dict.fromkeys(page for pages in values for page in pages if page > 0))


def _row_pages(rows: Any, block_size: int) -> list[int]:
    """Pages of cache rows; padding and the null block's rows count for none."""
    found = () if rows is None else rows.tolist()
    return list(dict.fromkeys(row // block_size for row in found if row >= block_size))


def _history_pages(runner: Any, group: int, block_size: int) -> Iterator[int]:
    batch = runner.input_batch
    table = batch.block_table[group].get_numpy_array()
    for index in range(batch.num_reqs):
        computed = int(batch.num_computed_tokens_cpu[index])
        yield from (int(page) for page in table[index][: -(-computed // block_size)] if page > 0)


def _state_starts(metadata: Any) -> Iterator[tuple[int, int, int]]:
    """Of vLLM's Gated DeltaNet metadata; other kinds of state metadata give every slot as it is.

    A verify step starts from the state behind the last accepted token, in column `num_accepted - 1` of its slots; the
    window stays in the first slot and is shifted by as many entries.
    """
    num_verifies = getattr(metadata, "num_spec_decodes", 0) or 0
    if num_verifies:
        table = metadata.spec_state_indices_tensor[:num_verifies].tolist()
        accepted = metadata.num_accepted_tokens[:num_verifies].tolist()
        for row, count in zip(table, accepted, strict=True):
            yield row[count - 1], row[0], count - 1
    slots = getattr(metadata, "non_spec_state_indices_tensor", None)
    if slots is None:
        slots = getattr(metadata, "state_indices_tensor", None)
    if slots is None:
        return
    known = getattr(metadata, "has_initial_state", None)
    has_state = [True] * len(slots) if known is None else known.tolist()
    for slot, has in zip(slots.tolist(), has_state, strict=False):
        if has and slot > 0:
            yield slot, slot, 0
