"""The scoring rule of the MRCR data set."""

from __future__ import annotations

from difflib import SequenceMatcher
from functools import lru_cache

MRCR_GRADER = "mrcr, sequence-matcher ratio behind the prefix, version 1"
"""Name and version of the rule, as evidence states it."""


@lru_cache(maxsize=4096)
def grade_mrcr(response: str, answer: str, prefix: str) -> float:
    """The score from 0 to 1 of a response, by the rule on the card of the data set `openai/mrcr`.

    A response that does not begin with the prefix, character for character, scores 0. Otherwise the prefix is taken
    off both texts and the score is `difflib.SequenceMatcher(None, response, answer).ratio()`.
    """
    if not response.startswith(prefix):
        return 0.0
    return SequenceMatcher(None, response.removeprefix(prefix), answer.removeprefix(prefix)).ratio()
