"""The engine's cache as memory: storages, pages, and the words that differ since the last look."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, BinaryIO

import numpy as np
import torch

from harness.engine.probe.canary import canary_words

WORD_BYTES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheView:
    """One tensor of a layer inside a storage; its first dimension counts pages. Offsets and strides in elements."""

    layer: str
    index: int
    """Position among the layer's tensors."""
    storage: int
    dtype: str
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int


class CacheMemory:
    """All storages that a worker's cache tensors lie in, each with a copy of what it held at the last look.

    Raises:
        ValueError: the tensors of one storage do not have pages of one size.
    """

    def __init__(self, layers: Mapping[str, Any]) -> None:
        """`layers`: the engine's layers by name; those without a cache are left out."""
        self.views: list[CacheView] = []
        self.page_words: list[int] = []
        self._words: list[torch.Tensor] = []
        self._seen: list[torch.Tensor] = []
        found: dict[int, int] = {}
        for name, layer in layers.items():
            for index, tensor in enumerate(cache_tensors(layer)):
                storage = tensor.untyped_storage()
                number = found.setdefault(storage.data_ptr(), len(found))
                self._add(name, index, number, tensor)
        self._seen = [words.clone() for words in self._words]

    def _add(self, layer: str, index: int, number: int, tensor: torch.Tensor) -> None:
        page_words, rest = divmod(tensor.stride(0) * tensor.element_size(), WORD_BYTES)
        if number == len(self._words):
            raw = torch.empty(0, dtype=torch.int32, device=tensor.device)
            storage = tensor.untyped_storage()
            self._words.append(raw.set_(storage, 0, (storage.nbytes() // WORD_BYTES,)))
            self.page_words.append(page_words)
        if rest or page_words != self.page_words[number]:
            raise ValueError(
                f"{layer}: pages of {tensor.stride(0)} elements, another tensor there has others"
            )
        self.views.append(
            CacheView(
                layer=layer,
                index=index,
                storage=number,
                dtype=str(tensor.dtype).removeprefix("torch."),
                shape=tuple(tensor.shape),
                stride=tuple(tensor.stride()),
                offset=tensor.storage_offset(),
            )
        )

    @property
    def pointers(self) -> frozenset[int]:
        """Addresses of the storages and of their copies."""
        return frozenset(t.untyped_storage().data_ptr() for t in (*self._words, *self._seen))

    @property
    def num_words(self) -> tuple[int, ...]:
        """Words of each storage."""
        return tuple(len(words) for words in self._words)

    def fill(self, seed: int) -> None:
        """Overwrites everything, the null block too, with seeded numbers that are finite in every float format.

        What nobody wrote can then not look as if somebody had, and what is read without having been written shows.
        """
        for words, seen in zip(self._words, self._seen, strict=True):
            words.copy_(torch.from_numpy(canary_words(len(words), seed)))
            seen.copy_(words)

    def take_changes(self) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """The words that differ since the last look, by storage: where each run of them begins, its length, and the
        new values of all."""
        changes = []
        for words, seen in zip(self._words, self._seen, strict=True):
            where = (words != seen).nonzero().squeeze(1)
            values = words[where]
            seen[where] = values
            begins, lengths = runs_of(where.to(torch.int32))
            changes.append((begins.cpu().numpy(), lengths.cpu().numpy(), values.cpu().numpy()))
        return changes

    def write_changes(self, file: BinaryIO) -> None:
        """Takes the changes into a file: by storage the numbers of runs and words (int64), then what `take_changes`
        gives (int32)."""
        for begins, lengths, values in self.take_changes():
            file.write(np.array([len(begins), len(values)], np.int64).tobytes())
            for numbers in (begins, lengths, values):
                file.write(numbers.data)

    def take_changed_pages(self) -> list[dict[int, int]]:
        """By storage: each page with a word that differs since the last look, and how many do.

        Raises:
            ValueError: a storage is no whole number of pages.
        """
        found = []
        for words, seen, page_words in zip(self._words, self._seen, self.page_words, strict=True):
            if len(words) % page_words:
                raise ValueError(f"a storage of {len(words)} words has pages of {page_words}")
            counts = (words != seen).view(-1, page_words).sum(1)
            pages = counts.nonzero().squeeze(1)
            seen.copy_(words)
            found.append(dict(zip(pages.tolist(), counts[pages].tolist(), strict=True)))
        return found


def runs_of(where: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Where runs of neighbours begin among rising indices [n] (int32), and how long each is."""
    is_first = torch.ones_like(where, dtype=torch.bool)
    is_first[1:] = where[1:] - where[:-1] != 1
    at = is_first.nonzero().squeeze(1).to(torch.int32)
    end = torch.full((1,), len(where), dtype=torch.int32, device=where.device)
    return where[at], torch.diff(at, append=end)


def describe_layout(memory: CacheMemory, runner: Any) -> dict[str, Any]:
    """How the cache of one of vLLM's model runners lies in memory, for whoever reads a file of its changes."""
    from vllm.model_executor.layers.mamba.mamba_utils import is_conv_state_dim_first

    return {
        "views": [asdict(view) for view in memory.views],
        "page_words": memory.page_words,
        "num_words": memory.num_words,
        "groups": [group.layer_names for group in runner.kv_cache_config.kv_cache_groups],
        "num_spec": runner.vllm_config.num_speculative_tokens,
        "model_dtype": str(runner.vllm_config.model_config.dtype).removeprefix("torch."),
        "windows_last": is_conv_state_dim_first(),
    }


def cache_tensors(layer: Any) -> tuple[torch.Tensor, ...]:
    """The cache tensors of one of the engine's layers; none for a layer without."""
    cache = getattr(layer, "kv_cache", None)
    tensors: Iterable[Any] = cache if isinstance(cache, list | tuple) else (cache,)
    return tuple(t for t in tensors if isinstance(t, torch.Tensor) and t.dim() > 1 and t.numel())
