"""Laws of the open-loop check: requests go out at their time, whether or not others are answered."""

from __future__ import annotations

import time
from collections.abc import Sequence

from harness.model.completion import CompletionRequest
from harness.model.evaluation import SuiteItem
from perf_sweeps.block import OpenLoopCheck
from perf_sweeps.open_loop import check_open_loop


class Slow:
    """Answers each request with two tokens after a while."""

    def __init__(self, takes_s: float) -> None:
        self.takes_s = takes_s

    def complete_many(
        self, requests: Sequence[CompletionRequest], *, concurrency: int, suite: str, together: bool = False
    ) -> tuple[SuiteItem, ...]:
        time.sleep(self.takes_s)
        return tuple(
            SuiteItem(
                item=r.item,
                request_id="x",
                concurrency=1,
                num_prompt_tokens=1,
                token_ids=(1, 2),
                text="",
                finish_reason="length",
                num_completion_tokens=2,
            )
            for r in requests
        )


def checked(takes_s: float, spread_s: float) -> OpenLoopCheck:
    requests = [CompletionRequest(item=str(i), prompt_token_ids=(1,), max_tokens=2) for i in range(4)]
    return check_open_loop(Slow(takes_s), requests, spread_s=spread_s, suite="s")


def test_no_request_waits_for_the_answer_to_another() -> None:
    found = checked(0.3, 0.0)
    assert (found.num_asked, found.num_tokens) == (4, 8)
    assert 0.3 <= found.wall_s < 1.2, "one after the other takes 1.2 s"


def test_requests_are_spread_over_the_time_that_the_generator_reported() -> None:
    assert checked(0.0, 0.4).wall_s >= 0.3
