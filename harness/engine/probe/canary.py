"""What a probe fills the engine's cache with before anything is served."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def canary_words(num_words: int, seed: int) -> NDArray[np.int32]:
    """Words [num_words], int32: both halves one bfloat16 between 1 and 16, of either sign, which is finite as two
    float16, too."""
    draw = np.random.default_rng(seed)
    halves = draw.integers(0x3F80, 0x4180, num_words, dtype=np.uint32)
    halves |= draw.integers(0, 2, num_words, dtype=np.uint32) << 15
    return (halves << 16 | halves).view(np.int32)
