"""Laws of what the features suite asks: the same of fewer prompts, and never more than the engine can take."""

from __future__ import annotations

import pytest

from eval_suites.prompts import select_prompts
from eval_suites.suite import Suite
from harness.app.feature_plan import LONG_PROMPT, MAX_PROMPT_BYTES, plan_features
from harness.model.completion import CompletionRequest
from harness.model.evaluation import SuiteItem
from tests.harness.checks.evidence_builder import MANIFEST

SCOPE = MANIFEST.scope.model_copy(update={"max_context": 4 * LONG_PROMPT})


def tokenize(text: str) -> tuple[int, ...]:
    return tuple(text.encode())


def plan(num_greedy: int, num_prompts: int, only: tuple[str, ...] = ()) -> Suite:
    texts = select_prompts(num_greedy, seed=1)
    greedy = [
        SuiteItem(
            item=f"p{index}@c1",
            request_id=f"{index}r",
            concurrency=1,
            num_prompt_tokens=1,
            token_ids=tuple(65 + i % (1 + 7 * index % 17) for i in range(17)),
            text="".join(chr(65 + i % (1 + 7 * index % 17)) for i in range(17)),
            finish_reason="length",
            num_completion_tokens=17,
        )
        for index in range(num_greedy)
    ]
    return plan_features(
        SCOPE, texts, greedy, tokenize, num_prompts=num_prompts, num_alone=2, num_tokens=4, seed=3, only=only
    )


def requests_of(suite: Suite) -> dict[str, CompletionRequest]:
    return {r.item: r for part in suite.parts for r in part.requests}


def test_fewer_prompts_are_the_first_of_more_so_that_their_answers_pair() -> None:
    few, many = requests_of(plan(64, 4)), requests_of(plan(64, 10))
    assert len(few) < len(many)
    assert all(many[item] == request for item, request in few.items())


def test_of_one_feature_the_same_is_asked_as_beside_the_others_with_what_it_is_held_against() -> None:
    every, one, long = (requests_of(plan(64, 4, only)) for only in ((), ("top_k",), ("prefix_cache",)))
    assert {name.partition("/")[0] for name in one} == {"top_k", "plain"}
    assert {name.partition("/")[0] for name in long} == {"plain", "chunked_prefill", "prefix_cache"}
    for asked in (one, long):
        assert asked == {
            n: r for n, r in every.items() if n.partition("/")[0] in {m.partition("/")[0] for m in asked}
        }


def test_the_liveliest_continuations_are_chosen_so_that_stops_have_a_place() -> None:
    stops = [item for item in requests_of(plan(64, 10)) if item.startswith("stop_strings/")]
    assert len(stops) == 12


def test_no_prompts_ask_nothing_at_all() -> None:
    assert plan(24, 0).num_requests == 0


def test_a_seeded_prompt_is_short_enough_for_one_step() -> None:
    seeded = [r for r in requests_of(plan(64, 10)).values() if r.seed is not None and r.prompt_token_ids]
    assert max(len(r.prompt_token_ids) for r in seeded) <= MAX_PROMPT_BYTES


@pytest.mark.parametrize("item", ["chunked_prefill/first/p0@c8", "prefix_cache/again/p0@c1"])
def test_a_prompt_that_is_split_or_cached_is_long(item: str) -> None:
    assert len(requests_of(plan(64, 4))[item].prompt_token_ids) == LONG_PROMPT
