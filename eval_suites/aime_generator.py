"""Seeded problems with an integer answer from 0 to 999, in the format of the published AIME data sets.

Kinds range from looking a number up to sums of many terms and remainders of products. Whether a row belongs to
training or to evaluation is decided by its numbers: the same numbers never occur in both streams.

Usage: `python -m eval_suites.aime_generator --seed 1 --count 100` writes JSON lines of `id`, `problem`, `answer`;
`--stream training --questions 8` writes chats of several problems with their answers to learn from.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, get_args

from eval_suites.made_up import Stream, made_up_word, open_stream

LARGEST_ANSWER = 999
_EVALUATION_SHARE = 4
"""One in so many number tuples is for evaluation."""

Draft = tuple[tuple[int, ...], int, str]
"""The numbers, the answer and the problem."""


def _look_up(rng: random.Random) -> Draft:
    names = _words(rng, rng.randint(2, 5))
    numbers = tuple(rng.randint(0, LARGEST_ANSWER) for _ in names)
    asked = rng.randrange(len(names))
    stock = ", ".join(f"{name} {number}" for name, number in zip(names, numbers, strict=True))
    return (*numbers, asked), numbers[asked], f"In store: {stock}. How many {names[asked]}?"


def _count(rng: random.Random) -> Draft:
    one, other = _words(rng, 2)
    length = rng.randint(2, 6)
    places = tuple(rng.randint(0, 1) for _ in range(length))
    row = " ".join(one if place else other for place in places)
    return places, sum(places), f"In the row {row}, how often is {one}?"


def _largest(rng: random.Random) -> Draft:
    numbers = tuple(rng.sample(range(10, 100), 3))
    listed = ", ".join(map(str, numbers))
    if rng.random() < 0.5:
        return (*numbers, 1), max(numbers), f"Which is the largest of {listed}?"
    return (*numbers, 0), min(numbers), f"Which is the smallest of {listed}?"


def _step(rng: random.Random) -> Draft:
    start, more = rng.randint(0, 990), rng.randint(1, 9)
    thing = made_up_word(rng, 2)
    return (start, more), start + more, f"I had {start} {thing} and got {more} more. How many now?"


def _sum(rng: random.Random) -> Draft:
    a, b = rng.randint(0, 49), rng.randint(0, 49)
    thing = made_up_word(rng, 2)
    return (a, b), a + b, f"One box holds {a} {thing}, one holds {b}. How many in all?"


def _difference(rng: random.Random) -> Draft:
    a, b = sorted((rng.randint(0, 49), rng.randint(0, 49)), reverse=True)
    thing = made_up_word(rng, 2)
    return (a, b), a - b, f"Of {a} {thing}, {b} are sold. How many are left?"


def _chain(rng: random.Random) -> Draft:
    total = start = rng.randint(100, 500)
    steps = []
    for _ in range(rng.randint(3, 5)):
        step = rng.choice(
            [s for s in (rng.randint(1, 99), -rng.randint(1, 99)) if 0 <= total + s <= LARGEST_ANSWER]
        )
        steps.append(step)
        total += step
    listed = ", then ".join(f"{'add' if step > 0 else 'take'} {abs(step)}" for step in steps)
    return (start, *steps), total, f"Start from {start}, {listed}. What is it?"


def _remainder(rng: random.Random) -> Draft:
    a, b, modulus = rng.randint(11, 99), rng.randint(11, 99), rng.randint(3, 999)
    return (a, b, modulus), a * b % modulus, f"What remains of {a} times {b} when divided by {modulus}?"


KINDS: dict[str, Callable[[random.Random], Draft]] = {
    "look_up": _look_up,
    "count": _count,
    "largest": _largest,
    "step": _step,
    "sum": _sum,
    "difference": _difference,
    "chain": _chain,
    "remainder": _remainder,
}
"""The kinds of problems, easiest first."""


def generate_rows(
    *, seed: int, count: int, kinds: Sequence[str] = tuple(KINDS), stream: Stream = "evaluation"
) -> Iterator[dict[str, str | int]]:
    """Yields rows of `id` (seed, number and kind), `problem` and `answer`; the kinds take turns.

    Args:
        seed: The same arguments give the same rows.
        count: How many.
        kinds: Which of `KINDS`.
        stream: No tuple of numbers of a kind occurs in both streams.
    """
    rng = open_stream("aime", stream, seed)
    for index in range(count):
        kind = kinds[index % len(kinds)]
        answer, problem = _draw(rng, kind, stream)
        yield {"id": f"{seed}-{index}-{kind}", "problem": problem, "answer": answer}


def generate_chats(
    *, seed: int, count: int, questions: int, kinds: Sequence[str] = tuple(KINDS), stream: Stream = "training"
) -> Iterator[dict[str, Any]]:
    """Yields chats of `questions` unrelated problems, each with its answer, to learn from."""
    rng = open_stream("aime-chat", stream, seed)
    for _ in range(count):
        messages = []
        for _ in range(questions):
            answer, problem = _draw(rng, rng.choice(kinds), stream)
            messages += [{"role": "user", "content": problem}, {"role": "assistant", "content": str(answer)}]
        yield {"messages": messages}


def _draw(rng: random.Random, kind: str, stream: Stream) -> tuple[int, str]:
    while True:
        numbers, answer, problem = KINDS[kind](rng)
        is_for_evaluation = zlib.crc32(repr((kind, numbers)).encode()) % _EVALUATION_SHARE == 0
        if is_for_evaluation == (stream == "evaluation"):
            return answer, problem


def _words(rng: random.Random, count: int) -> list[str]:
    words: list[str] = []
    while len(words) < count:
        word = made_up_word(rng, 2)
        if word not in words:
            words.append(word)
    return words


def main() -> None:
    """Parses the command line and writes one JSON document a line."""
    parser = argparse.ArgumentParser(prog="python -m eval_suites.aime_generator", description=__doc__)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--count", type=int, default=100, help="rows (default: 100)")
    parser.add_argument("--kinds", nargs="+", choices=tuple(KINDS), default=tuple(KINDS), help="default: all")
    parser.add_argument("--stream", choices=get_args(Stream), default="evaluation")
    parser.add_argument(
        "--questions", type=int, default=0, help="write chats of so many problems instead of rows"
    )
    options = vars(parser.parse_args())
    questions = options.pop("questions")
    rows = generate_chats(**options, questions=questions) if questions else generate_rows(**options)
    for row in rows:
        sys.stdout.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
