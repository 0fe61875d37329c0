"""Laws of reading `vllm bench serve`: old and new key names, and nothing that is not a measurement."""

from __future__ import annotations

import json
from typing import Any

import pytest

from harness.model.words import Arm
from perf_sweeps.bench_result import BenchResultError, bench_arguments, parse_bench_result
from perf_sweeps.block import Visit

RESULT: dict[str, Any] = {
    "date": "20261130-061500",
    "endpoint_type": "openai",
    "duration": 2.0,
    "completed": 2,
    "failed": 0,
    "total_input_tokens": 20,
    "total_output_tokens": 16,
    "input_lens": [10, 10],
    "output_lens": [8, 8],
    "ttfts": [0.1, 0.2],
    "itls": [[0.01] * 7, [0.01] * 7],
    "errors": ["", ""],
}
"""Keys as vLLM 0.32 writes them."""


def parsed(num_asked: int = 2, **changed: Any) -> Visit:
    result = {k: v for k, v in (RESULT | changed).items() if v is not None}
    return parse_bench_result(json.dumps(result), arm=Arm.BASELINE, position=0, num_asked=num_asked)


def test_a_result_gives_counts_and_times_in_milliseconds() -> None:
    visit = parsed()
    assert (visit.num_answered, visit.num_failed, visit.output_lens, visit.ttfts_ms) == (
        2,
        0,
        (8, 8),
        (100.0, 200.0),
    )


@pytest.mark.parametrize("key", ["completed", "successful", "num_successful_requests"])
def test_every_known_name_of_the_answered_count_is_held_against_the_list(key: str) -> None:
    with pytest.raises(BenchResultError, match="3 requests were answered"):
        parsed(**({"completed": None} | {key: 3}))


@pytest.mark.parametrize("key", ["failed", "num_failed_requests"])
def test_every_known_name_of_the_failed_count_is_read(key: str) -> None:
    visit = parsed(3, **({"failed": None} | {key: 1}))
    assert visit.num_failed == 1


def test_where_no_count_of_failures_is_written_what_was_asked_and_not_answered_failed() -> None:
    assert parsed(5, failed=None).num_failed == 3


def test_a_request_without_tokens_is_not_answered() -> None:
    visit = parsed(
        output_lens=[8, 0], completed=1, failed=1, total_output_tokens=8, errors=["", "gone\nat 3"]
    )
    assert (visit.num_answered, visit.errors) == (1, ("gone",))


@pytest.mark.parametrize("constant", ["NaN", "Infinity", "-Infinity"])
def test_a_result_that_holds_no_number_where_one_belongs_is_refused(constant: str) -> None:
    text = json.dumps(RESULT).replace('"duration": 2.0', f'"duration": {constant}')
    with pytest.raises(BenchResultError, match="It holds"):
        parse_bench_result(text, arm=Arm.BASELINE, position=0, num_asked=2)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"output_lens": None}, "output_lens"),
        ({"duration": None}, "duration"),
        ({"duration": "2"}, "duration"),
        ({"duration": 0}, "duration"),
        ({"input_lens": [10]}, "1 input_lens"),
        ({"total_output_tokens": 17}, "17 output tokens"),
        ({"output_lens": ["8", "8"]}, "output_lens"),
    ],
)
def test_a_result_that_lacks_or_contradicts_what_is_needed_is_refused_by_name(
    changed: dict[str, Any], said: str
) -> None:
    with pytest.raises(BenchResultError, match=said):
        parsed(**changed)


@pytest.mark.parametrize("text", ["", "[]", "{", "\x00"])
def test_what_is_no_result_is_refused(text: str) -> None:
    with pytest.raises(BenchResultError):
        parse_bench_result(text, arm=Arm.BASELINE, position=0, num_asked=1)


def test_the_command_fixes_length_order_and_seed_and_asks_nothing_beside() -> None:
    words = bench_arguments(
        base_url="http://127.0.0.1:1",
        model="m",
        tokenizer="folder",
        request_ids="x-",
        num_prompts=4,
        concurrency=2,
        output_len=8,
        seed=3,
    )
    assert {"--ignore-eos", "--disable-shuffle", "--save-detailed", "--seed"} <= set(words)
    assert words[words.index("--ready-check-timeout-sec") + 1] == "0", (
        "a request before the first would be cached"
    )
