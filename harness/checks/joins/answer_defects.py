"""What makes an answer one that a score should not be read from."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from harness.checks.joins.pairing import Triple
from harness.checks.joins.token_level import num_not_finite
from harness.graders.aime import grade_aime
from harness.model.evaluation import EvalRow, SuiteItem

MAX_PERIOD, MIN_REPEATS, MIN_LOOP_TOKENS = 32, 4, 32
"""A loop is a run of at most so many tokens that ends an answer, so often and over so many tokens at least."""

Defect = Callable[[Triple, SuiteItem, EvalRow], bool]
"""Whether an arm's answer to a request has it."""


def is_looping(token_ids: Sequence[int]) -> bool:
    """Whether an answer ends by saying the same again and again."""
    for period in range(1, MAX_PERIOD + 1):
        length = max(period * MIN_REPEATS, MIN_LOOP_TOKENS)
        tail = token_ids[-length:]
        if len(tail) == length and all(a == b for a, b in zip(tail, tail[period:], strict=False)):
            return True
    return False


def _is_failed(_triple: Triple, item: SuiteItem, _row: EvalRow) -> bool:
    return bool(item.error)


def _is_truncated(_triple: Triple, item: SuiteItem, _row: EvalRow) -> bool:
    return item.finish_reason == "length"


def _is_empty(_triple: Triple, item: SuiteItem, _row: EvalRow) -> bool:
    return not item.error and not item.text.strip()


def _loops(_triple: Triple, item: SuiteItem, _row: EvalRow) -> bool:
    return is_looping(item.token_ids)


def _is_shortened(triple: Triple, item: SuiteItem, _row: EvalRow) -> bool:
    """The arm saw fewer tokens of the prompt than another did."""
    longest = max(a.num_prompt_tokens for a in triple.answers)
    return not item.error and item.num_prompt_tokens < longest


def _is_not_finite(_triple: Triple, item: SuiteItem, _row: EvalRow) -> bool:
    return num_not_finite(item) > 0


def _lacks_prefix(_triple: Triple, item: SuiteItem, row: EvalRow) -> bool:
    return not item.error and not item.text.startswith(row.prefix)


def _is_unparsed(_triple: Triple, item: SuiteItem, row: EvalRow) -> bool:
    return not item.error and grade_aime(item.text, row.answer, item.finish_reason).outcome == "unparsed"


COMMON: dict[str, Defect] = {
    "failed": _is_failed,
    "truncated": _is_truncated,
    "empty": _is_empty,
    "ending in a loop": _loops,
    "to a shortened prompt": _is_shortened,
}
BY_SUITE: dict[str, dict[str, Defect]] = {
    "mrcr": {**COMMON, "without the prefix": _lacks_prefix},
    "aime": {**COMMON, "without an integer": _is_unparsed},
}
"""By suite and name; the share of each is compared between the arms."""
NOT_FINITE: Defect = _is_not_finite
"""Log probabilities that are no numbers; no share of them is fine."""
