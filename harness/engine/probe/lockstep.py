"""Compares an arm's probe with its twin's, step by step: what each step was handed, and what it wrote."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, zip_longest

import numpy as np
from numpy.typing import NDArray

from harness.engine.probe.cache_layout import (
    HUGE,
    CacheLayout,
    Mask,
    largest_difference,
    numbers_of,
    page_parts,
    parse_layout,
    word_of,
)
from harness.engine.probe.canary import canary_words
from harness.engine.probe.recording import Changes, Observed, RecordedStep, Recording
from harness.model.probe import Distance, HandoverStep

Taken = tuple[RecordedStep, Changes, Changes]
"""A step, the changes of the cache before its forward call, and those of the call."""


@dataclass(slots=True)
class _Gathered:
    """A distance that grows buffer by buffer."""

    num_words: int = 0
    num_differing: int = 0
    largest: float = 0.0
    worst: str = ""

    def add(self, ours: NDArray[np.generic], theirs: NDArray[np.generic], what: str) -> None:
        count, largest = largest_difference(ours, theirs)
        self.num_words += ours.size
        self.num_differing += count
        if count and (largest > self.largest or not self.worst):
            self.largest, self.worst = largest, what

    @property
    def distance(self) -> Distance:
        return Distance(
            num_words=self.num_words,
            num_differing=self.num_differing,
            largest=self.largest,
            worst=self.worst,
        )


class _Replay:
    """One arm's cache as it was at each moment."""

    def __init__(self, layout: CacheLayout, *, keeps_written: bool = False) -> None:
        self.layout = layout
        self.words = [canary_words(size, layout.seed) for size in layout.num_words]
        sizes = layout.num_words if keeps_written else [0] * len(layout.num_words)
        self.written = [np.zeros(size, dtype=np.bool_) for size in sizes]
        """Words that a forward call has ever changed."""
        self._by_owner = [np.zeros(size, dtype=np.bool_) for size in sizes]
        self._keeps_written = keeps_written
        self._owners: dict[int, str] = {}

    def apply(self, changes: Changes, *, by_forward: bool) -> None:
        """Makes the changes."""
        for storage, (where, values) in enumerate(changes):
            for _, part in page_parts(where, self.layout.page_words[storage]):
                at = _run_of(where[part])
                self.words[storage][at] = values[part]
                if by_forward and self._keeps_written:
                    self.written[storage][at] = True
                    self._by_owner[storage][at] = True

    def note_owners(self, owners: Mapping[int, tuple[str, int]]) -> None:
        """Forgets what was written in pages that have another owner now."""
        for page, (owner, _) in owners.items():
            if self._owners.get(page) != owner:
                self._owners[page] = owner
                for words, page_words in zip(self._by_owner, self.layout.page_words, strict=True):
                    words[page * page_words : (page + 1) * page_words] = False

    def written_by_owner(self, storage: int, page: int) -> Mask:
        """[page_words] which words of a page forward calls changed for its present owner."""
        page_words = self.layout.page_words[storage]
        return self._by_owner[storage][page * page_words : (page + 1) * page_words]


def _run_of(where: NDArray[np.int32]) -> slice | NDArray[np.int32]:
    """Rising indices, as a slice where none is left out."""
    first, last = int(where[0]), int(where[-1])
    return slice(first, last + 1) if last - first == where.size - 1 else where


