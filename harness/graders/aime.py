r"""Grades answers to problems whose answer is an integer from 0 to 999.

The answer is looked for in this order: the last `\boxed{...}` whose braces balance, the last stated answer ("the final
answer is 42", "Answer: 42"), the last integer. The first of these that is there decides; what it holds is not guessed
at further. Of a response with a `</think>` mark only what follows the last one is read.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

AIME_GRADER = "aime, last boxed or stated or plain integer, version 1"
"""Name and version of the rule, as evidence states it."""
LARGEST_ANSWER = 999
_MAX_BOX = 200
"""Characters of a box; a longer one holds no integer but an argument."""
_MAX_DIGITS = 18

AimeOutcome = Literal["correct", "wrong", "unparsed", "truncated"]

_NUMBER = re.compile(
    r"(?<![\w.])(?P<sign>(?<![\w)\]}])[-+\u2212])?(?<![0-9.,]\.)"
    r"(?P<whole>[0-9]{1,3}(?:(?:,|\{,\}|\\,|\\!,|,\\!)[0-9]{3})+(?![0-9])|[0-9]+)"
    r"(?P<rest>\.[0-9]+|\s*/\s*[0-9]+|\s*\\times\s*10\s*\^)?(?!\w)"
)
"""One number with what would make it no integer; words, ordinals and exponents such as `1e5` are none."""
_FRACTION = re.compile(r"\\[dtc]?frac\s*(?:\{[^{}]*\}|[0-9])\s*(?:\{[^{}]*\}|[0-9])")
_STATED = re.compile(
    r"\banswer\b[\s*_`\"'()]*(?:(?:is|equals|was|would\s+be|must\s+be)\b|[:=])[\s*_`\"':=$(\[{\\]*(?=[-+\u2212]?[0-9])",
    re.IGNORECASE,
)
_BRACE = re.compile(r"(?P<box>\\f?boxed\s*\{)|\\.|[{}]", re.DOTALL)
_WRAPPER = re.compile(r"\\(?:text|textbf|mathrm|mathbf|mathit|boldsymbol|operatorname)\s*\{([^{}]*)\}")
_ORNAMENT = re.compile(
    r"\^\s*(?:\{\s*\\circ\s*\}|\\circ)|\\left|\\right|\\displaystyle|\\[;:!, ]|\\%|[$~%\u00b0*\s]"
)
_THOUSANDS = re.compile(r"(?<=[0-9])(?:\\,|\\!|\{,\}|,\\!)(?=[0-9]{3}(?![0-9]))")


@dataclass(frozen=True, slots=True)
class AimeGrade:
    """How one response did."""

    outcome: AimeOutcome
    extracted: int | None = None
    """The integer that was read; None where there was none, or where the response was cut off."""

    @property
    def score(self) -> float:
        """1 for a correct answer, 0 for everything else."""
        return float(self.outcome == "correct")


def grade_aime(response: str, answer: str, finish_reason: str) -> AimeGrade:
    """The grade of one response.

    Args:
        response: What the model wrote.
        answer: The reference: an integer from 0 to 999, leading zeros allowed.
        finish_reason: As the server says. A response that was cut off ("length") is `truncated`, whatever its text
            holds: neither right nor wrong by luck.

    Raises:
        ValueError: the reference is no such integer.
    """
    reference = parse_reference(answer)
    if finish_reason == "length":
        return AimeGrade("truncated")
    extracted = extract_integer(response)
    if extracted is None:
        return AimeGrade("unparsed")
    return AimeGrade("correct" if extracted == reference else "wrong", extracted)


def parse_reference(answer: str) -> int:
    """The reference answer as an integer; raises ValueError unless it is one from 0 to 999, digits only."""
    if not re.fullmatch(r"[0-9]{1,3}", answer):
        raise ValueError(f"reference answer: got {answer!r}, expected an integer from 0 to {LARGEST_ANSWER}")
    return int(answer)


def extract_integer(response: str) -> int | None:
    """The integer that a response gives as its answer, of any size and sign; None where it gives none.

    Fractions and decimals are no integers, also where their value is whole.
    """
    text = response.rpartition("</think>")[2]
    boxed = _last_boxed(text)
    if boxed is not None:
        return _parse_whole(boxed)
    stated = list(_STATED.finditer(text))
    if stated:
        number = _NUMBER.match(text, stated[-1].end())
        return None if number is None else _integer(number)
    integers = (_integer(found) for found in _NUMBER.finditer(_FRACTION.sub(" ", text)))
    found = [value for value in integers if value is not None]
    return found[-1] if found else None


def _last_boxed(text: str) -> str | None:
    r"""What the last `\boxed{...}` with balanced braces holds; escaped braces are no braces."""
    opened: list[int | None] = []
    last = (-1, -1)
    for mark in _BRACE.finditer(text):
        if mark.group() == "{":
            opened.append(None)
        elif mark.group() == "}":
            start = opened.pop() if opened else None
            if start is not None and start > last[0]:
                last = (start, mark.start())
        elif mark["box"]:
            opened.append(mark.end())
    return text[slice(*last)] if last[0] >= 0 else None


def _parse_whole(content: str) -> int | None:
    """The integer that a box holds and nothing else, an equation's left side, markup and units left away."""
    if len(content) > _MAX_BOX:
        return None
    while (plain := _WRAPPER.sub(r" \1", content)) != content:
        content = plain
    plain = _ORNAMENT.sub("", _THOUSANDS.sub("", content).rpartition("=")[2])
    found = re.fullmatch(r"\(?\{?(?P<number>.*?)\}?\)?(?:[A-Za-z]+\.?)?\.?", plain)
    number = found and _NUMBER.fullmatch(found["number"])
    return _integer(number) if number else None


def _integer(number: re.Match[str]) -> int | None:
    """The value of a number that is an integer of at most 18 digits."""
    digits = re.sub(r"[^0-9]", "", number["whole"]).lstrip("0")
    if number["rest"] or len(digits) > _MAX_DIGITS:
        return None
    value = int(digits or "0")
    return -value if number["sign"] in ("-", "\u2212") else value
