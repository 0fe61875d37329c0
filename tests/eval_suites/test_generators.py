"""Laws of the generated problems: the published formats, answers that are right, streams that never meet."""

import json
import re
import subprocess
import sys
from difflib import SequenceMatcher

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eval_suites import aime_generator, mrcr_generator

MRCR_FIELDS = {
    "prompt", "answer", "random_string_to_prepend", "n_needles", "desired_msg_index", "total_messages", "n_chars",
}  # fmt: skip


def mrcr_rows(count=20, **options):
    return list(
        mrcr_generator.generate_rows(**{"seed": 1, "num_bytes": 1024, "needles": 2} | options, count=count)
    )


def texts_of(rows):
    return {m["content"] for row in rows for m in json.loads(row["prompt"]) if m["role"] == "assistant"}


@given(seed=st.integers(0, 999), needles=st.sampled_from([2, 4, 8]), num_bytes=st.integers(900, 6000))
def test_the_answer_is_the_prefix_and_the_text_that_the_question_names(seed, needles, num_bytes):
    (row,) = mrcr_rows(1, seed=seed, needles=needles, num_bytes=num_bytes)
    messages, prefix = json.loads(row["prompt"]), row["random_string_to_prepend"]
    asked = re.fullmatch(rf"Put {prefix} before the (\d)\w\w (.*)\. Nothing else\.", messages[-1]["content"])
    requested = [i for i, m in enumerate(messages[:-1]) if m["content"] == f"Write: {asked[2]}."]
    place = requested[int(asked[1]) - 1] + 1
    assert (len(requested), place) == (needles, row["desired_msg_index"])
    assert row["answer"] == prefix + messages[place]["content"]


@given(seed=st.integers(0, 999), num_bytes=st.integers(400, 6000))
def test_a_prompt_fills_its_bytes_but_for_less_than_a_turn_and_counts_its_messages(seed, num_bytes):
    (row,) = mrcr_rows(1, seed=seed, num_bytes=num_bytes)
    messages = json.loads(row["prompt"])
    assert row.keys() == MRCR_FIELDS
    assert num_bytes - 110 < row["n_chars"] == sum(len(m["content"].encode()) for m in messages) <= num_bytes
    assert row["total_messages"] == len(messages)
    assert [m["role"] for m in messages] == ["user", "assistant"] * (len(messages) // 2) + ["user"]


def test_distractors_share_the_genre_or_the_topic_of_the_needles():
    for row in mrcr_rows():
        genre, topic = re.search(
            r"(\w+) on (\w+)\. Nothing", json.loads(row["prompt"])[-1]["content"]
        ).groups()
        kinds = {text.split(":")[0].partition(" on ")[::2] for text in texts_of([row])}
        assert all((kind[0] == genre) or (kind[1] == topic) for kind in kinds)
        assert {kind[0] == genre for kind in kinds} == {kind[1] == topic for kind in kinds} == {True, False}


def test_the_wrong_needle_is_far_from_the_answer():
    ratios = []
    for row in mrcr_rows(100):
        wanted = row["answer"].removeprefix(row["random_string_to_prepend"])
        others = [
            text for text in texts_of([row]) if text != wanted and text.split(":")[0] == wanted.split(":")[0]
        ]
        ratios += [SequenceMatcher(None, other, wanted).ratio() for other in others]
    assert len(ratios) == 100
    assert sum(ratios) / len(ratios) < 0.7


def test_no_text_and_no_prefix_of_one_stream_is_in_the_other():
    evaluation, training = mrcr_rows(300), mrcr_rows(300, stream="training")
    assert not texts_of(evaluation) & texts_of(training)
    prefixes = [{row["random_string_to_prepend"] for row in rows} for rows in (evaluation, training)]
    assert not prefixes[0] & prefixes[1]


def test_too_little_room_for_the_needles_is_said():
    with pytest.raises(ValueError, match="num_bytes: got 200, which does not hold 8 needles"):
        mrcr_rows(num_bytes=200, needles=8)


def test_of_a_chat_to_learn_from_the_answers_alone_have_weight():
    chats = list(mrcr_generator.generate_chats(seed=1, count=20, num_bytes=600, needles=2, questions=3))
    for chat in chats:
        learned = [i for i, m in enumerate(chat["messages"]) if m.get("weight") == 1]
        assert learned == [len(chat["messages"]) - 5, len(chat["messages"]) - 3, len(chat["messages"]) - 1]
        texts = {m["content"] for m in chat["messages"] if m.get("weight") == 0}
        assert all(chat["messages"][i]["content"][10:] in texts for i in learned)


def solved(problem):
    """The answer, worked out from the words alone."""
    numbers = [int(n) for n in re.findall(r"\d+", problem)]
    if stock := re.fullmatch(r"In store: (.*)\. How many (\w+)\?", problem):
        return {n: int(v) for n, v in (item.split() for item in stock[1].split(", "))}[stock[2]]
    if row := re.fullmatch(r"In the row (.*), how often is (\w+)\?", problem):
        return row[1].split().count(row[2])
    if "largest" in problem or "smallest" in problem:
        return max(numbers) if "largest" in problem else min(numbers)
    if problem.startswith("Start from"):
        signs = [1 if word == "add" else -1 for word in re.findall("add|take", problem)]
        return numbers[0] + sum(sign * n for sign, n in zip(signs, numbers[1:], strict=True))
    if "remains" in problem:
        return numbers[0] * numbers[1] % numbers[2]
    return numbers[0] - numbers[1] if "left" in problem else sum(numbers)


@pytest.mark.parametrize("kind", aime_generator.KINDS)
@given(seed=st.integers(0, 999))
def test_the_answer_is_what_the_words_ask_for_and_from_0_to_999(kind, seed):
    (row,) = aime_generator.generate_rows(seed=seed, count=1, kinds=[kind])
    assert row == {"id": f"{seed}-0-{kind}", "problem": row["problem"], "answer": solved(row["problem"])}
    assert 0 <= row["answer"] <= 999


def numbers_of(kind, problem):
    """What is left of a problem without its made-up words."""
    if kind == "count":
        *row, asked = re.findall(r"\w+", problem.removeprefix("In the row").replace("how often is", ""))
        return tuple(word == asked for word in row)
    asked = re.findall(r"\w+", problem)[-1]
    kept = {asked: "*", "largest": "largest", "smallest": "smallest"}
    return re.sub(r"\b[a-z]{4,}\b", lambda word: kept.get(word[0], ""), problem)


@pytest.mark.parametrize("kind", aime_generator.KINDS)
def test_the_numbers_of_one_stream_are_not_in_the_other(kind):
    numbers = []
    for stream in ("training", "evaluation"):
        rows = aime_generator.generate_rows(seed=1, count=1000, kinds=[kind], stream=stream)
        numbers.append({numbers_of(kind, row["problem"]) for row in rows})
    assert not numbers[0] & numbers[1]


@pytest.mark.parametrize(
    ("module", "options"),
    [("mrcr_generator", ["--num-bytes", "500"]), ("aime_generator", ["--kinds", "sum"])],
)
def test_the_command_writes_the_same_rows_each_time(module, options):
    command = [sys.executable, "-m", f"eval_suites.{module}", "--seed", "3", "--count", "2", *options]
    first, again = (
        subprocess.run(command, capture_output=True, text=True, check=True).stdout for _ in range(2)
    )
    assert first == again
    assert len([json.loads(line) for line in first.splitlines()]) == 2