@dataclass(slots=True, kw_only=True)
class _Pair:
    """An arm and its twin on one engine."""

    ours: _Replay
    theirs: _Replay

    def compare_starts(self, ours: Observed, theirs: Observed, names: Sequence[str]) -> Distance:
        """The states and windows that the step starts from. Steps must agree in their numbers of starts."""
        layout, gathered = self.ours.layout, _Gathered()
        for layer, starts in ours.starts.items():
            for index, (our, their) in enumerate(zip(starts, theirs.starts[layer], strict=True)):
                for view in layout.views[layer]:
                    # A layer with several tensors keeps its convolution window in the first.
                    is_window = view.index == 0 and len(layout.views[layer]) > 1
                    elements = view.span(layout.window_of(layer, our[2]) if is_window else None)
                    theirs_at = view.span(layout.window_of(layer, their[2]) if is_window else None)
                    page = 1 if is_window else 0
                    gathered.add(
                        self._numbers(self.ours, layer, our[page], view.index, elements),
                        self._numbers(self.theirs, layer, their[page], view.index, theirs_at),
                        f"{names[index] if index < len(names) else index}, {layer}.kv_cache[{view.index}]",
                    )
        return gathered.distance

    def compare_history(self, ours: Observed, theirs: Observed, step: RecordedStep) -> Distance:
        """The cache rows of the tokens before, as far as the twin ever wrote the words that hold them."""
        gathered = _Gathered()
        for layer, pages in ours.history.items():
            view = self.ours.layout.views[layer][0]
            storage, page_words = view.storage, self.ours.layout.page_words[view.storage]
            for our, their in zip(pages, theirs.history[layer], strict=True):
                begin = their * page_words
                written = self.theirs.written[storage][begin : begin + page_words]
                elements = view.elements()
                elements = elements[written[word_of(view, elements)]]
                owner = ours.owners.get(our, ("", 0))[0]
                gathered.add(
                    self._numbers(self.ours, layer, our, view.index, elements),
                    self._numbers(self.theirs, layer, their, view.index, elements),
                    f"{step.names.get(owner, owner)}, {layer}",
                )
        return gathered.distance

    @staticmethod
    def _numbers(
        replay: _Replay, layer: str, page: int, index: int, elements: slice | NDArray[np.int64]
    ) -> NDArray[np.generic]:
        layout = replay.layout
        view = layout.views[layer][index]
        return numbers_of(replay.words[view.storage], page, layout.page_words[view.storage], view, elements)

    def find_beyond(self, ours: Taken, theirs: Taken) -> tuple[dict[str, int], dict[str, float]]:
        """By cache layer: bytes of its own blocks that our step changed, that the twin neither changed in the step
        nor for the same request before, as a row of a rejected draft is, and that differ from what the twin holds
        there; and how far their numbers are from the twin's.

        A word that the twin overwrites with what it held is none that it changes: ours, in which the last bit was
        another, is.
        """
        layout, found, gaps = self.ours.layout, dict[str, int](), dict[str, float]()
        assert ours[0].observed is not None and theirs[0].observed is not None
        for layer in ours[0].observed.history:
            storage = layout.storage_of(layer)
            page_words = layout.page_words[storage]
            their_words = dict(page_parts(theirs[2][storage][0], page_words))
            our_words = dict(page_parts(ours[2][storage][0], page_words))
            for our, their in zip(
                ours[0].observed.writable[layer], theirs[0].observed.writable[layer], strict=False
            ):
                if (part := our_words.get(our)) is None:
                    continue
                at = ours[2][storage][0][part] - np.int32(our * page_words)
                held = self.theirs.words[storage][their * page_words : (their + 1) * page_words]
                is_beyond = ~self.theirs.written_by_owner(storage, their)[at]
                if (their_part := their_words.get(their)) is not None:
                    also = theirs[2][storage][0][their_part] - np.int32(their * page_words)
                    is_beyond &= ~np.isin(at, also, assume_unique=True)
                is_beyond &= ours[2][storage][1][part] != held[at]
                if is_beyond.any():
                    written = held.copy()
                    written[at] = ours[2][storage][1][part]
                    found[layer] = found.get(layer, 0) + 4 * int(is_beyond.sum())
                    gap = _farthest(layout, layer, written, held, at[is_beyond])
                    gaps[layer] = max(gaps.get(layer, 0.0), gap)
        return found, gaps

    def bytes_between(self, ours: Taken, theirs: Taken) -> dict[str, int]:
        """By layer or block: bytes that changed on our side since the forward call before, in pages that the twin's
        engine left alone. Pages are matched by what the step does with them, the others by their number."""
        layout, found = self.ours.layout, Counter[str]()
        assert ours[0].observed is not None and theirs[0].observed is not None
        twins = _matching_pages(ours[0].observed, theirs[0].observed)
        for storage, (where, _) in enumerate(ours[1]):
            page_words = layout.page_words[storage]
            known = {page for page, _ in page_parts(theirs[1][storage][0], page_words)}
            for page, part in page_parts(where, page_words):
                if twins.get(page, page) not in known:
                    _, group = ours[0].observed.owners.get(page, ("", -1))
                    layers = layout.layers_in(storage, group) if group >= 0 else ()
                    found[", ".join(layers) or f"block {page}"] += 4 * (part.stop - part.start)
        return dict(found)


