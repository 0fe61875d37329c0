"""Sorts what a step wrote by whose memory it was."""

from __future__ import annotations

from collections import Counter

import numpy as np
from numpy.typing import NDArray

from harness.engine.probe.cache_layout import CacheLayout, split_pages
from harness.engine.probe.recording import Changes, RecordedStep
from harness.model.probe import Place, Write

NULL_PAGE = 0
WORD_BYTES = 4
Key = tuple[str, Place, str]


def sort_writes(step: RecordedStep, changes: Changes, layout: CacheLayout) -> tuple[Write, ...]:
    """Everything that the step's forward call changed: cache pages by owner, and other buffers.

    Args:
        step: An observed step.
        changes: Words that the call changed, by storage.
        layout: The engine's cache.
    """
    if step.observed is None:
        return ()
    totals: Counter[Key] = Counter()
    for storage, (where, _) in enumerate(changes):
        for page, offsets in split_pages(where, layout.page_words[storage]):
            totals.update(_page_writes(step, storage, page, offsets, layout, WORD_BYTES * offsets.size))
    writes = [
        Write(buffer=buffer, place=place, owner=owner, num_bytes=size)
        for (buffer, place, owner), size in sorted(totals.items())
    ]
    writes += [Write.model_validate(buffer) for buffer in step.observed.buffers]
    return tuple(writes)


def _page_writes(
    step: RecordedStep,
    storage: int,
    page: int,
    offsets: NDArray[np.int32],
    layout: CacheLayout,
    num_bytes: int,
) -> dict[Key, int]:
    """Bytes written to one page, by buffer, place and owner."""
    observed = step.observed
    assert observed is not None
    owner_id, group = observed.owners.get(page, ("", -1))
    owner = step.names.get(owner_id, owner_id)
    layers = [
        name
        for name, pages in observed.writable.items()
        if page in pages and layout.storage_of(name) == storage
    ]
    if layers:
        name = layers[0]
        mask = layout.mask_of(name)
        inside = num_bytes if mask.all() else WORD_BYTES * int(np.count_nonzero(mask[offsets]))
        found = {
            (name, Place.OWN_SLOT, owner): inside,
            (name, Place.BEYOND_TOKENS, owner): num_bytes - inside,
        }
        return {key: size for key, size in found.items() if size}
    if page == NULL_PAGE:
        return {("the null block", Place.FREE_SLOT, ""): num_bytes}
    if not owner_id:
        return {(f"block {page}", Place.FREE_SLOT, ""): num_bytes}
    buffer = ", ".join(layout.layers_in(storage, group)) or f"block {page}"
    computed = {request.request_id for request in step.row.requests}
    place = Place.OTHER_SLOT if owner_id in computed else Place.OTHER_REQUEST
    return {(buffer, place, owner): num_bytes}
