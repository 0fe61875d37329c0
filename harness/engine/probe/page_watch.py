"""Watches whose pages of the engine's cache change over a step, whatever runner computes it, graphs or not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from harness.engine.probe.cache_memory import WORD_BYTES, CacheMemory
from harness.model.probe import Place

NULL_PAGE = 0
BlockIds = Callable[[str], Sequence[Sequence[int]]]
"""Pages that the scheduler holds for a request, by group of layers."""


class PageWatch:
    """Compares all pages before and after a step of the engine, and sorts those that differ by their owner.

    Owners are those of the moment at which the scheduler has given the step its pages, and has freed nothing yet.
    """

    def __init__(self, layers: Mapping[str, Any], groups: Sequence[Sequence[str]], seed: int) -> None:
        """Fills the cache with seeded numbers, so that a write of zeros shows.

        Args:
            layers: The engine's layers by name.
            groups: Names of the layers that share block tables, by group.
            seed: Of the numbers.

        Raises:
            ValueError: the tensors of one storage do not have pages of one size, or not a whole number of them.
        """
        self._memory = CacheMemory(layers)
        self._memory.fill(seed)
        self._memory.take_changed_pages()
        self._groups = groups
        self._owners: dict[int, tuple[str, int]] = {}
        self._computed: frozenset[str] = frozenset()

    def follow(self, scheduler: Any, block_ids: BlockIds) -> None:
        """Lets the watch hear of every step that the scheduler plans."""
        schedule = scheduler.schedule

        def scheduled(*args: Any, **kwargs: Any) -> Any:
            output = schedule(*args, **kwargs)
            self.note({request.request_id: block_ids(request.request_id) for request in scheduler.running})
            self._computed = frozenset(output.num_scheduled_tokens)
            return output

        scheduler.schedule = scheduled

    def note(self, pages: Mapping[str, Sequence[Sequence[int]]]) -> None:
        """Whose the pages are now: by request, by group."""
        self._owners = {
            page: (request, group)
            for request, by_group in pages.items()
            for group, found in enumerate(by_group)
            for page in found
            if page != NULL_PAGE
        }

    def begin(self) -> None:
        """A step begins: what changed until now is not its own."""
        self._memory.take_changed_pages()

    def end(self) -> list[dict[str, Any]]:
        """A step has ended: what it changed, as the fields of `Write` with the engine's id of the owner."""
        totals: Counter[tuple[str, Place, str]] = Counter()
        for storage, pages in enumerate(self._memory.take_changed_pages()):
            for page, num_words in pages.items():
                totals[self._kind_of(storage, page)] += num_words * WORD_BYTES
        return [
            {"buffer": buffer, "place": place.value, "owner": owner, "num_bytes": size}
            for (buffer, place, owner), size in sorted(totals.items())
        ]

    def _kind_of(self, storage: int, number: int) -> tuple[str, Place, str]:
        """Layers, place and owner of the page that lies `number` pages from the beginning of a storage."""
        held = [
            (view.layer, page)
            for view in self._memory.views
            if view.storage == storage
            and 0 <= (page := number - view.offset // view.stride[0]) < view.shape[0]
        ]
        page = held[0][1] if held else number
        owner, group = self._owners.get(page, ("", -1))
        if not owner:
            return ("the null block" if page == NULL_PAGE else f"block {page}"), Place.FREE_SLOT, ""
        layers = dict.fromkeys(layer for layer, _ in held if layer in self._groups[group])
        place = Place.OWN_SLOT if owner in self._computed else Place.OTHER_REQUEST
        return ", ".join(layers) or f"block {page}", place, owner
