"""Traces of agent-like conversations: a format of our own, a generator, and a converter for public ones.

A trace is JSON lines, one conversation each: what it shares with others, its turns, and how long a tool takes between
them. Texts are not part of it: lengths are, so that a trace of private conversations can be published.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from harness.model.errors import ConfigurationError
from harness.model.record import Record, render_canonical_json
from perf_sweeps.cell import Cell, Workload


class Turn(Record):
    """One request of a conversation: what is added to its context, and the answer's length."""

    added_tokens: int = Field(ge=1)
    output_tokens: int = Field(ge=1)
    pause_s: float = Field(ge=0, default=0.0)
    """Between the answer before it (or the conversation's start) and this request: a tool, or a person."""


class Conversation(Record):
    """Turns one after the other; each sends all that came before it, answers included."""

    id: str = Field(min_length=1)
    start_s: float = Field(ge=0, default=0.0)
    """Since the start of the replay."""
    prefix: str = ""
    """Conversations of one prefix begin with the same tokens; empty: with tokens of its own."""
    prefix_tokens: int = Field(ge=0, default=0)
    parent: str = ""
    """The conversation that started this one and goes on beside it; empty for none."""
    turns: tuple[Turn, ...] = Field(min_length=1)

    @property
    def context_tokens(self) -> int:
        """Tokens at the end of the last turn."""
        return self.prefix_tokens + sum(t.added_tokens + t.output_tokens for t in self.turns)


class AgentMix(Record):
    """What the generator makes."""

    num_conversations: int = Field(ge=1, default=4)
    num_turns: int = Field(ge=1, default=8)
    prefix_tokens: int = Field(ge=0, default=8192)
    """Shared by all: a system prompt and the descriptions of tools."""
    mean_added_tokens: int = Field(ge=1, default=600)
    """Results of tools; geometric, as are the answers' lengths."""
    mean_output_tokens: int = Field(ge=1, default=250)
    mean_pause_s: float = Field(ge=0, default=1.5)
    """Exponential."""
    sub_conversation_share: float = Field(ge=0, le=1, default=0.25)
    """Of the turns, how many start a conversation beside theirs, of a quarter of the turns."""


