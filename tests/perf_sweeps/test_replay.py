"""Laws of agent-like traces and their replay: contexts grow as they would, and no turn is lost unseen."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from harness.model.completion import CompletionRequest
from harness.model.errors import ConfigurationError
from harness.model.evaluation import SuiteItem
from perf_sweeps.agent_trace import (
    AgentMix,
    Conversation,
    Turn,
    convert_requests,
    generate_trace,
    parse_trace,
    render_trace,
)
from perf_sweeps.replay import ReplayResult, replay, timelines


@dataclass
class Server:
    """Answers with token 7, 10 ms apart; some requests fail or end early."""

    fails: str = ""
    short: str = ""
    asked: dict[str, tuple[int, ...]] = field(default_factory=dict)

    def complete_many(
        self, requests: Sequence[CompletionRequest], *, concurrency: int, suite: str, together: bool = False
    ) -> tuple[SuiteItem, ...]:
        return tuple(self.answer(r, concurrency) for r in requests)

    def answer(self, request: CompletionRequest, concurrency: int) -> SuiteItem:
        self.asked[request.item] = request.prompt_token_ids
        number = 0 if request.item == self.fails else 1 if request.item == self.short else request.max_tokens
        return SuiteItem(
            item=request.item,
            request_id="r",
            concurrency=concurrency,
            num_prompt_tokens=len(request.prompt_token_ids),
            token_ids=(7,) * number,
            text="",
            finish_reason="length",
            num_completion_tokens=number,
            token_times_ms=tuple(50.0 + 10 * i for i in range(number)),
            error="HTTP 500" if number == 0 else "",
        )


def tokens(name: str, count: int) -> tuple[int, ...]:
    return (len(name),) * count


def conversation(name: str = "a", num_turns: int = 3, **changed: object) -> Conversation:
    turns = (Turn(added_tokens=4, output_tokens=3),) * num_turns
    return Conversation.model_validate({"id": name, "turns": turns} | changed)


def replayed(server: Server, *trace: Conversation) -> ReplayResult:
    return replay(trace, server, tokens, concurrency=2, sleep=lambda _: None)


def test_each_turn_sends_all_that_came_before_it_with_the_answers_that_the_server_gave() -> None:
    server = Server()
    replayed(server, conversation(prefix="p", prefix_tokens=2))
    first, second = server.asked["a/0"], server.asked["a/1"]
    assert (len(first), len(second)) == (6, 13)
    assert second[:9] == (*first, 7, 7, 7)


def test_conversations_of_one_prefix_begin_with_the_same_tokens() -> None:
    server = Server()
    replayed(server, *(conversation(n, prefix="p", prefix_tokens=5) for n in ("a", "longer")))
    assert server.asked["a/0"][:5] == server.asked["longer/0"][:5]
    assert server.asked["a/0"] != server.asked["longer/0"]


def test_a_turn_without_an_answer_drops_the_turns_after_it_and_no_other_conversation() -> None:
    result = replayed(Server(fails="a/1"), conversation("a"), conversation("b"))
    assert (result.num_turns, result.num_dropped) == (6, 2)


def test_an_answer_that_is_cut_short_is_counted() -> None:
    assert replayed(Server(short="a/2"), conversation()).num_truncated == 1


def test_interactivity_is_said_only_where_the_turns_bear_it() -> None:
    result = replayed(Server(), conversation(num_turns=12))
    assert (result.interactivity(0.5), result.interactivity(0.9)) == (100.0, None)


def test_every_conversation_has_a_timeline_of_its_turns() -> None:
    lines = timelines(replayed(Server(), conversation("a"), conversation("b", 2)))
    assert {name: [t.turn for t in turns] for name, turns in lines.items()} == {"a": [0, 1, 2], "b": [0, 1]}


def test_pauses_of_tools_are_waited_for() -> None:
    waited: list[float] = []
    turns = (Turn(added_tokens=1, output_tokens=1, pause_s=2.5),)
    replay([conversation(turns=turns)], Server(), tokens, concurrency=1, sleep=waited.append)
    assert 2.5 in waited


def test_a_trace_survives_being_written_and_read() -> None:
    trace = generate_trace(AgentMix(), seed=3)
    assert parse_trace(render_trace(trace).decode()) == trace


def test_the_generator_gives_the_same_for_one_seed_and_another_for_another() -> None:
    assert generate_trace(AgentMix(), seed=1) == generate_trace(AgentMix(), seed=1)
    assert generate_trace(AgentMix(), seed=1) != generate_trace(AgentMix(), seed=2)


def test_sub_conversations_begin_while_their_parent_goes_on() -> None:
    trace = generate_trace(AgentMix(sub_conversation_share=1), seed=0)
    starts = {c.id: c.start_s for c in trace}
    children = [c for c in trace if c.parent]
    assert len(children) == 4 * 8
    assert all(c.start_s >= starts[c.parent] for c in children)


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ([], "no conversation"),
        ([{"id": "a"}], "turns"),
        ([{"id": "a", "turns": [{"added_tokens": 0, "output_tokens": 1}]}], "added_tokens"),
        ([conversation().model_dump(mode="json")] * 2, "second conversation"),
        ([conversation(parent="z").model_dump(mode="json")], "parent"),
        (
            [
                conversation(n, prefix="p", prefix_tokens=k).model_dump(mode="json")
                for n, k in (("a", 1), ("b", 2))
            ],
            "another length",
        ),
    ],
)
def test_a_trace_that_cannot_be_replayed_is_refused_with_its_line(lines: list[object], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        parse_trace("\n".join(json.dumps(line) for line in lines))


def public(at: int, length: int, ids: list[int], output: int = 10) -> str:
    row = {"timestamp": at, "input_length": length, "output_length": output, "hash_ids": ids}
    return json.dumps(row)


def test_requests_that_go_on_from_one_prompt_become_the_turns_of_one_conversation() -> None:
    text = "\n".join(
        [public(1000, 1100, [1, 2, 3]), public(1500, 1600, [9, 8, 7, 6]), public(4000, 1700, [1, 2, 4, 5])]
    )
    first, other = convert_requests(text)
    assert [(t.added_tokens, t.output_tokens, t.pause_s) for t in first.turns] == [
        (1100, 10, 0.0),
        (590, 10, 3.0),
    ]
    assert (other.start_s, len(other.turns)) == (0.5, 1)


@pytest.mark.parametrize("text", ["", "[]", '{"timestamp": 1}', public(0, 1, []).replace("[]", "null")])
def test_a_public_trace_that_lacks_a_field_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError):
        convert_requests(text)
