"""Laws of the timing cells: fair order, equal work, nothing answered from memory."""

from __future__ import annotations

from collections.abc import Sequence

from harness.model.completion import CompletionRequest
from harness.model.evaluation import SuiteItem
from harness.model.evidence import TimingEvidence
from harness.model.words import Arm, Tier
from perf_sweeps.decode_latency import plan_blocks, time_decode

PAIR = (Arm.BASELINE, Arm.CANDIDATE)
PROMPTS = tuple((i + 1,) for i in range(32))


class RecordingCompleter:
    """Answers with the right number of tokens and remembers every request."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, CompletionRequest]] = []

    def complete_many(
        self, requests: Sequence[CompletionRequest], *, concurrency: int, suite: str, together: bool = False
    ) -> tuple[SuiteItem, ...]:
        self.asked.extend((suite, r) for r in requests)
        return tuple(
            SuiteItem(
                item=r.item,
                request_id=f"{suite}-{r.item}-x",
                concurrency=concurrency,
                num_prompt_tokens=len(r.prompt_token_ids),
                token_ids=(1,) * r.max_tokens,
                text="",
                finish_reason="length",
                num_completion_tokens=r.max_tokens,
            )
            for r in requests
        )


def run_cell(
    completers: dict[Arm, RecordingCompleter], batch: int = 4, given: tuple[int, ...] = ()
) -> TimingEvidence:
    return time_decode(
        completers,
        PROMPTS,
        compares=PAIR,
        batch=batch,
        num_pairs=4,
        num_tokens=8,
        tier=Tier.CPU,
        hardware="test",
        recorded_at=lambda: "2026-01-01T00:00:00Z",
        given=given,
    )


def test_neighbouring_pairs_alternate_their_order() -> None:
    arms = [arm for _, arm in plan_blocks(PAIR, 4)]
    b, c = PAIR
    assert arms == [b, c, c, b, b, c, c, b]


def test_both_arms_have_the_same_mean_position_in_time() -> None:
    positions: dict[Arm, list[int]] = {}
    for position, (_, arm) in enumerate(plan_blocks(PAIR, 6)):
        positions.setdefault(arm, []).append(position)
    assert sum(positions[PAIR[0]]) == sum(positions[PAIR[1]])


def test_the_blocks_of_a_pair_ask_both_arms_the_same_prompts() -> None:
    completers = {arm: RecordingCompleter() for arm in PAIR}
    run_cell(completers)
    asked = {
        arm: [r.prompt_token_ids for suite, r in c.asked if "warm-up" not in suite]
        for arm, c in completers.items()
    }
    assert asked[Arm.BASELINE] == asked[Arm.CANDIDATE]


def test_no_prompt_of_a_cell_repeats_while_prompts_last() -> None:
    completers = {arm: RecordingCompleter() for arm in PAIR}
    run_cell(completers)
    prompts = [r.prompt_token_ids for suite, r in completers[Arm.BASELINE].asked if "warm-up" not in suite]
    assert len(set(prompts)) == len(prompts) == 16


def test_the_warm_up_is_not_among_the_recorded_blocks() -> None:
    cell = run_cell({arm: RecordingCompleter() for arm in PAIR})
    assert len(cell.blocks) == 8
    assert not any("warm-up" in item.request_id for block in cell.blocks for item in block.items)


GIVEN = tuple(range(1000, 1500))


def test_both_blocks_of_a_pair_are_given_the_same_tokens_and_no_two_requests_the_same_in_one_step() -> None:
    completers = {arm: RecordingCompleter() for arm in PAIR}
    run_cell(completers, given=GIVEN)
    timed = {
        arm: [r.force_token_ids for suite, r in c.asked if suite.endswith("-candidate")]
        for arm, c in completers.items()
    }
    assert timed[Arm.BASELINE] == timed[Arm.CANDIDATE] and len(set(timed[Arm.BASELINE])) == 16
    for tokens in timed[Arm.BASELINE]:
        assert len(tokens) == 8 and set(tokens) <= set(GIVEN)
    for start in range(0, 16, 4):
        assert all(len(set(step)) == 4 for step in zip(*timed[Arm.BASELINE][start : start + 4], strict=True))


def test_only_the_block_that_is_not_timed_asks_for_logprobs_and_it_asks_for_the_same_work() -> None:
    completers = {arm: RecordingCompleter() for arm in PAIR}
    cell = run_cell(completers, given=GIVEN)
    assert cell.tokens_given and [(s.arm, len(s.items)) for s in cell.shown] == [(arm, 4) for arm in PAIR]
    for completer in completers.values():
        asking = {suite for suite, r in completer.asked if r.logprobs}
        assert asking == {"decode/b4/baseline-candidate/shown"}
        shown, warm_up = (
            [(r.prompt_token_ids, r.force_token_ids) for suite, r in completer.asked if suite.endswith(end)]
            for end in ("/shown", "/warm-up")
        )
        assert shown == warm_up


def test_without_given_tokens_nothing_is_asked_beyond_the_blocks() -> None:
    completers = {arm: RecordingCompleter() for arm in PAIR}
    cell = run_cell(completers)
    assert (cell.tokens_given, cell.shown) == (False, ())
    assert not any(r.force_token_ids or r.logprobs for c in completers.values() for _, r in c.asked)