def _farthest(
    layout: CacheLayout,
    layer: str,
    ours: NDArray[np.int32],
    theirs: NDArray[np.int32],
    words: NDArray[np.int32],
) -> float:
    """The largest difference of the numbers in some words of a page, relative to the largest of the row that each lies
    in: the entries along the last axis of the layer's tensor. Words of no row, or of one of zeros, differ by as much as
    there is."""
    left, largest = set(words.tolist()), 0.0
    for view in layout.views[layer]:
        elements = view.elements()
        at = word_of(view, elements)
        width = view.shape[-1]
        for row in np.unique(np.flatnonzero(np.isin(at, words)) // width).tolist():
            inside = elements[row * width : (row + 1) * width]
            our, their = (numbers_of(page, 0, len(page), view, inside) for page in (ours, theirs))
            if not their.any():
                return HUGE
            # What is not asked about is the twin's own.
            mixed = np.where(np.isin(word_of(view, inside), words), our, their)
            largest = max(largest, largest_difference(mixed, their)[1])
            left.difference_update(word_of(view, inside).tolist())
    return HUGE if left else largest


def _matching_pages(ours: Observed, theirs: Observed) -> dict[int, int]:
    """The twin's page for each of ours that the step is given."""
    found: dict[int, int] = {}
    for our, their in ((ours.writable, theirs.writable), (ours.history, theirs.history)):
        for layer, pages in our.items():
            found.update(zip(pages, their.get(layer, ()), strict=False))
    return found


def compare_engines(arm: Recording, twin: Recording, engine: str) -> Iterator[HandoverStep]:
    """The steps of one engine, in order, as both arms took them.

    Once the arms of a scenario do not compute the same any more, its later steps are marked so and not compared.
    """
    ours = _Replay(parse_layout(arm.layouts[engine]))
    theirs = _Replay(parse_layout(twin.layouts[engine]), keeps_written=True)
    pair = _Pair(ours=ours, theirs=theirs)
    scenarios = zip_longest(_by_scenario(arm, engine), _by_scenario(twin, engine))
    for our_steps, their_steps in scenarios:
        if our_steps is None or their_steps is None:
            return
        in_step = True
        for our, their in zip_longest(our_steps, their_steps):
            if our is None or their is None:
                replay, (_, before, by_call) = (ours, our) if their is None else (theirs, their)
                replay.apply(before, by_forward=False)
                replay.apply(by_call, by_forward=True)
                continue
            found = _compare_step(pair, our, their, in_step)
            in_step = found.same_work and our[0].tokens == their[0].tokens
            yield found


def _by_scenario(recording: Recording, engine: str) -> Iterator[Iterator[Taken]]:
    steps = [s for s in recording.steps_of(engine) if s.observed is not None]
    taken = ((s, *c) for s, c in zip(steps, recording.changes_of(engine), strict=True))
    for _, group in groupby(taken, key=lambda t: t[0].scenario):
        yield group


def _compare_step(pair: _Pair, ours: Taken, theirs: Taken, in_step: bool) -> HandoverStep:
    step, twin_step = ours[0], theirs[0]
    pair.ours.apply(ours[1], by_forward=False)
    pair.theirs.apply(theirs[1], by_forward=False)
    same_work = in_step and describe_work(step) == describe_work(twin_step)
    nothing = Distance(num_words=0, num_differing=0, largest=0.0)
    states, caches, other, gap = nothing, nothing, "", None
    beyond, between, gaps = dict[str, int](), dict[str, int](), dict[str, float]()
    if twin_step.observed is not None:
        pair.theirs.note_owners(twin_step.observed.owners)
    if same_work and step.observed is not None and twin_step.observed is not None:
        names = [step.names.get(r.request_id, "") for r in step.row.requests if r.num_computed_tokens]
        states = pair.compare_starts(step.observed, twin_step.observed, names)
        caches = pair.compare_history(step.observed, twin_step.observed, step)
        beyond, gaps = pair.find_beyond(ours, theirs)
        between = pair.bytes_between(ours, theirs)
        other, gap = find_other_token(step, twin_step)
    pair.ours.apply(ours[2], by_forward=True)
    pair.theirs.apply(theirs[2], by_forward=True)
    return HandoverStep(
        engine=step.engine,
        scenario=step.scenario,
        position=step.position,
        same_work=same_work,
        num_starts=sum(1 for r in step.row.requests if r.num_computed_tokens),
        states=states,
        caches=caches,
        num_bytes_beyond=beyond,
        largest_beyond=gaps,
        num_bytes_between=between,
        other_token=other,
        top_gap=gap,
    )


def describe_work(step: RecordedStep) -> tuple[object, ...]:
    """What a step computes, apart from where its slots lie: equal for two arms that are in step."""
    requests = tuple(
        (
            step.names.get(r.request_id, ""),
            r.num_computed_tokens,
            r.num_scheduled_tokens,
            r.num_prefill_tokens,
            r.num_draft_tokens,
        )
        for r in step.row.requests
    )
    seen = step.observed
    if seen is None:
        return (step.scenario, step.position, requests)
    starts = {layer: [start[2] for start in found] for layer, found in seen.starts.items()}
    sizes = {layer: len(pages) for layer, pages in seen.history.items()}
    return (step.scenario, step.position, requests, starts, sizes)


def find_other_token(ours: RecordedStep, theirs: RecordedStep) -> tuple[str, float | None]:
    """The first request whose likeliest tokens of the step differ, and the twin's gap there; ("", None) without one."""
    for name, expected in theirs.likeliest.items():
        found = ours.likeliest.get(name, ())
        if found != expected:
            pairs = enumerate(zip(found, expected, strict=False))
            at = next((i for i, (a, b) in pairs if a != b), min(len(found), len(expected)))
            gaps = theirs.gaps.get(name, ())
            return name, gaps[at] if at < len(gaps) else None
    return "", None
