"""Made-up words and named random streams: text that no model can know beforehand, so that it has to be read."""

from __future__ import annotations

import random
from typing import Literal

Stream = Literal["training", "evaluation"]
"""Which of two disjoint sources a row comes from: what a model learned from, or what it is asked about."""

_CONSONANTS = "bdfghjklmnprstvwz"
_VOWELS = "aeiou"
_ENDINGS = ("", "", "n", "r", "s", "l")
_ALPHANUMERICS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"


def open_stream(name: str, stream: Stream, seed: int) -> random.Random:
    """Returns a generator keyed by all three, the same on every machine; two streams never share a seed.

    Args:
        name: Who draws, so that two generators with one seed are unrelated.
        stream: Training or evaluation.
        seed: The row set.
    """
    return random.Random(f"fasttrack/{name}/{stream}/{seed}")


def made_up_word(rng: random.Random, syllables: int) -> str:
    """Returns a pronounceable word of consonant-vowel syllables; 85 choices a syllable, 4 endings."""
    pairs = (rng.choice(_CONSONANTS) + rng.choice(_VOWELS) for _ in range(syllables))
    return "".join(pairs) + rng.choice(_ENDINGS)


def random_prefix(rng: random.Random, length: int = 10) -> str:
    """Returns `length` letters and digits, each equally likely."""
    return "".join(rng.choice(_ALPHANUMERICS) for _ in range(length))
