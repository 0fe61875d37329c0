"""Laws of the features suite: what each request says of itself, and what runs beside what."""

from __future__ import annotations

import json
from collections import defaultdict

from eval_suites.feature_cases import CASES, PLAIN
from eval_suites.suite import SuitePart
from harness.model.completion import CompletionRequest
from harness.model.features import FEATURES
from tests.harness.checks.evidence_builder import MAX_BATCH
from tests.harness.checks.feature_server import made_suite

PARTS = made_suite().parts
REQUESTS = [request for part in PARTS for request in part.requests]
LONG = {"chunked_prefill", "prefix_cache"}
JUDGED_ELSEWHERE = {"structured_output", "full_context"}


def feature_of(request: CompletionRequest) -> str:
    return request.item.partition("/")[0]


def test_every_feature_is_asked_for_alone_and_at_the_largest_batch() -> None:
    widths: dict[str, set[int]] = defaultdict(set)
    for part in PARTS:
        for r in part.requests:
            widths[feature_of(r)].add(part.concurrency * json.loads(r.options_text or "{}").get("n", 1))
    assert set(widths) == set(FEATURES) - JUDGED_ELSEWHERE | {PLAIN}
    assert {name for name, found in widths.items() if MAX_BATCH not in found} == set()
    alone = {feature_of(r) for part in PARTS if part.concurrency == 1 for r in part.requests}
    assert set(widths) - alone == {"chunked_prefill"}


def test_a_request_says_what_it_asks_of_the_api_unless_the_answer_shows_it() -> None:
    shown = {"temperature_sampling", "streaming"} | LONG
    silent = {feature_of(r) for r in REQUESTS if not r.options_text}
    assert silent == shown | {PLAIN}
    assert shown - LONG == {f for f in CASES if f in silent}


def test_neighbours_in_a_full_batch_ask_for_different_features() -> None:
    (mixed,) = [p for p in PARTS if p.concurrency == MAX_BATCH and len({*map(feature_of, p.requests)}) > 2]

    def is_mixed(start: int, part: SuitePart) -> bool:
        return len({feature_of(r) for r in part.requests[start : start + MAX_BATCH]}) > MAX_BATCH // 2

    starts = range(0, len(mixed.requests) - MAX_BATCH, MAX_BATCH)
    assert all(is_mixed(start, mixed) for start in starts)


def test_long_prompts_come_first_so_that_what_they_leave_behind_shows() -> None:
    first_short = next(i for i, r in enumerate(REQUESTS) if feature_of(r) not in LONG)
    assert all(feature_of(r) in LONG for r in REQUESTS[:first_short]) and first_short > MAX_BATCH
    assert all(feature_of(r) not in LONG for r in REQUESTS[first_short:])


def test_another_seed_asks_other_seeds_of_the_same_prompts() -> None:
    def seeds(seed: int) -> dict[str, int | None]:
        return {
            r.item: r.seed for part in made_suite(seed).parts for r in part.requests if r.seed is not None
        }

    assert set(seeds(0).values()).isdisjoint(seeds(100).values())
