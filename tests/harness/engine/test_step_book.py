"""Prefill, decode, speculation, preemption and stops are counted as the scheduler counts them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from harness.engine.step_book import StepBook


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