def generate_trace(mix: AgentMix, *, seed: int | str) -> tuple[Conversation, ...]:
    """Conversations that share a prefix, with tool pauses and parallel sub-conversations; the same for one seed."""
    rng = random.Random(seed)
    found: list[Conversation] = []
    for number in range(mix.num_conversations):
        turns = tuple(_turn(rng, mix) for _ in range(mix.num_turns))
        start_s = rng.expovariate(1 / mix.mean_pause_s) if mix.mean_pause_s else 0.0
        head = {"prefix": "shared", "prefix_tokens": mix.prefix_tokens} if mix.prefix_tokens else {}
        main = Conversation.model_validate({"id": f"c{number}", "start_s": start_s, "turns": turns, **head})
        found.append(main)
        elapsed_s = start_s
        for index, turn in enumerate(turns):
            elapsed_s += turn.pause_s
            if rng.random() < mix.sub_conversation_share:
                few = tuple(_turn(rng, mix) for _ in range(max(1, mix.num_turns // 4)))
                found.append(
                    main.model_copy(
                        update={
                            "id": f"c{number}.{index}",
                            "start_s": elapsed_s,
                            "parent": main.id,
                            "turns": few,
                        }
                    )
                )
    return tuple(found)


def _turn(rng: random.Random, mix: AgentMix) -> Turn:
    pause_s = rng.expovariate(1 / mix.mean_pause_s) if mix.mean_pause_s else 0.0
    added, output = (
        1 + int(rng.expovariate(1 / mean)) for mean in (mix.mean_added_tokens, mix.mean_output_tokens)
    )
    return Turn(added_tokens=added, output_tokens=output, pause_s=round(pause_s, 3))


def fit_trace(trace: Iterable[Conversation], max_context: int) -> tuple[Conversation, ...]:
    """The conversations with as many of their first turns as fit into a context; none of them with no turn left."""
    fitted = []
    for one in trace:
        length, turns = one.prefix_tokens, []
        for turn in one.turns:
            length += turn.added_tokens + turn.output_tokens
            if length > max_context:
                break
            turns.append(turn)
        if turns:
            fitted.append(one.model_copy(update={"turns": tuple(turns)}))
    return tuple(fitted)


def trace_cell(trace: Sequence[Conversation], concurrency: int) -> Cell:
    """The cell that replays a trace: its longest answer and its longest context are the cell's."""
    output_len = max(turn.output_tokens for one in trace for turn in one.turns)
    context = max(one.context_tokens for one in trace)
    return Cell(
        workload=Workload.AGENT,
        batch=concurrency,
        input_len=max(1, context - output_len),
        output_len=output_len,
    )


def read_trace(path: Path) -> tuple[Conversation, ...]:
    """The conversations of a file in our format, or of one with a request a line; raises `ConfigurationError`."""
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise _bad(str(error)) from error
    return convert_requests(text) if '"hash_ids"' in text.partition("\n")[0] else parse_trace(text)


def render_trace(conversations: Iterable[Conversation]) -> bytes:
    """One canonical JSON object a line."""
    return b"".join(render_canonical_json(c) + b"\n" for c in conversations)


def parse_trace(text: str) -> tuple[Conversation, ...]:
    """The conversations of a trace in our format.

    Raises:
        ConfigurationError: A line is not a conversation, an id occurs twice, a parent is not there, prefixes of one
            name differ in length, or there is no conversation.
    """
    found: dict[str, Conversation] = {}
    lengths: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            one = Conversation.model_validate_json(line)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"])) or "the line"
            raise _bad(f"line {number}: {where}: {first['msg']}") from error
        if one.id in found:
            raise _bad(f"line {number}: a second conversation {one.id!r}")
        if one.prefix and lengths.setdefault(one.prefix, one.prefix_tokens) != one.prefix_tokens:
            raise _bad(f"line {number}: the prefix {one.prefix!r} has another length than before")
        found[one.id] = one
    if not found:
        raise _bad("it holds no conversation")
    orphans = [c.id for c in found.values() if c.parent and c.parent not in found]
    if orphans:
        raise _bad(f"{orphans[0]!r}: its parent is not in the trace")
    return tuple(found.values())


def convert_requests(text: str, *, block_tokens: int = 512) -> tuple[Conversation, ...]:
    """Conversations from a trace of single requests, as Mooncake published theirs.

    Each line has `timestamp` (ms), `input_length`, `output_length` and `hash_ids`, one id for each block of the prompt
    that could be reused. A request goes on a conversation when its ids begin with all whole blocks of that one's last
    prompt, and comes after it. What the format does not say is not made up: the pause is the time between arrivals, the
    answer's own time included.

    Raises:
        ConfigurationError: A line lacks one of the fields.
    """
    open_: dict[int, list[tuple[tuple[int, ...], int]]] = {}
    turns: dict[int, list[Turn]] = {}
    starts: dict[int, float] = {}
    last_s: dict[int, float] = {}
    for number, line in enumerate(filter(str.strip, text.splitlines()), start=1):
        at_s, length, output, ids = _request(line, number)
        whole = ids[: length // block_tokens]
        match = _continued(open_, ids, length)
        added = length - open_[match][-1][1] if match is not None else length
        key = match if match is not None else number
        starts.setdefault(key, at_s)
        pause_s = at_s - last_s.get(key, at_s)
        turns.setdefault(key, []).append(
            Turn(added_tokens=max(1, added), output_tokens=output, pause_s=max(0.0, pause_s))
        )
        open_.setdefault(key, []).append((whole, length + output))
        last_s[key] = at_s
    if not turns:
        raise _bad("it holds no request")
    first_s = min(starts.values())
    return tuple(
        Conversation(id=f"r{key}", start_s=starts[key] - first_s, turns=tuple(turns[key])) for key in turns
    )


def _continued(
    open_: Mapping[int, list[tuple[tuple[int, ...], int]]], ids: tuple[int, ...], length: int
) -> int | None:
    """The conversation with the longest last prompt that the ids begin with, and that is shorter."""
    best: tuple[int, int] | None = None
    for key, prompts in open_.items():
        whole, so_far = prompts[-1]
        if whole and ids[: len(whole)] == whole and so_far < length and (best is None or so_far > best[0]):
            best = so_far, key
    return best[1] if best else None


def _request(line: str, number: int) -> tuple[float, int, int, tuple[int, ...]]:
    try:
        row: dict[str, Any] = json.loads(line)
        ids = tuple(int(i) for i in row["hash_ids"])
        return row["timestamp"] / 1000, int(row["input_length"]), max(1, int(row["output_length"])), ids
    except (ValueError, KeyError, TypeError) as error:
        text = f"line {number}: expected timestamp, input_length, output_length and hash_ids"
        raise _bad(text) from error


def _bad(message: str) -> ConfigurationError:
    return ConfigurationError(
        "agent-trace", f"The trace cannot be used: {message}.", "See docs/performance.md."
    )
