"""The client keeps requests in flight, reads what comes back, and does not mistake a broken answer for one."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.engine.answer import parse_top_logprobs
from harness.engine.client import CompletionClient, render_body
from harness.engine.server import ArmServer
from harness.model.completion import CompletionRequest
from harness.model.errors import EngineError
from harness.model.evaluation import GIVEN_UP, SuiteItem

Fake = Callable[..., ArmServer]
Ask = Callable[..., tuple[SuiteItem, ...]]


def request(item: str = "a", **fields: object) -> CompletionRequest:
    return CompletionRequest(**({"item": item, "prompt_token_ids": (1, 2), "max_tokens": 3} | fields))  # type: ignore[arg-type]


@pytest.fixture
def ask(fake: Fake) -> Iterator[Ask]:
    """Starts a fake server in a mode and sends it requests."""
    clients: list[CompletionClient] = []

    def send(
        *requests: CompletionRequest, mode: str = "serves", concurrency: int = 1
    ) -> tuple[SuiteItem, ...]:
        server = fake(mode)
        server.start()
        clients.append(CompletionClient(server, timeout_s=20))
        return clients[-1].complete_many(requests, concurrency=concurrency, suite="greedy suite")

    yield send
    for client in clients:
        client.close()


def test_answers_come_in_the_order_of_the_requests_with_ids_of_their_own(ask: Ask) -> None:
    items = ask(*(request(f"item{i}", max_tokens=1 + i % 5) for i in range(12)), concurrency=4)
    assert [(i.item, i.num_completion_tokens) for i in items] == [(f"item{i}", 1 + i % 5) for i in range(12)]
    assert len({i.request_id for i in items}) == 12
    assert all(i.text.split()[0] == i.request_id for i in items)


@pytest.mark.parametrize(("concurrency", "num_requests", "expected"), [(1, 5, 1), (4, 12, 4), (8, 3, 3)])
def test_exactly_the_asked_number_of_requests_is_in_flight(
    ask: Ask, concurrency: int, num_requests: int, expected: int
) -> None:
    items = ask(*(request(f"item{i}", top_k=expected) for i in range(num_requests)), concurrency=concurrency)
    assert max(int(i.text.split()[1]) for i in items) == expected
    assert {i.concurrency for i in items} == {expected}


def test_a_stream_gives_every_token_its_time_of_arrival(ask: Ask) -> None:
    (item,) = ask(request(stream=True, max_tokens=5))
    times = item.token_times_ms
    assert (len(times), item.error, item.num_completion_tokens) == (5, "", 5)
    assert sorted(times) == list(times) and times[-1] - times[0] > 40


def test_a_stream_that_is_cut_off_is_an_error_in_the_item(ask: Ask) -> None:
    (item,) = ask(request(stream=True), mode="cuts-streams")
    assert item.error == "the answer ends without a finish reason and usage"


def test_token_ids_that_the_usage_does_not_count_are_an_error(ask: Ask) -> None:
    (item,) = ask(request(), mode="miscounts")
    assert item.error == "3 token ids, but the usage says 4"


def test_a_refused_request_keeps_status_and_body_and_the_others_go_on(ask: Ask) -> None:
    refused, served = ask(request(max_tokens=500), request())
    assert refused.error.startswith("HTTP 400") and "too large" in refused.error
    assert (served.error, served.token_ids) == ("", (0, 1, 2))


def test_forced_tokens_that_do_not_come_back_are_an_error(ask: Ask) -> None:
    (item,) = ask(request(force_token_ids=(7, 8, 9)), mode="forgets-to-force")
    assert item.error == "the forced tokens did not come back"


def test_forced_tokens_come_back_with_logprobs_and_what_was_not_finite_is_counted(ask: Ask) -> None:
    (item,) = ask(request(force_token_ids=(7, 8, 9), logprobs=3))
    assert item.error == ""
    assert [(t.token_ids, t.logprobs, t.num_not_finite) for t in item.top_logprobs] == [
        ((t,), (-0.5,), 2) for t in (7, 8, 9)
    ]


@pytest.mark.parametrize("mode", ["dies-on-request", "unhealthy-on-request"])
def test_an_engine_lost_in_mid_run_raises_with_its_last_lines(ask: Ask, mode: str) -> None:
    with pytest.raises(EngineError) as caught:
        ask(*(request(f"item{i}") for i in range(20)), mode=mode, concurrency=2)
    assert caught.value.slug in {"engine-died", "engine-unreachable", "engine-unhealthy"}
    if mode == "dies-on-request":
        assert "the worker was killed" in caught.value.log_tail


@given(
    st.dictionaries(st.integers(0, 1000), st.sampled_from([-0.1, -2.5, -9999.0, math.nan, -math.inf, None]))
)
def test_top_logprobs_are_sorted_finite_and_complete(top: dict[int, float | None]) -> None:
    parsed = parse_top_logprobs({f"token_id:{t}": v for t, v in top.items()})
    assert sorted(parsed.logprobs, reverse=True) == list(parsed.logprobs)
    assert set(parsed.token_ids) == {t for t, v in top.items() if v in (-0.1, -2.5)}
    assert len(parsed.token_ids) + parsed.num_not_finite == len(top)


def test_a_position_without_logprobs_is_empty() -> None:
    assert parse_top_logprobs(None).token_ids == ()


def test_the_body_carries_schema_seed_and_forced_tokens_as_vllm_spells_them() -> None:
    body = render_body(request(json_schema='{"type": "object"}', seed=7, force_token_ids=(4,)), "m")
    assert (body["structured_outputs"], body["seed"]) == ({"json": {"type": "object"}}, 7)
    assert json.loads(body["vllm_xargs"]["force_token_ids"]) == [4]


def test_the_seed_is_left_out_when_there_is_none() -> None:
    assert "seed" not in render_body(request(), "m")


def test_a_client_that_gives_up_keeps_what_came_and_waits_for_no_more(ask: Ask) -> None:
    (item,) = ask(request(max_tokens=90, stream=True, give_up_after=2))
    assert (item.finish_reason, item.num_completion_tokens, len(item.token_ids), item.error) == (
        GIVEN_UP,
        2,
        2,
        "",
    )


def test_only_a_stream_can_be_given_up() -> None:
    with pytest.raises(ValueError, match="given up"):
        request(give_up_after=2)
