"""What a probe fills the engine's cache with before anything is served."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_CHUNK = 1 << 22
"""Words that are drawn at a time, in memory that stays near."""


def canary_words(num_words: int, seed: int) -> NDArray[np.int32]:
    """Words [num_words], int32: both halves one bfloat16 between 1 and 16, of either sign, which is finite as two
    float16, too."""
    draw, words = np.random.default_rng(seed), np.empty(num_words, np.int32)
    for begin in range(0, num_words, _CHUNK):
        part = words[begin : begin + _CHUNK]
        half = (draw.integers(0, 1 << 16, len(part), dtype=np.uint16) & 0x81FF) + np.uint16(0x3F80)
        part.view(np.uint16)[0::2] = part.view(np.uint16)[1::2] = half
    return words
