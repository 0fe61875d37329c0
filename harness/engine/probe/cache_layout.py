"""How an engine's cache lies in memory, as a reader of its changes needs it. Pure arithmetic on numpy arrays."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.model.number_format import coarsest

Mask = NDArray[np.bool_]
HUGE = float(np.finfo(np.float64).max)
"""A difference that has no number."""
_CODES = ("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "uint8", "int8")
"""Formats of one byte: where they lie is known; which numbers they stand for hangs on scales kept elsewhere."""
_ITEM_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2, "float64": 8} | dict.fromkeys(_CODES, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """One tensor of a layer: `shape` and `stride` of one page, in elements; `offset` in elements within the page."""

    layer: str
    index: int
    storage: int
    dtype: str
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int

    @lru_cache(maxsize=256)  # noqa: B019 - views are few, small, and live as long as the comparison
    def elements(self, window: tuple[int, int, int] | None = None) -> NDArray[np.int64]:
        """Offsets within a page of every element, flat.

        Args:
            window: (axis, first, count) keeps only these entries along an axis.
        """
        axes = [np.arange(length) for length in self.shape]
        if window is not None:
            axis, first, count = window
            axes[axis] = axes[axis][first : first + count]
        total = np.zeros(1, dtype=np.int64)
        for entries, stride in zip(axes, self.stride, strict=True):
            total = (total[:, None] + entries * stride).ravel()
        return self.offset + total

    @lru_cache(maxsize=256)  # noqa: B019
    def span(self, window: tuple[int, int, int] | None = None) -> slice | NDArray[np.int64]:
        """`elements`, as a slice where they lie one behind the other: their numbers are then read in place."""
        elements = self.elements(window)
        is_run = elements.size > 0 and bool((np.diff(elements) == 1).all())
        return slice(int(elements[0]), int(elements[-1]) + 1) if is_run else elements


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CacheLayout:
    """All views of one engine's cache."""

    views: Mapping[str, tuple[View, ...]]
    """By layer, in the order of the layer's tensors."""
    page_words: tuple[int, ...]
    num_words: tuple[int, ...]
    groups: tuple[tuple[str, ...], ...]
    """Layers that share block tables."""
    num_spec: int
    windows_last: bool
    """Whether a convolution window's entries are the last axis of its tensor."""
    seed: int
    """Of the words that everything held at first."""

    def storage_of(self, layer: str) -> int:
        """The storage that a layer's tensors lie in."""
        return self.views[layer][0].storage

    @lru_cache(maxsize=256)  # noqa: B019
    def mask_of(self, layer: str) -> Mask:
        """[page_words] which words of a page belong to a layer."""
        mask = np.zeros(self.page_words[self.storage_of(layer)], dtype=np.bool_)
        for view in self.views[layer]:
            mask[word_of(view, view.elements())] = True
        return mask

    def window_of(self, layer: str, first: int) -> tuple[int, int, int]:
        """(axis, first, count) of the window entries that a step starts from, of a layer's first tensor."""
        shape = self.views[layer][0].shape
        axis = len(shape) - 1 if self.windows_last else 0
        return axis, first, shape[axis] - self.num_spec

    def layers_in(self, storage: int, group: int) -> tuple[str, ...]:
        """Layers of a group whose pages lie in a storage."""
        return tuple(name for name in self.groups[group] if self.storage_of(name) == storage)


def parse_layout(record: Mapping[str, Any]) -> CacheLayout:
    """The layout that an observer wrote down; raises KeyError, TypeError or ValueError for anything else."""
    views: dict[str, list[View]] = {}
    for item in record["views"]:
        if item["dtype"] not in _ITEM_BYTES:
            raise ValueError(f"{item['layer']}: a cache of {item['dtype']} is not understood")
        _, *shape = item["shape"]
        page, *stride = item["stride"]
        view = View(
            layer=item["layer"],
            index=item["index"],
            storage=item["storage"],
            dtype=item["dtype"],
            shape=tuple(shape),
            stride=tuple(stride),
            offset=item["offset"] % page,
        )
        views.setdefault(view.layer, []).append(view)
    return CacheLayout(
        views={layer: tuple(found) for layer, found in views.items()},
        page_words=tuple(record["page_words"]),
        num_words=tuple(record["num_words"]),
        groups=tuple(tuple(names) for names in record["groups"]),
        num_spec=record["num_spec"],
        windows_last=record["windows_last"],
        seed=record["seed"],
    )


