"""Laws of the layout: which words a layer uses, how numbers are read, how far two of them are apart."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.engine.probe.cache_layout import (
    format_of,
    largest_difference,
    numbers_of,
    parse_layout,
    split_pages,
    word_of,
)


def described(
    layer: str, index: int, dtype: str, shape: list[int], stride: list[int], offset: int
) -> dict[str, object]:
    """A view as an observer writes it down."""
    fields = {"layer": layer, "index": index, "storage": 0, "dtype": dtype}
    return fields | {"shape": shape, "stride": stride, "offset": offset}


VIEWS = [
    described("kda", 0, "float32", [4, 5, 2], [64, 2, 1], 0),
    described("kda", 1, "float32", [4, 8], [64, 1], 10),
    described("mla", 0, "bfloat16", [4, 100], [128, 1], 0),
]
RECORD = {
    "views": VIEWS,
    "page_words": [64],
    "num_words": [256],
    "groups": [["kda"], ["mla"]],
    "num_spec": 2,
    "windows_last": False,
    "seed": 1,
}


def test_a_layer_uses_the_words_of_its_own_tensors() -> None:
    layout = parse_layout(RECORD)
    assert np.flatnonzero(layout.mask_of("kda")).tolist() == list(range(18))
    assert int(layout.mask_of("mla").sum()) == 50


def test_the_window_that_counts_is_as_long_as_without_drafts_and_shifted_by_the_accepted_ones() -> None:
    layout = parse_layout(RECORD)
    view = layout.views["kda"][0]
    assert view.elements(layout.window_of("kda", 0)).tolist() == [0, 1, 2, 3, 4, 5]
    assert view.elements(layout.window_of("kda", 2)).tolist() == [4, 5, 6, 7, 8, 9]


def test_a_cache_of_an_unknown_format_is_refused() -> None:
    views = [VIEWS[0] | {"dtype": "complex64"}]
    with pytest.raises(ValueError, match="complex64"):
        parse_layout(RECORD | {"views": views})


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "uint8"])
def test_of_a_cache_of_single_bytes_the_words_are_known_and_the_numbers_are_not(dtype: str) -> None:
    view = parse_layout(RECORD | {"views": [VIEWS[0] | {"dtype": dtype}]}).views["kda"][0]
    elements = np.arange(8, dtype=np.int64)
    assert word_of(view, elements).tolist() == [0, 0, 0, 0, 1, 1, 1, 1]
    with pytest.raises(ValueError, match=f"numbers of a cache of {dtype}"):
        numbers_of(np.zeros(64, dtype=np.int32), 0, 64, view, elements)


def test_bfloat16_numbers_are_read_as_what_they_are() -> None:
    layout = parse_layout(RECORD)
    view = layout.views["mla"][0]
    words = np.zeros(256, dtype=np.int32)
    words.view(np.uint16)[128 + 3] = 0x4000
    assert numbers_of(words, 1, 64, view, np.array([2, 3])).tolist() == [0.0, 2.0]


def test_equal_bits_are_no_difference_and_a_flipped_bit_is_one() -> None:
    numbers = np.array([1.0, -2.0, 0.0], dtype=np.float32)
    assert largest_difference(numbers, numbers.copy()) == (0, 0.0)
    other = numbers.copy()
    other[1] = np.nextafter(np.float32(-2.0), np.float32(0))
    count, largest = largest_difference(other, numbers)
    assert count == 1 and 0 < largest < 1e-6


def test_the_difference_is_relative_to_the_largest_magnitude_of_the_twin() -> None:
    theirs = np.array([0.0, -8.0], dtype=np.float32)
    assert largest_difference(np.array([2.0, -8.0], dtype=np.float32), theirs) == (1, 0.25)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_number_that_is_not_finite_is_far_away_and_still_a_number(value: float) -> None:
    theirs = np.array([1.0, 2.0], dtype=np.float32)
    count, largest = largest_difference(np.array([value, 2.0], dtype=np.float32), theirs)
    assert count == 1 and np.isfinite(largest) and largest > 1e100


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_number_of_the_twin_that_is_not_finite_hides_no_other_difference(value: float) -> None:
    theirs = np.array([1.0, 2.0, value], dtype=np.float32)
    assert largest_difference(np.array([1.0, 200.0, value], dtype=np.float32), theirs) == (1, 99.0)


@given(st.sets(st.integers(0, 255)))
def test_words_split_by_page_come_back_together(where: set[int]) -> None:
    given_words = np.array(sorted(where), dtype=np.int32)
    parts = list(split_pages(given_words, 64))
    assert [page for page, _ in parts] == sorted({w // 64 for w in where})
    assert [page * 64 + int(o) for page, offsets in parts for o in offsets] == sorted(where)


@pytest.mark.parametrize(
    ("model", "cache", "expected"),
    [("float32", "bfloat16", "bfloat16"), ("bfloat16", "float32", "bfloat16"), ("float16", "fp8", "fp8")],
)
def test_the_coarsest_format_is_that_of_the_model_or_of_a_tensor(
    model: str, cache: str, expected: str
) -> None:
    views = [{"dtype": "float32"}, {"dtype": cache}]
    assert format_of({"model_dtype": model, "views": views}) == expected
