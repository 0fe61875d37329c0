"""Laws of blocks: every arm twice, mirrored, and nobody always first."""

from __future__ import annotations

from collections import Counter

import pytest

from harness.model.words import Arm
from perf_sweeps.block import ALL_ARMS, block_order
from tests.perf_sweeps.sweeps import decode_cells, plan_of

TWO = (Arm.BASELINE, Arm.CANDIDATE)


@pytest.mark.parametrize("arms", [TWO, ALL_ARMS])
@pytest.mark.parametrize("index", range(4))
def test_a_block_is_a_palindrome_so_that_all_arms_have_one_mean_position(
    arms: tuple[Arm, ...], index: int
) -> None:
    order = block_order(arms, index)
    places = {arm: sum(i for i, a in enumerate(order) if a is arm) for arm in arms}
    assert len(set(places.values())) == 1


def test_two_arms_go_a_b_b_a_and_then_b_a_a_b() -> None:
    a, b = TWO
    assert (*block_order(TWO, 0), *block_order(TWO, 1)) == (a, b, b, a, b, a, a, b)


def test_each_arm_begins_as_many_blocks_as_any_other() -> None:
    assert set(Counter(block_order(ALL_ARMS, i)[0] for i in range(6)).values()) == {2}


def test_the_plan_holds_every_block_of_every_cell_once_and_cells_of_an_engine_together() -> None:
    plan = plan_of(decode_cells(1, 2, 4), num_blocks=5)
    tasks = plan.tasks()
    assert len({task.key for task in tasks}) == len(tasks) == 15


def test_a_plan_that_asks_for_other_cells_blocks_seed_or_subject_has_another_digest() -> None:
    plan = plan_of(decode_cells(1, 2))
    others = [
        plan_of(decode_cells(1)),
        plan_of(decode_cells(1, 2), num_blocks=7),
        plan_of(decode_cells(1, 2), seed=1),
        plan.model_copy(update={"subject": "another"}),
        plan.model_copy(update={"prompts_digest": "x"}),
    ]
    assert len({p.digest for p in (plan, *others)}) == 6
