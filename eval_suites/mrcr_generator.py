"""Seeded multi-round retrieval problems in the format of the published MRCR data set, in our own words.

A chat asks for short texts of a kind (genre and topic), several of them more than once, and ends by asking for one of
those again, word for word, behind a random prefix. The texts are made-up words: they can be read, not guessed. The
fields are those of `openai/mrcr`.

Usage: `python -m eval_suites.mrcr_generator --seed 1 --count 100 --num-bytes 1024 --needles 2` writes JSON lines.
`--stream training --questions 4` writes chats to learn from instead: rows of `messages`, of which those with
`"weight": 0` are read and not learned.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, get_args

from eval_suites.made_up import Stream, made_up_word, open_stream, random_prefix

GENRES = (
    "ode", "riddle", "song", "tale", "fable", "letter", "hymn", "toast", "joke", "sketch", "rumour", "lullaby",
    "speech", "recipe", "diary", "prayer", "slogan", "verse", "legend", "report",
)  # fmt: skip
NEEDLES = (2, 4, 8)
_BODY_WORDS = (3, 6)
_ORDINALS = {1: "1st", 2: "2nd", 3: "3rd"}

Message = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One request and its text."""

    genre: str
    topic: str
    ordinal: int
    """How many texts of this kind there are up to here, this one included."""
    body: str

    @property
    def kind(self) -> str:
        """Genre and topic, as request, text and question say them."""
        return f"{self.genre} on {self.topic}"

    @property
    def text(self) -> str:
        """What the assistant wrote."""
        return f"{self.kind}: {self.body}."

    @property
    def messages(self) -> list[Message]:
        """The turn as chat messages."""
        return [
            {"role": "user", "content": f"Write: {self.kind}."},
            {"role": "assistant", "content": self.text},
        ]


def generate_rows(
    *, seed: int, count: int, num_bytes: int, needles: int, stream: Stream = "evaluation"
) -> Iterator[dict[str, Any]]:
    """Yields rows with the fields of the published data set.

    `prompt` is a JSON list of messages, `answer` the prefix and the wanted text, `desired_msg_index` the place of that
    text among the messages, `n_chars` the characters of all prompt messages.

    Args:
        seed: The same arguments give the same rows.
        count: How many.
        num_bytes: Upper bound of the bytes of all prompt messages; they are fewer by less than a turn.
        needles: Texts of the wanted kind; any number from 1, published are 2, 4 and 8.
        stream: Rows of one stream never occur in the other.

    Raises:
        ValueError: `num_bytes` does not hold the needles and the question.
    """
    rng = open_stream("mrcr", stream, seed)
    for _ in range(count):
        turns = _conversation(rng, num_bytes, needles)
        wanted = rng.choice([index for index, turn in enumerate(turns) if turn.kind == _needle_kind(turns)])
        prefix = random_prefix(rng)
        prompt = [message for turn in turns for message in turn.messages] + [_question(turns[wanted], prefix)]
        yield {
            "prompt": json.dumps(prompt),
            "answer": prefix + turns[wanted].text,
            "random_string_to_prepend": prefix,
            "n_needles": needles,
            "desired_msg_index": 2 * wanted + 1,
            "total_messages": len(prompt),
            "n_chars": sum(len(message["content"]) for message in prompt),
        }


def generate_chats(
    *, seed: int, count: int, num_bytes: int, needles: int, questions: int, stream: Stream = "training"
) -> Iterator[dict[str, Any]]:
    """Yields chats to learn from: the same conversations, with `questions` questions and their answers at the end.

    All but the answers carry weight 0. Half of the questions and more are about a needle, the others about any text.

    Args:
        seed: As for rows.
        count: As for rows.
        num_bytes: Bytes of the conversation, questions after the first and all answers not included.
        needles: As for rows.
        questions: At least 1.
        stream: As for rows.
    """
    rng = open_stream("mrcr-chat", stream, seed)
    for _ in range(count):
        turns = _conversation(rng, num_bytes, needles)
        needle_turns = [turn for turn in turns if turn.kind == _needle_kind(turns)]
        messages = [message | _weight(0) for turn in turns for message in turn.messages]
        for _ in range(questions):
            wanted = rng.choice(needle_turns if rng.random() < 0.6 else turns)
            prefix = random_prefix(rng)
            messages += [
                _question(wanted, prefix),
                {"role": "assistant", "content": prefix + wanted.text} | _weight(1),
            ]
        yield {"messages": messages}


