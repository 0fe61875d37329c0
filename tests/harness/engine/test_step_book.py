"""Prefill, decode, speculation, preemption and stops are counted as the scheduler counts them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.engine.step_book import ScheduledRequest, StepBook


def new(request_id: str, prompt_len: int, *, computed: int = 0, max_tokens: int = 100, **params: Any) -> Any:
    sampling = {"max_tokens": max_tokens, "stop_token_ids": [], "eos_token_id": None} | params
    return SimpleNamespace(
        req_id=request_id,
        prompt_token_ids=list(range(prompt_len)),
        num_computed_tokens=computed,
        sampling_params=SimpleNamespace(**sampling),
    )


def step(
    *,
    add: list[Any] | None = None,
    go_on: dict[str, tuple[int, int]] | None = None,
    resumed: set[str] | None = None,
    finished: set[str] | None = None,
    tokens: dict[str, int],
    drafts: dict[str, list[int]] | None = None,
) -> Any:
    """`go_on` maps a cached request to its computed and output tokens."""
    go_on = go_on or {}
    return SimpleNamespace(
        scheduled_new_reqs=add or [],
        scheduled_cached_reqs=SimpleNamespace(
            req_ids=list(go_on),
            num_computed_tokens=[computed for computed, _ in go_on.values()],
            num_output_tokens=[output for _, output in go_on.values()],
            resumed_req_ids=resumed or set(),
        ),
        num_scheduled_tokens=tokens,
        scheduled_spec_decode_tokens=drafts or {},
        finished_req_ids=finished or set(),
    )


def prefills(book: StepBook, output: Any) -> dict[str, int]:
    return {r.request_id: r.num_prefill_tokens for r in book.schedule(output)}


@given(st.integers(1, 50), st.integers(1, 20))
def test_the_prefill_tokens_of_all_chunks_add_up_to_the_prompt(prompt_len: int, chunk: int) -> None:
    book, computed, total = StepBook(), 0, 0
    while computed < prompt_len:
        num_tokens = min(chunk, prompt_len - computed)
        first = {"add": [new("a", prompt_len)]} if computed == 0 else {"go_on": {"a": (computed, 0)}}
        total += prefills(book, step(**first, tokens={"a": num_tokens}))["a"]
        computed += num_tokens
    assert total == prompt_len
    assert prefills(book, step(go_on={"a": (prompt_len, 1)}, tokens={"a": 1})) == {"a": 0}


def test_a_verify_step_has_no_prefill_tokens() -> None:
    book = StepBook()
    book.schedule(step(add=[new("a", 5)], tokens={"a": 5}))
    assert prefills(book, step(go_on={"a": (5, 1)}, tokens={"a": 4})) == {"a": 0}


def test_each_request_is_told_with_what_it_starts_from_and_its_drafts() -> None:
    book = StepBook()
    book.schedule(step(add=[new("a", 5), new("b", 3)], tokens={"a": 5, "b": 3}))
    later = step(go_on={"a": (5, 1), "b": (3, 1)}, tokens={"a": 3, "b": 1}, drafts={"a": [7, 8]})
    found = [(r.num_computed_tokens, r.num_draft_tokens) for r in book.schedule(later)]
    assert found == [(5, 2), (3, 0)]


def test_a_cached_prefix_is_not_computed_again() -> None:
    assert prefills(StepBook(), step(add=[new("a", 100, computed=96)], tokens={"a": 4})) == {"a": 4}


def test_recomputing_after_a_preemption_is_prefill_and_not_decode() -> None:
    book = StepBook()
    book.schedule(step(add=[new("a", 5)], tokens={"a": 5}))
    book.schedule(step(go_on={"a": (5, 1)}, tokens={"a": 1}))
    again = step(go_on={"a": (0, 2)}, resumed={"a"}, tokens={"a": 7})
    assert prefills(book, again) == {"a": 7}
    assert prefills(book, step(go_on={"a": (7, 3)}, tokens={"a": 1})) == {"a": 0}


def test_a_mixed_step_tells_its_requests_apart() -> None:
    book = StepBook()
    book.schedule(step(add=[new("a", 5)], tokens={"a": 5}))
    assert prefills(book, step(add=[new("b", 9)], go_on={"a": (5, 1)}, tokens={"a": 1, "b": 6})) == {
        "a": 0,
        "b": 6,
    }


def test_a_request_id_that_comes_back_after_its_end_starts_anew() -> None:
    book = StepBook()
    book.schedule(step(add=[new("a", 5, max_tokens=1)], tokens={"a": 5}))
    book.emit("a", [1])
    book.schedule(step(add=[new("a", 3, max_tokens=3)], finished={"a"}, tokens={"a": 3}))
    assert [book.emit("a", [1]), book.emit("a", [1, 2, 3])] == [1, 2]


def test_tokens_past_the_prompt_in_a_prefilling_step_are_no_prefill() -> None:
    assert prefills(StepBook(), step(add=[new("a", 5)], tokens={"a": 7})) == {"a": 5}


def test_speculated_tokens_past_the_limit_do_not_reach_the_client() -> None:
    book = StepBook()
    book.schedule(step(add=[new("a", 5, max_tokens=4)], tokens={"a": 5}))
    assert [book.emit("a", [1]), book.emit("a", [2, 3]), book.emit("a", [4, 5, 6])] == [1, 2, 1]


def test_speculated_tokens_past_a_stop_token_do_not_reach_the_client() -> None:
    book = StepBook()
    book.schedule(
        step(add=[new("a", 5, eos_token_id=9), new("b", 5, stop_token_ids=[8])], tokens={"a": 5, "b": 5})
    )
    assert [book.emit("a", [8, 9, 1]), book.emit("b", [9, 8, 1])] == [2, 2]


def test_the_model_length_ends_a_request() -> None:
    book = StepBook(max_model_len=8)
    book.schedule(step(add=[new("a", 5)], tokens={"a": 5}))
    assert book.emit("a", [1, 2, 3, 4]) == 3


def test_an_unfinished_prefill_emits_nothing() -> None:
    book = StepBook()
    book.schedule(step(add=[new("a", 50)], tokens={"a": 20}))
    assert book.emit("a", []) == 0


def settled(*, max_tokens: int = 100) -> StepBook:
    """A book after a decode step of two requests: each has computed six tokens and was handed two."""
    book = StepBook()
    book.schedule(step(add=[new("a", 5, max_tokens=max_tokens), new("b", 5)], tokens={"a": 5, "b": 5}))
    scheduled = book.schedule(step(go_on={"a": (5, 1), "b": (5, 1)}, tokens={"a": 1, "b": 1}))
    assert not book.goes_on(next_step())
    for request_id in ("a", "b"):
        book.emit(request_id, [1])
        book.emit(request_id, [1])
    book.settle(scheduled, [1, 1])
    return book


def next_step(num_computed: int = 6, **changed: Any) -> Any:
    plain: dict[str, Any] = {
        "go_on": {"a": (num_computed, 2), "b": (num_computed, 2)},
        "tokens": {"a": 1, "b": 1},
    }
    return step(**plain | changed)


def outputs(*token_ids: list[int], ids: str = "ab") -> Any:
    return SimpleNamespace(
        sampled_token_ids=list(token_ids), req_id_to_index={r: i for i, r in enumerate(ids)}
    )


def goes_on(book: StepBook, num_computed: int, output: Any) -> bool:
    steady = book.goes_on(next_step(num_computed))
    return steady is not None and book.went_on(steady, output)


def test_a_step_goes_on_from_the_one_before_for_as_long_as_nothing_changes() -> None:
    book = settled()
    for num_computed in range(6, 20):
        assert goes_on(book, num_computed, outputs([1], [2]))
    assert not book.goes_on(next_step(19))


@pytest.mark.parametrize(
    "changed",
    [
        {"tokens": {"a": 1}},
        {"tokens": {"a": 2, "b": 1}},
        {"tokens": {"b": 1, "a": 1}},
        {"go_on": {"a": (6, 2), "b": (7, 2)}},
        {"go_on": {"a": (6, 2), "c": (6, 2)}},
        {"go_on": {"a": (6, 2)}},
        {"add": [new("c", 5)]},
        {"finished": {"z"}},
        {"resumed": {"a"}},
        {"drafts": {"a": [3]}},
    ],
    ids=str,
)
def test_a_step_that_differs_in_anything_is_told_request_by_request(changed: dict[str, Any]) -> None:
    assert not settled().goes_on(next_step(**changed))


@pytest.mark.parametrize(
    ("scheduled", "num_emitted"),
    [
        ((5, 5, 0, 0), 1),
        ((2, 0, 0, 1), 1),
        ((1, 1, 0, 0), 1),
        ((1, 0, 0, 0), 0),
        ((1, 0, 0, 0), 2),
    ],
)
def test_no_step_goes_on_from_a_prefill_drafts_or_a_step_that_handed_out_other_than_one_token(
    scheduled: tuple[int, int, int, int], num_emitted: int
) -> None:
    num_tokens, num_prefill, num_computed, num_drafts = scheduled
    book = StepBook()
    book.schedule(step(add=[new("a", 5)], tokens={"a": 5}))
    book.settle([ScheduledRequest("a", num_tokens, num_prefill, num_computed, num_drafts)], [num_emitted])
    again = step(go_on={"a": (num_computed + 1, 1)}, tokens={"a": 1})
    assert not book.goes_on(again)


@pytest.mark.parametrize(
    "output", [outputs([1], []), outputs([1], [1, 2]), outputs([1]), outputs([1], [2], ids="ac")], ids=str
)
def test_a_step_that_handed_out_something_else_is_spelt_out_after_all(output: Any) -> None:
    book = settled()
    steady = book.goes_on(next_step())
    assert steady is not None and not book.went_on(steady, output)
    assert [tuple(r) for r in book.spelt(steady)] == [("a", 1, 0, 6, 0), ("b", 1, 0, 6, 0)]
    assert not book.goes_on(next_step())


@given(st.integers(0, 5))
def test_tokens_of_steps_that_went_on_count_towards_the_limit(num_steps: int) -> None:
    """Two were handed out before, seven are allowed: what is left of a row of drafts is what reaches the client."""
    book = settled(max_tokens=7)
    for num_computed in range(6, 6 + num_steps):
        assert goes_on(book, num_computed, outputs([1], [1]))
    book.schedule(next_step(6 + num_steps, tokens={"a": 9, "b": 1}))
    assert book.emit("a", [1] * 9) == max(1, 5 - num_steps)


def test_a_step_whose_output_comes_after_another_step_began_is_spelt_out() -> None:
    book = settled()
    steady = book.goes_on(next_step(6))
    assert steady is not None
    book.schedule(next_step(7))
    assert not book.went_on(steady, outputs([1], [1]))
    assert [r.num_computed_tokens for r in book.spelt(steady)] == [6, 6]


def test_no_step_goes_on_from_one_that_another_was_written_after() -> None:
    """Asynchronously: the prefill of another request began before the outputs of a decode step came, and is written."""
    book = StepBook()
    book.schedule(step(add=[new("a", 5), new("c", 9)], tokens={"a": 5, "c": 4}))
    decode = book.schedule(step(go_on={"a": (5, 1)}, tokens={"a": 1}))
    prefill = book.schedule(step(go_on={"c": (4, 0)}, tokens={"c": 5}))
    book.settle(decode, [1])
    assert book.goes_on(step(go_on={"a": (6, 2)}, tokens={"a": 1}))
    book.settle(prefill, [1])
    assert not book.goes_on(step(go_on={"a": (6, 2)}, tokens={"a": 1}))
