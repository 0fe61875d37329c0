"""Verdicts of a run among peers: everything in order passes, and each single fault of one process does not."""

import re

import pytest

from examples.peers.facts import Answer
from examples.peers.plan import GPUS
from examples.peers.verdict import Question, decide_part
from harness.model.words import Outcome
from tests.examples.peers.good import answers_to, facts_of, question_of, questions


def decide_with(part, process, index, **changes):
    """The outcome when one process answers one case otherwise."""
    question = question_of(part)
    answers = answers_to(question)
    facts = list(answers[process].facts)
    facts[index] = facts[index].model_copy(update=changes)
    answers[process] = answers[process].model_copy(update={"facts": tuple(facts)})
    return decide_part(question, answers)


@pytest.mark.parametrize("num_gpus", GPUS)
def test_a_run_in_order_passes_in_every_part(num_gpus):
    assert [decide_part(q, answers_to(q)) for q in questions(num_gpus)] == [(Outcome.PASS, ())] * len(
        questions(num_gpus)
    )


@pytest.mark.parametrize("part", ["payloads", "iterations", "delays"])
@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"wrong_elements": 1}, "1 elements are not the sum's"),
        ({"full_words": 1}, "1 words of its boxes are not empty"),
        ({"error_words": (2,)}, r"error words \[2\]"),
        ({"error_words": ()}, "0 error words"),
        ({"digest": "b"}, "bits differ"),
        ({"ran": 0}, "no exchange ran"),
        ({"asked": 7, "ran": 5}, "numbers of exchanges differ"),
    ],
)
def test_a_fault_of_one_process_in_one_case_fails_an_exchange(part, changes, why):
    outcome, reasons = decide_with(part, 1, 2, **changes)
    assert outcome is Outcome.FAIL
    assert any(re.search(why, reason) for reason in reasons)


def test_fewer_exchanges_than_asked_for_are_not_enough_to_pass_and_no_failure():
    question = question_of("iterations")
    answers = [
        answer.model_copy(
            update={"facts": tuple(facts.model_copy(update={"ran": 999}) for facts in answer.facts)}
        )
        for answer in answers_to(question)
    ]
    outcome, reasons = decide_part(question, answers)
    assert outcome is Outcome.INCONCLUSIVE and "process 0 ran 999 of 1000 exchanges" in reasons[0]


def test_a_delay_that_the_other_process_did_not_wait_for_fails():
    outcome, reasons = decide_with("delays", 1, 0, elapsed_ms=3.9)
    assert (outcome, reasons) == (
        Outcome.FAIL,
        ("one-shot, process 0 late to publish: process 1 waited 3.900 ms, at least 4.000 ms were wanted",),
    )


def test_a_delay_that_took_no_time_fails():
    question = question_of("delays")
    answers = [
        answer.model_copy(
            update={"facts": tuple(facts.model_copy(update={"elapsed_ms": 0.0}) for facts in answer.facts)}
        )
        for answer in answers_to(question)
    ]
    assert decide_part(question, answers)[0] is Outcome.FAIL


@pytest.mark.parametrize("changes", [{"elapsed_ms": None}, {"late_process": None}, {"late_process": 1}])
def test_a_delay_that_is_not_told_fails(changes):
    assert decide_with("delays", 1, 0, **changes)[0] is Outcome.FAIL


@pytest.mark.parametrize(
    "changes",
    [
        {"error_words": (2,)},
        {"error_words": (0,)},
        {"error_words": ()},
        {"rows_are_nan": False},
        {"seconds": 11.0},
        {"wrong_elements_after": 1},
        {"full_words_after": 1},
    ],
)
def test_an_absent_rank_that_is_not_named_or_not_got_over_fails(changes):
    assert decide_with("absence", 0, 0, **changes)[0] is Outcome.FAIL


@pytest.mark.parametrize("part", ["killed", "stalled"])
@pytest.mark.parametrize(
    "changes",
    [
        {"error_words": (0,)},
        {"error_words": (1,)},
        {"error_words": ()},
        {"rows_are_nan": False},
        {"stopped_s": 20.1},
        {"stopped_s": -0.1},
        {"exchanges": 0},
    ],
)
def test_a_process_that_stops_late_or_without_the_name_of_the_lost_one_fails(part, changes):
    assert decide_with(part, 0, 0, **changes)[0] is Outcome.FAIL


@pytest.mark.parametrize(("words", "outcome"), [((3, 4), Outcome.PASS), ((3, 0), Outcome.FAIL)])
def test_every_rank_of_a_process_must_have_given_up(words, outcome):
    question = Question(part="killed", num_processes=2, num_ranks=4)
    answers = answers_to(question)
    facts = answers[0].facts[0].model_copy(update={"error_words": words})
    answers[0] = answers[0].model_copy(update={"facts": (facts,)})
    assert decide_part(question, answers)[0] is outcome


def test_of_several_that_stopped_one_may_name_another_that_stopped_but_not_itself_and_not_all_may():
    question = question_of("killed", 4)
    answers = answers_to(question)

    def name(process, rank):
        facts = answers[process].facts[0].model_copy(update={"error_words": (1 + rank,)})
        answers[process] = answers[process].model_copy(update={"facts": (facts,)})
        return decide_part(question, answers)[0]

    assert [name(0, 1), name(0, 0), name(0, 1), name(1, 0), name(2, 0)] == [
        Outcome.PASS,
        Outcome.FAIL,
        *[Outcome.PASS] * 2,
        Outcome.FAIL,
    ]


@pytest.mark.parametrize(
    "changes",
    [
        {"samples_us": {"one-shot": (1.0,) * 3, "two-shot": (1.0,) * 3}},
        {"samples_us": dict.fromkeys(("one-shot", "two-shot", "nccl"), (1.0, 1.0))},
        {"samples_us": dict.fromkeys(("one-shot", "two-shot", "nccl"), (1.0, 0.0, 1.0))},
        {"error_words": (1,)},
        {"full_words": 1},
        {"wrong_elements": 1},
        {"baseline_error": 0.5},
    ],
)
def test_times_of_something_else_fail(changes):
    assert decide_with("times", 1, 3, **changes)[0] is Outcome.FAIL


@pytest.mark.parametrize("question", questions(), ids=lambda q: f"{q.part}-{q.num_ranks}")
def test_a_process_that_did_not_answer_fails_every_part_and_its_trouble_is_told(question):
    answers = answers_to(question)
    answers[0] = Answer(process=0, facts=(), trouble="it died of SIGSEGV")
    outcome, reasons = decide_part(question, answers)
    assert outcome is Outcome.FAIL and "it died of SIGSEGV" in reasons[0]


def test_a_process_of_which_there_is_no_answer_at_all_fails():
    question = question_of("payloads")
    assert decide_part(question, answers_to(question)[:1])[0] is Outcome.FAIL


def test_a_case_that_one_process_left_out_fails_and_is_named():
    question = question_of("payloads")
    answers = answers_to(question)
    answers[1] = answers[1].model_copy(update={"facts": answers[1].facts[:-1]})
    assert "two-shot, block write, one rank NaN" in decide_part(question, answers)[1][0]


def test_facts_of_another_kind_fail():
    question = question_of("killed")
    facts = facts_of(question_of("payloads"), 0)[0].model_copy(update={"case": "process 1 killed"})
    answers = [Answer(process=0, facts=(facts,), trouble=None)]
    assert "another kind" in decide_part(question, answers)[1][0]
