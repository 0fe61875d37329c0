"""AIME: problems whose answer is an integer from 0 to 999, in the published data sets' format."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from eval_suites.row_files import RowError, text_field
from harness.graders.aime import parse_reference
from harness.model.evaluation import ChatMessage, EvalRow

INSTRUCTION = r"Think it through step by step. Finish with the answer, one integer, as \boxed{...}."
"""Follows each problem of a data set; generated problems stand alone."""


def parse_aime_row(values: Mapping[str, Any], name: str, instruction: str = INSTRUCTION) -> EvalRow:
    """One row with `problem` and `answer`, an integer or its digits.

    Raises:
        RowError: a field is missing or has another type, or the answer lies outside 0 to 999.
    """
    problem, answer = text_field(values, "problem"), values.get("answer")
    if isinstance(answer, int) and not isinstance(answer, bool):
        answer = str(answer)
    try:
        reference = parse_reference(answer.strip()) if isinstance(answer, str) else None
    except ValueError:
        reference = None
    if reference is None:
        got = repr(answer)[:60] if "answer" in values else "nothing"
        raise RowError(f"answer: got {got}, expected an integer from 0 to 999")
    content = f"{problem}\n\n{instruction}" if instruction else problem
    return EvalRow(
        row=name,
        messages=(ChatMessage(role="user", content=content),),
        answer=str(reference),
        bin=_kind(values),
    )


def _kind(values: Mapping[str, Any]) -> str:
    """The kind of problem where the row's id ends with one, as generated rows' do ("1-7-sum")."""
    kind = str(values.get("id", "")).rpartition("-")[2]
    return kind if kind.replace("_", "").isalpha() else "problems"
