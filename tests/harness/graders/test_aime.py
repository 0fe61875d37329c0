"""What an answer says is found where it is said; what is no integer, or is cut off, is never right by luck."""

from __future__ import annotations

import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from harness.graders.aime import extract_integer, grade_aime

SAYS = {
    # A box decides, and the last one does.
    r"\boxed{42}": 42,
    r"So we get $\boxed{042}$.": 42,
    r"First \boxed{1}, then \boxed{2}. That is 3 in all.": 2,
    r"\boxed{\text{42}}": 42,
    r"\boxed{\mathbf{7}}": 7,
    r"\boxed{ 12\, }": 12,
    r"\boxed{x = 12}": 12,
    r"\boxed{a = b = 12}": 12,
    r"\boxed{{12}}": 12,
    r"\boxed{(12)}": 12,
    r"\boxed{$12$}": 12,
    r"\boxed{12.}": 12,
    r"\boxed{70^\circ}": 70,
    r"\boxed{70^{\circ}}": 70,
    r"\boxed{12\%}": 12,
    r"\boxed{42\text{ apples}}": 42,
    r"\fbox{3} \boxed {8}": 8,
    r"\fboxed{9}": 9,
    r"\boxed{\boxed{5}}": 5,
    r"\boxed{000}": 0,
    r"\boxed{-5}": -5,
    "\\boxed{\u22125}": -5,
    r"\boxed{+5}": 5,
    r"\boxed{1,234}": 1234,
    r"\boxed{1{,}234}": 1234,
    r"\boxed{1\,234}": 1234,
    r"\boxed{3} and then \boxed{4": 3,
    r"\boxed{}": None,
    r"\boxed{n+1}. The answer is 42.": None,
    r"\boxed{\frac{1}{2}}": None,
    r"\boxed{84/2}": None,
    r"\boxed{42.0}": None,
    r"\boxed{4.2}": None,
    r"\boxed{12 or 13}": None,
    r"\boxed{12, 13}": None,
    r"\boxed{3 \times 10^2}": None,
    r"\boxed{1e2}": None,
    r"\boxed{a\}b} 9": None,
    # Then a stated answer.
    "The answer is 42. Check: 6 times 7 = 42, and 6 + 7 = 13.": 42,
    "The final answer is: 7": 7,
    "Final Answer: **17**\n(see step 3)": 17,
    "**Answer:** 17, as 18 is even.": 17,
    "ANSWER = 5 of 6": 5,
    "the answer would be 12, not 13": 12,
    "The answer is 4. No: the answer is 6, after 9 steps.": 6,
    r"The final answer is $\boxed{7": 7,
    "The answer is -3 or so, by 4": -3,
    "The answer is 3/4, from 12": None,
    "The answer is 4.5, from 12": None,
    "The answer is 1e5, from 12": None,
    # Then the last integer.
    "712": 712,
    "007": 7,
    "0": 0,
    "7\n": 7,
    "10 - 3 = 7": 7,
    "x = -3": -3,
    "5-3": 3,
    "12,345": 12345,
    "1,2,3": 3,
    "12,34": 34,
    "I count 5 apples at 3.5 kg": 5,
    r"of $\frac{3}{4}$ the whole": None,
    r"of 8, $\tfrac34$": 8,
    "It is 3.5": None,
    "It is 3.": 3,
    "1/2": None,
    "1 / 2": None,
    "3rd": None,
    "x2": None,
    "1e5": None,
    ".5": None,
    "1.2.3": None,
    "\u0663": None,
    "\u00bd": None,
    "none": None,
    "": None,
    "9" * 19: None,
    "9" * 5000: None,
    # What was thought is no answer.
    "<think>\\boxed{5}</think>": None,
    "<think>5</think> 6": 6,
    "<think>a</think>1</think>2": 2,
}


@pytest.mark.parametrize("response", SAYS, ids=lambda text: text[:40] or "nothing")
def test_the_integer_is_read_where_the_response_says_it(response: str) -> None:
    assert extract_integer(response) == SAYS[response]


@pytest.mark.parametrize(
    ("response", "answer", "finish_reason", "outcome"),
    [
        (r"\boxed{42}", "42", "stop", "correct"),
        (r"\boxed{042}", "42", "stop", "correct"),
        (r"\boxed{42}", "042", "stop", "correct"),
        (r"\boxed{43}", "42", "stop", "wrong"),
        (r"\boxed{-42}", "42", "stop", "wrong"),
        (r"\boxed{1042}", "42", "stop", "wrong"),
        (r"\boxed{84/2}", "42", "stop", "unparsed"),
        ("I do not know.", "42", "stop", "unparsed"),
        (r"\boxed{42}", "42", "length", "truncated"),
        ("so far 42", "42", "length", "truncated"),
        ("", "42", "length", "truncated"),
        ("", "42", "stop", "unparsed"),
    ],
)
def test_a_response_is_correct_wrong_unparsed_or_truncated(
    response: str, answer: str, finish_reason: str, outcome: str
) -> None:
    grade = grade_aime(response, answer, finish_reason)
    assert (grade.outcome, grade.score) == (outcome, float(outcome == "correct"))


@pytest.mark.parametrize("answer", ["", "1000", "-1", "4.0", " 42", "42 ", "\u0664\u0662", "forty"])
def test_a_reference_that_is_no_integer_from_0_to_999_is_refused(answer: str) -> None:
    with pytest.raises(ValueError, match="reference answer"):
        grade_aime("42", answer, "stop")


ANSWER = st.integers(0, 999)
WORDS = st.text(st.characters(categories=["Lu", "Ll", "Zs"], include_characters=".\n"), max_size=40)


@given(ANSWER, WORDS, WORDS, st.integers(0, 2))
def test_a_box_is_read_whatever_stands_around_it(value: int, before: str, after: str, zeros: int) -> None:
    assert extract_integer(f"{before}\\boxed{{{'0' * zeros}{value}}}{after}") == value


@given(st.lists(ANSWER, min_size=1, max_size=6))
def test_of_several_boxes_the_last_decides(values: list[int]) -> None:
    assert extract_integer(" and ".join(f"\\boxed{{{value}}}" for value in values)) == values[-1]


@given(ANSWER, ANSWER)
def test_of_plain_integers_the_last_decides(first: int, last: int) -> None:
    assert extract_integer(f"from {first} we get {last}.") == last


@given(ANSWER, st.integers(0, 99))
def test_decimals_and_fractions_are_no_integers(value: int, part: int) -> None:
    assert extract_integer(f"{value}.{part}") is extract_integer(f"{value}/{part}") is None


@given(st.text(alphabet="\\boxed{}0123456789,./- answeris:$^\n", max_size=80), ANSWER)
@example("\\boxed{", 0)
@example("}\\boxed{5}{", 5)
def test_no_text_breaks_the_grader_and_only_the_reference_is_correct(text: str, answer: int) -> None:
    grade = grade_aime(text, str(answer), "stop")
    assert (grade.outcome == "correct") == (grade.extracted == answer)
    assert (grade.outcome == "unparsed") == (grade.extracted is None)


@pytest.mark.parametrize(
    "piece",
    ["\\boxed{", "\\text{", "answer is ", "1 ", "-", "1,", "{", "\\boxed{\\text{", "\\frac{1}", "answer ( "],
)
def test_hostile_text_takes_time_in_proportion_to_its_length(piece: str) -> None:
    started = time.process_time()
    extract_integer(piece * (200_000 // len(piece)))
    assert time.process_time() - started < 5