def _weight(weight: int) -> Message:
    return {"weight": weight}


def _needle_kind(turns: list[Turn]) -> str:
    """The most frequent kind; distractors are never of that kind and never as frequent."""
    return Counter(turn.kind for turn in turns).most_common(1)[0][0]


def _question(wanted: Turn, prefix: str) -> Message:
    ordinal = _ORDINALS.get(wanted.ordinal, f"{wanted.ordinal}th")
    content = f"Put {prefix} before the {ordinal} {wanted.kind}. Nothing else."
    return {"role": "user", "content": content}


def _conversation(rng: random.Random, num_bytes: int, needles: int) -> list[Turn]:
    """Needles of one kind, scattered among distractors that share its genre or its topic, within `num_bytes`."""
    genre, topic = rng.choice(GENRES), made_up_word(rng, 2)
    drafts = [(genre, topic, _body(rng)) for _ in range(needles)]
    room = num_bytes - len(_question(_turn(drafts[0], needles), "x" * 10)["content"])
    room -= sum(_num_bytes(draft) for draft in drafts)
    if room < 0:
        raise ValueError(f"num_bytes: got {num_bytes}, which does not hold {needles} needles and a question")
    used = {(genre, topic)}
    while room >= 0:
        kind = _distractor_kind(rng, genre, topic)
        if kind not in used:
            used.add(kind)
            drafts.append((*kind, _body(rng)))
            room -= _num_bytes(drafts[-1])
    drafts.pop()
    rng.shuffle(drafts)
    seen: Counter[tuple[str, str]] = Counter()
    turns = []
    for draft in drafts:
        seen[draft[:2]] += 1
        turns.append(_turn(draft, seen[draft[:2]]))
    return turns


def _turn(draft: tuple[str, str, str], ordinal: int) -> Turn:
    return Turn(genre=draft[0], topic=draft[1], ordinal=ordinal, body=draft[2])


def _num_bytes(draft: tuple[str, str, str]) -> int:
    return sum(len(message["content"]) for message in _turn(draft, 1).messages)


def _distractor_kind(rng: random.Random, genre: str, topic: str) -> tuple[str, str]:
    """The same genre on another topic, or, one time in three, another genre on the same topic."""
    if rng.random() < 1 / 3:
        return rng.choice([other for other in GENRES if other != genre]), topic
    return genre, made_up_word(rng, 2)


def _body(rng: random.Random) -> str:
    return " ".join(made_up_word(rng, rng.choice((2, 2, 3))) for _ in range(rng.randint(*_BODY_WORDS)))


def main() -> None:
    """Parses the command line and writes one JSON document a line."""
    parser = argparse.ArgumentParser(prog="python -m eval_suites.mrcr_generator", description=__doc__)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--count", type=int, default=100, help="rows (default: 100)")
    parser.add_argument(
        "--num-bytes", type=int, default=1024, help="bytes of a prompt, at most (default: 1024)"
    )
    parser.add_argument("--needles", type=int, choices=NEEDLES, default=2)
    parser.add_argument("--stream", choices=get_args(Stream), default="evaluation")
    parser.add_argument(
        "--questions", type=int, default=0, help="write chats with so many questions instead of rows"
    )
    options = vars(parser.parse_args())
    questions = options.pop("questions")
    rows = generate_chats(**options, questions=questions) if questions else generate_rows(**options)
    for row in rows:
        sys.stdout.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
