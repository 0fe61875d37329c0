"""Laws of the lockstep: a state that differs is seen at the step that starts from it, on whichever path."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from harness.engine.probe.lockstep import compare_engines
from harness.model.probe import HandoverStep
from tests.harness.engine.probe.made_recording import (
    OWNERS,
    ROWS,
    MadeStep,
    row_word,
    state_word,
    write_recording,
)


def step(computed: int, value: float = 1.0, **update: object) -> MadeStep:
    """A decode that writes a state and the row of its token."""
    writes = {state_word(0): value, row_word(computed): value}
    return replace(MadeStep(computed=computed, writes=writes), **update)  # type: ignore[arg-type]


Compare = Callable[..., list[HandoverStep]]
STEPS = (step(1), step(2, 2.0), step(3, 4.0))


@pytest.fixture
def compare(tmp_path: Path) -> Compare:
    def run(ours: Sequence[MadeStep], theirs: Sequence[MadeStep] = STEPS) -> list[HandoverStep]:
        arm = write_recording(tmp_path / "arm", ours)
        return list(compare_engines(arm, write_recording(tmp_path / "twin", theirs), "plain"))

    return run


def test_arms_that_write_alike_are_no_bit_apart(compare: Compare) -> None:
    steps = compare(STEPS)
    assert [(s.same_work, s.states.num_differing, s.caches.num_differing) for s in steps] == [
        (True, 0, 0)
    ] * 3
    assert [s.states.num_words for s in steps] == [20] * 3


def test_a_wrong_state_is_seen_where_the_next_step_starts_and_named(compare: Compare) -> None:
    wrong = (STEPS[0], step(2, 3.0), STEPS[2])
    steps = compare(wrong)
    assert [s.states.num_differing for s in steps] == [0, 0, 1]
    assert steps[2].states.worst == "r0, kda.kv_cache[1]"


def test_a_state_that_is_not_written_is_seen(compare: Compare) -> None:
    kept = (STEPS[0], replace(STEPS[1], writes={row_word(2): 2.0}), STEPS[2])
    assert [s.states.num_differing for s in compare(kept)] == [0, 0, 1]


def test_a_lost_window_is_seen(compare: Compare) -> None:
    def shifting(value: float) -> MadeStep:
        return replace(STEPS[0], writes={state_word(-12 + 3): value, **STEPS[0].writes})

    steps = compare((shifting(0.0), STEPS[1]), (shifting(5.0), STEPS[1]))
    assert steps[1].states.worst == "r0, kda.kv_cache[0]"


def test_the_window_is_read_where_it_lies_though_the_state_lies_elsewhere(compare: Compare) -> None:
    after_drafts = replace(STEPS[1], start=(6, 2, 0))
    moved = replace(after_drafts, engine_writes={state_word(-12): 3.0})
    assert compare((STEPS[0], moved), (STEPS[0], after_drafts))[1].states.worst == "r0, kda.kv_cache[0]"


def test_words_that_the_twin_never_wrote_are_no_history(compare: Compare) -> None:
    far = (replace(STEPS[0], writes={**STEPS[0].writes, row_word(3): 1.5}), *STEPS[1:])
    assert [s.caches.num_differing for s in compare(far)] == [0, 0, 0]


def test_a_cache_row_that_differs_is_seen_from_the_step_after_it(compare: Compare) -> None:
    other = (replace(STEPS[0], writes={**STEPS[0].writes, row_word(1): 9.0}), *STEPS[1:])
    assert [s.caches.num_differing for s in compare(other)] == [0, 1, 1]


def test_what_the_engine_writes_between_steps_is_part_of_the_state(compare: Compare) -> None:
    moved = (*STEPS[:2], replace(STEPS[2], engine_writes={state_word(5): 3.0}))
    assert [s.states.num_differing for s in compare(moved)] == [0, 0, 1]


def test_a_page_that_changes_between_steps_on_one_arm_is_told(compare: Compare) -> None:
    late = (*STEPS[:2], replace(STEPS[2], engine_writes={state_word(5, page=6): 3.0, row_word(0): 2.0}))
    assert [s.num_bytes_between for s in compare(late)] == [{}, {}, {"block 6": 4, ROWS: 4}]


def test_a_page_that_the_twins_engine_changes_between_steps_too_is_the_engines(compare: Compare) -> None:
    ours = (*STEPS[:2], replace(STEPS[2], engine_writes={state_word(1): 3.0}))
    theirs = (*STEPS[:2], replace(STEPS[2], engine_writes={state_word(2): 4.0}))
    assert [s.num_bytes_between for s in compare(ours, theirs)] == [{}, {}, {}]


def test_a_row_behind_the_steps_own_is_beyond(compare: Compare) -> None:
    far = (STEPS[0], replace(STEPS[1], writes={**STEPS[1].writes, row_word(3): 1.5, row_word(3, 1): 1.5}))
    assert [s.num_bytes_beyond for s in compare(far, STEPS[:2])] == [{}, {ROWS: 8}]


def test_a_row_that_the_twin_wrote_before_for_the_same_request_is_not_beyond(compare: Compare) -> None:
    drafts = {row_word(2): 0.5, row_word(3): 0.5}
    first = replace(STEPS[0], writes={**STEPS[0].writes, **drafts})
    again = replace(STEPS[1], writes={**STEPS[1].writes, row_word(3): 0.75})
    assert compare((first, again), (first, STEPS[1]))[1].num_bytes_beyond == {}


def test_a_row_that_another_request_once_had_is_beyond(compare: Compare) -> None:
    before = replace(
        STEPS[0], writes={row_word(3): 0.5}, owners={**OWNERS, "3": ["r9-x", 1]}, scenario="before"
    )
    far = replace(STEPS[1], writes={**STEPS[1].writes, row_word(3): 0.75})
    assert compare((before, far), (before, STEPS[1]))[1].num_bytes_beyond == {ROWS: 4}


def test_another_token_is_told_with_the_twins_gap_and_ends_the_scenario(compare: Compare) -> None:
    other = (STEPS[0], replace(STEPS[1], token=8), STEPS[2])
    twin = (STEPS[0], replace(STEPS[1], gap=0.25), STEPS[2])
    steps = compare(other, twin)
    assert (steps[1].other_token, steps[1].top_gap) == ("r0", 0.25)
    assert [s.same_work for s in steps] == [True, True, False]


def test_arms_that_are_given_their_tokens_stay_in_step_where_they_would_have_sampled_others(
    compare: Compare,
) -> None:
    twin = (STEPS[0], replace(STEPS[1], gap=0.25), STEPS[2])
    steps = compare((STEPS[0], replace(STEPS[1], likeliest=8), STEPS[2]), twin)
    assert (steps[1].other_token, steps[1].top_gap) == ("r0", 0.25)
    assert [(s.same_work, s.states.num_words > 0) for s in steps[1:]] == [(True, True), (True, True)]


def test_arms_that_compute_other_tokens_are_not_compared(compare: Compare) -> None:
    wide = (STEPS[0], replace(STEPS[1], scheduled=2), STEPS[2])
    steps = compare(wide)
    assert [s.same_work for s in steps] == [True, False, False]
    assert steps[1].states.num_words == 0


def test_the_next_scenario_is_compared_again(compare: Compare) -> None:
    other = (replace(STEPS[0], token=8), STEPS[1], replace(STEPS[2], scenario="t"))
    twin = (STEPS[0], STEPS[1], replace(STEPS[2], scenario="t"))
    assert [s.same_work for s in compare(other, twin)] == [True, False, True]


def test_an_arm_that_ends_a_scenario_early_leaves_its_later_steps_out(compare: Compare) -> None:
    short = (STEPS[0], replace(STEPS[2], scenario="t", computed=3))
    twin = (*STEPS[:2], replace(STEPS[2], scenario="t"))
    steps = compare(short, twin)
    assert [s.scenario for s in steps] == ["s", "t"]


def in_rows(step: MadeStep, value: float, fourth: float) -> MadeStep:
    """The step writes a whole row of its block; one word of it is told apart."""
    row = {row_word(step.computed, word): value for word in range(16)}
    return replace(step, writes={**step.writes, **row, row_word(step.computed, 4): fourth})


def rewritten(ours: float, before: float = 2.0) -> tuple[list[MadeStep], list[MadeStep]]:
    """A row that another request left; the twin writes the word `before` again, we write `ours`."""
    other = {**OWNERS, "3": ["r9-x", 1]}
    left = [replace(in_rows(step(2), 1.0, value), owners=other, scenario="before") for value in (1.0, before)]
    row = in_rows(step(2), 2.0, before)
    unchanged = {word: value for word, value in row.writes.items() if word != row_word(2, 4)}
    return [left[0], in_rows(step(2), 2.0, ours)], [left[1], replace(row, writes=unchanged)]


def test_a_word_that_the_twin_overwrites_with_what_it_held_is_told_with_how_far_ours_is(
    compare: Compare,
) -> None:
    (_, found) = compare(*rewritten(2.01))
    assert found.num_bytes_beyond == {ROWS: 4}
    assert found.largest_beyond[ROWS] == pytest.approx(0.005, rel=1e-3)


def test_a_word_that_comes_to_hold_what_the_twin_holds_is_not_beyond(compare: Compare) -> None:
    assert compare(*rewritten(2.0))[1].num_bytes_beyond == {}


def test_neighbours_that_are_zeroed_are_as_far_as_the_largest_of_their_row(compare: Compare) -> None:
    kept = {row_word(3, word): 0.01 if word else 3.0 for word in range(16)}
    first = replace(STEPS[0], writes={**STEPS[0].writes, **kept}, scenario="before")
    first = replace(first, owners={**OWNERS, "3": ["r9-x", 1]})
    zeros = dict.fromkeys(kept, 0.0)
    far = replace(STEPS[1], writes={**STEPS[1].writes, **zeros})
    found = compare((first, far), (first, STEPS[1]))[1]
    assert (found.num_bytes_beyond, found.largest_beyond) == ({ROWS: 64}, {ROWS: 1.0})


def test_nothing_is_near_a_row_of_zeros(compare: Compare) -> None:
    zeros = {row_word(3, word): 0.0 for word in range(16)}
    first = replace(STEPS[0], writes={**STEPS[0].writes, **zeros}, owners={**OWNERS, "3": ["r9-x", 1]})
    far = replace(STEPS[1], writes={**STEPS[1].writes, row_word(3): 1e-30})
    first = replace(first, scenario="before")
    assert compare((first, far), (first, STEPS[1]))[1].largest_beyond[ROWS] > 1e300
