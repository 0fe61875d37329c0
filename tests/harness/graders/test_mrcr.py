"""The MRCR score is the published rule, character for character."""

from __future__ import annotations

from difflib import SequenceMatcher

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.graders.mrcr import grade_mrcr

TEXT = st.text(st.characters(codec="utf-8"), max_size=60)


def published_rule(response: str, answer: str, prefix: str) -> float:
    """The rule of the data set's card, written out without the grader's own means."""
    if response[: len(prefix)] != prefix:
        return 0
    response, answer = (
        response[len(prefix) :],
        answer[len(prefix) :] if answer[: len(prefix)] == prefix else answer,
    )
    matched = sum(block.size for block in SequenceMatcher(a=response, b=answer).get_matching_blocks())
    total = len(response) + len(answer)
    return 2 * matched / total if total else 1.0


@pytest.mark.parametrize(
    ("response", "score"),
    [
        ("Xy12the text", 1.0),
        ("Xy12", 0.0),
        ("", 0.0),
        ("the text", 0.0),
        (" Xy12the text", 0.0),
        ("xy12the text", 0.0),
        ("Here it is: Xy12the text", 0.0),
        ("Xy1", 0.0),
        ("Xy12Xy12the text", 2 * 8 / 20),
        ("Xy12the text and more", 2 * 8 / 25),
        ("Xy12the", 2 * 3 / 11),
        ("Xy12THE TEXT", 2 * 1 / 16),
        ("Xy12the text\n", 2 * 8 / 17),
        ("Xy12the t\u00e9xt", 2 * 7 / 16),
    ],
)
def test_a_response_scores_by_prefix_and_ratio(response: str, score: float) -> None:
    assert grade_mrcr(response, "Xy12the text", "Xy12") == pytest.approx(score)


def test_the_wrong_needle_scores_less_than_the_right_one() -> None:
    right, wrong = "P1ode on bara: lumo kira.", "P1ode on bara: sento vuda."
    assert grade_mrcr(wrong, right, "P1") < 0.8 < grade_mrcr(right, right, "P1")


def test_the_right_letters_in_another_order_are_not_the_text() -> None:
    assert grade_mrcr("Ptxet eht", "Pthe text", "P") < 0.5


@given(TEXT, TEXT, TEXT)
def test_the_grader_agrees_with_the_rule_written_out(response: str, body: str, prefix: str) -> None:
    for tried in (response, prefix + response):
        assert grade_mrcr(tried, prefix + body, prefix) == pytest.approx(
            published_rule(tried, prefix + body, prefix)
        )


@given(TEXT, TEXT)
def test_the_reference_itself_scores_1(body: str, prefix: str) -> None:
    assert grade_mrcr(prefix + body, prefix + body, prefix) == 1.0


@given(TEXT, TEXT, TEXT.filter(bool))
def test_without_the_prefix_nothing_scores(response: str, body: str, prefix: str) -> None:
    assert response.startswith(prefix) or grade_mrcr(response, prefix + body, prefix) == 0.0


def test_long_texts_are_compared_with_the_matchers_junk_heuristic_as_published() -> None:
    answer = "ab" * 150 + "c"
    assert (
        grade_mrcr("P" + "ba" * 150, "P" + answer, "P") == SequenceMatcher(None, "ba" * 150, answer).ratio()
    )