def format_of(record: Mapping[str, Any]) -> str:
    """The coarsest number format of what an observer wrote down: that of the model's activations and of each tensor."""
    return coarsest([record["model_dtype"], *(view["dtype"] for view in record["views"])])


def word_of(view: View, elements: NDArray[np.int64]) -> NDArray[np.int64]:
    """The word of a page that each element lies in."""
    return elements * _ITEM_BYTES[view.dtype] // 4


def numbers_of(
    words: NDArray[np.int32], page: int, page_words: int, view: View, elements: slice | NDArray[np.int64]
) -> NDArray[Any]:
    """The numbers at `elements` of one page of a view, in the view's format; bfloat16 as float32.

    `elements` count in the view's own items from the beginning of the page. Raises ValueError for formats of one byte.
    """
    if view.dtype in _CODES:
        raise ValueError(f"{view.layer}: the numbers of a cache of {view.dtype} are not understood")
    memory = words[page * page_words : (page + 1) * page_words]
    if view.dtype == "bfloat16":
        halves = memory.view(np.uint16)[elements].astype(np.uint32) << 16
        return halves.view(np.float32)
    return memory.view(np.dtype(view.dtype))[elements]


def largest_difference(ours: NDArray[Any], theirs: NDArray[Any]) -> tuple[int, float]:
    """How many numbers have other bits, and the largest difference relative to the largest finite one in `theirs`.

    A NaN or an infinity on one side only counts as the largest finite number.
    """
    bits = f"u{ours.itemsize}"
    count = int(np.count_nonzero(ours.view(bits) != theirs.view(bits)))
    if not count:
        return 0, 0.0
    wide = np.promote_types(theirs.dtype, np.float32)
    with np.errstate(invalid="ignore", over="ignore"):
        gap, scale = _magnitude(np.subtract(ours, theirs, dtype=wide)), _magnitude(theirs)
    if not (np.isfinite(gap) and np.isfinite(scale)):
        gap, scale = _exactly(ours, theirs)
    return count, min(gap / max(scale or 1.0, 1e-300), HUGE)


def _magnitude(numbers: NDArray[Any]) -> float:
    return max(float(numbers.max()), -float(numbers.min()))


def _exactly(ours: NDArray[Any], theirs: NDArray[Any]) -> tuple[float, float]:
    """Largest difference and largest finite number where some are not finite, or differ by more than their format."""
    differing = ours.view(f"u{ours.itemsize}") != theirs.view(f"u{theirs.itemsize}")
    with np.errstate(invalid="ignore", over="ignore"):
        gaps = np.abs(ours[differing].astype(np.float64) - theirs[differing].astype(np.float64))
    gaps[np.isnan(gaps)] = HUGE
    finite = theirs[np.isfinite(theirs)].astype(np.float64)
    return float(gaps.max()), float(np.max(np.abs(finite), initial=0.0))


def split_pages(where: NDArray[np.int32], page_words: int) -> Iterator[tuple[int, NDArray[np.int32]]]:
    """Each page that holds one of the words in `where`, which is sorted, with the words' offsets within it."""
    for page, part in page_parts(where, page_words):
        yield page, where[part] - np.int32(page * page_words)


def page_parts(where: NDArray[np.int32], page_words: int) -> Iterator[tuple[int, slice]]:
    """Each page that holds one of the words in `where`, which is sorted, with the part of `where` that does."""
    if where.size:
        pages = range(int(where[0]) // page_words, int(where[-1]) // page_words + 1)
        # Of the same type: numpy would first convert all of `where` to another.
        starts = np.array([page * page_words for page in pages], dtype=where.dtype)
        cuts = [*np.searchsorted(where, starts).tolist(), where.size]
        for page, begin, end in zip(pages, cuts[:-1], cuts[1:], strict=True):
            if begin < end:
                yield page, slice(begin, end)
