"""Laws of the suites: same requests for every arm, names that pair, prompts that repeat on every machine."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest

from eval_suites.features import SCHEMAS, full_context_suite, sampling_suite, structured_suite
from eval_suites.prompts import long_prompt, select_prompts
from eval_suites.suite import Suite, SuitePart, run_suite
from eval_suites.token_level import TOKENS_TOGETHER, continuations_of, greedy_suite, teacher_forced_suite
from harness.model.completion import CompletionRequest
from harness.model.evaluation import SuiteItem

PROMPTS = ((1, 2, 3), (4,), (5, 6))


class EchoCompleter:
    """Answers each request with its forced tokens, or with its prompt; remembers what it was asked."""

    def __init__(self) -> None:
        self.calls: list[tuple[int, int]] = []

    def complete_many(
        self, requests: Sequence[CompletionRequest], *, concurrency: int, suite: str, together: bool = False
    ) -> tuple[SuiteItem, ...]:
        self.calls.append((concurrency, len(requests)))
        return tuple(
            SuiteItem(
                item=r.item,
                request_id=f"{suite}-{r.item}-x",
                concurrency=concurrency,
                num_prompt_tokens=len(r.prompt_token_ids),
                token_ids=r.force_token_ids or r.prompt_token_ids,
                text="",
                finish_reason="length",
                num_completion_tokens=r.max_tokens,
            )
            for r in requests
        )


def test_every_prompt_runs_at_every_concurrency_under_a_name_of_its_own() -> None:
    suite = greedy_suite(PROMPTS, concurrencies=(1, 8), num_tokens=4, seed=0)
    names = [r.item for part in suite.parts for r in part.requests]
    assert names == ["p0@c1", "p1@c1", "p2@c1", "p0@c8", "p1@c8", "p2@c8"]


def test_a_suite_with_repeated_item_names_is_refused() -> None:
    request = CompletionRequest(item="p0", prompt_token_ids=(1,), max_tokens=1)
    with pytest.raises(ValueError, match="repeat"):
        Suite(name="s", parts=(SuitePart(concurrency=1, requests=(request, request)),), seed=0)


def test_answers_come_back_in_the_order_of_the_suite_and_progress_reaches_the_end() -> None:
    suite = greedy_suite(tuple((i,) for i in range(1, 41)), concurrencies=(1, 8), num_tokens=1, seed=0)
    seen: list[tuple[int, int]] = []
    items = run_suite(suite, EchoCompleter(), lambda done, total: seen.append((done, total)))
    assert [i.item for i in items] == [r.item for part in suite.parts for r in part.requests]
    assert seen[-1] == (80, 80)


def test_slices_of_a_part_are_whole_waves_so_that_the_batch_stays_full() -> None:
    completer = EchoCompleter()
    run_suite(
        greedy_suite(tuple((i,) for i in range(1, 33)), concurrencies=(8,), num_tokens=1, seed=0), completer
    )
    assert all(size % concurrency == 0 for concurrency, size in completer.calls)


@pytest.mark.parametrize("num_requests", [8, 9, 18, 23, 31, 40])
def test_what_is_left_of_a_part_is_asked_with_as_many_in_flight_as_the_rest(num_requests: int) -> None:
    completer = EchoCompleter()
    prompts = tuple((i,) for i in range(1, num_requests + 1))
    run_suite(greedy_suite(prompts, concurrencies=(8,), num_tokens=1, seed=0), completer)
    sizes = [size for _, size in completer.calls]
    assert sum(sizes) == num_requests and min(sizes) >= 8


def test_forcing_walks_the_baselines_own_continuation_of_the_same_prompt() -> None:
    greedy = run_suite(greedy_suite(PROMPTS, concurrencies=(1,), num_tokens=4, seed=0), EchoCompleter())
    forced = teacher_forced_suite(PROMPTS, continuations_of(greedy), concurrencies=(2,), seed=0)
    assert [r.force_token_ids for part in forced.parts for r in part.requests] == list(PROMPTS)


@pytest.mark.parametrize("concurrency", [2, 8])
def test_forcing_starts_enough_full_batches_together_to_fill_the_batchs_quota(concurrency: int) -> None:
    continuations = {index: tuple(range(9)) for index in range(40)}
    prompts = tuple((index,) for index in range(40))
    parts = teacher_forced_suite(prompts, continuations, concurrencies=(concurrency,), seed=0).parts
    (together,) = (part.requests for part in parts if part.together)
    # The first token of a request is its prefill's.
    tokens = [len(r.force_token_ids) - 1 for r in together]
    assert len(tokens) % concurrency == 0
    assert TOKENS_TOGETHER <= sum(tokens) < TOKENS_TOGETHER + concurrency * 8
    assert sum(len(part.requests) for part in parts) == 40


def test_forcing_one_by_one_needs_no_start_together() -> None:
    parts = teacher_forced_suite(PROMPTS, {0: (1, 2)}, concurrencies=(1,), seed=0).parts
    assert [part.together for part in parts] == [False]


def test_a_failed_baseline_answer_leaves_no_continuation_to_force() -> None:
    item = EchoCompleter().complete_many(
        [CompletionRequest(item="p0@c1", prompt_token_ids=(1,), max_tokens=1)], concurrency=1, suite="greedy"
    )[0]
    assert continuations_of([item.model_copy(update={"token_ids": (), "error": "500"})]) == {}


def test_each_sampled_request_is_sent_twice_with_the_same_seed_and_temperature() -> None:
    suite = sampling_suite(
        PROMPTS, seeds=(7, 8), temperatures=(0.3, 1.0), num_tokens=4, concurrency=4, seed=0
    )
    pairs: dict[str, list[tuple[float, int | None]]] = {}
    for r in suite.parts[0].requests:
        pairs.setdefault(r.item.rsplit("/", 1)[0], []).append((r.temperature, r.seed))
    assert len(pairs) == 12
    assert all(len(v) == 2 and v[0] == v[1] for v in pairs.values())


def test_every_schema_bounds_the_length_of_its_answers() -> None:
    def bounded(schema: dict[str, object]) -> bool:
        if "enum" in schema or schema.get("type") == "boolean":
            return True
        if schema["type"] == "array":
            items = schema["items"]
            return "maxItems" in schema and isinstance(items, dict) and bounded(items)
        properties = schema["properties"]
        assert isinstance(properties, dict)
        return schema["additionalProperties"] is False and all(bounded(p) for p in properties.values())

    assert all(bounded(schema) for schema in SCHEMAS)


def test_structured_requests_carry_a_schema_that_parses() -> None:
    suite = structured_suite(PROMPTS, concurrencies=(1, 4), max_tokens=64, seed=0)
    assert all(json.loads(r.json_schema)["type"] for part in suite.parts for r in part.requests)


def test_full_context_requests_end_exactly_at_the_declared_context() -> None:
    suite = full_context_suite(tuple(range(1, 200)), max_context=128, num_tokens=16, num_prompts=3, seed=0)
    lengths = {len(r.prompt_token_ids) + r.max_tokens for r in suite.parts[0].requests}
    assert lengths == {128}


def test_full_context_refuses_a_text_that_is_too_short() -> None:
    with pytest.raises(ValueError, match="needed"):
        full_context_suite(tuple(range(100)), max_context=128, num_tokens=16, num_prompts=3, seed=0)


def test_prompts_of_a_seed_are_distinct_and_repeat() -> None:
    prompts = select_prompts(60, seed=1)
    assert len(set(prompts)) == 60
    assert prompts == select_prompts(60, seed=1)
    assert prompts != select_prompts(60, seed=2)


def test_long_prompts_are_at_least_as_long_as_asked() -> None:
    assert len(long_prompt(5000, seed=3).encode()) >= 5000
