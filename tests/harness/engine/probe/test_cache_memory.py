"""Laws of the cache as memory: every changed word is seen, once, and the first fill is finite in every format."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from harness.engine.probe.cache_memory import CacheMemory
from harness.engine.probe.canary import canary_words
from harness.engine.probe.recording import load_changes

PAGES, PAGE_WORDS = 6, 64


def layers() -> dict[str, Any]:
    """Two layers in one storage: a state layer (window and state) and a cache layer, pages of 64 words."""
    raw = torch.zeros(PAGES * PAGE_WORDS)
    window = raw.as_strided((PAGES, 3, 4), (PAGE_WORDS, 4, 1))
    state = raw.as_strided((PAGES, 2, 8), (PAGE_WORDS, 8, 1), 12)
    rows = raw.as_strided((PAGES, 4, 16), (PAGE_WORDS, 16, 1))
    return {"kda": SimpleNamespace(kv_cache=(window, state)), "mla": SimpleNamespace(kv_cache=rows)}


def test_every_word_that_differs_is_told_with_its_place_and_once() -> None:
    made = layers()
    memory = CacheMemory(made)
    memory.fill(1)
    made["kda"].kv_cache[1][3, 1, 5] = 0.25
    ((begins, lengths, values),) = memory.take_changes()
    assert (begins.tolist(), lengths.tolist()) == ([3 * PAGE_WORDS + 12 + 13], [1])
    assert values.view(np.float32).tolist() == [0.25]
    assert memory.take_changes()[0][0].size == 0


def test_a_word_whose_bits_stay_is_no_change() -> None:
    made = layers()
    memory = CacheMemory(made)
    memory.fill(1)
    made["mla"].kv_cache[2] = made["mla"].kv_cache[2].clone()
    assert memory.take_changes()[0][0].size == 0


@pytest.mark.parametrize(
    "indices", [[], [0], [7], [0, 1, 2], [0, 2, 4], [3, 4, 5, 9, 11, 12], list(range(PAGES * PAGE_WORDS))]
)
def test_runs_in_the_file_are_read_back_as_the_words_that_changed(tmp_path: Path, indices: list[int]) -> None:
    made = layers()
    memory = CacheMemory(made)
    raw = made["mla"].kv_cache.view(-1)
    path = tmp_path / "changes-plain.bin"
    with path.open("wb") as file:
        for number in (1.5, 2.5):
            raw[indices] = number + torch.arange(float(len(indices)))
            memory.write_changes(file)
    words, at = np.fromfile(path, np.int32), 0
    for number in (1.5, 2.5):
        ((where, values),), at = load_changes(words, at, 1)
        assert where.tolist() == indices
        assert values.view(np.float32).tolist() == [number + index for index in range(len(indices))]
    assert at == len(words)


def test_layers_that_share_memory_share_one_storage() -> None:
    memory = CacheMemory(layers())
    assert memory.num_words == (PAGES * PAGE_WORDS,)
    assert [view.layer for view in memory.views] == ["kda", "kda", "mla"]


def test_tensors_of_one_storage_with_other_pages_are_refused() -> None:
    raw = torch.zeros(128)
    other = {
        "a": SimpleNamespace(kv_cache=raw.as_strided((2, 64), (64, 1))),
        "b": SimpleNamespace(kv_cache=raw.as_strided((4, 32), (32, 1))),
    }
    with pytest.raises(ValueError, match="pages"):
        CacheMemory(other)


def test_a_layer_without_a_cache_is_left_out() -> None:
    assert CacheMemory({"mlp": SimpleNamespace()}).views == []


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_the_first_fill_is_finite_and_not_zero_in_every_format(dtype: torch.dtype) -> None:
    numbers = torch.from_numpy(canary_words(4096, 3)).view(dtype)
    assert bool(torch.isfinite(numbers).all()) and bool((numbers.abs() >= 0.5).all())


def test_the_same_seed_fills_alike_in_every_process() -> None:
    assert np.array_equal(canary_words(100, 7), canary_words(100, 7))
    assert not np.array_equal(canary_words(100, 7), canary_words(100, 8))
