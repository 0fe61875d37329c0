"""Stretches of work that CTAs take: every unit once, and the gathering of tiles that lie in several. No GPU."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specialized_path.kernels.moe_experts.shape import GateUpTactic
from specialized_path.kernels.moe_experts.shares import K_PARTS, first_unit, owner_of

SHARES = given(num_units=st.integers(1, 1024 * 6 * K_PARTS), num_blocks=st.integers(1, 160))


@SHARES
def test_stretches_follow_each_other_from_the_first_unit_to_the_last_and_differ_by_one_at_most(
    num_units: int, num_blocks: int
) -> None:
    firsts = [first_unit(block, num_blocks, num_units) for block in range(num_blocks + 1)]
    sizes = [after - before for before, after in pairwise(firsts)]
    assert (firsts[0], firsts[-1]) == (0, num_units)
    assert max(sizes) - min(sizes) <= 1


@given(num_units=st.integers(1, 4000), num_blocks=st.integers(1, 160))
def test_the_owner_of_a_unit_is_the_cta_whose_stretch_it_is_in(num_units: int, num_blocks: int) -> None:
    owners = [
        block
        for block in range(num_blocks)
        for _ in range(first_unit(block, num_blocks, num_units), first_unit(block + 1, num_blocks, num_units))
    ]
    assert [owner_of(unit, num_blocks, num_units) for unit in range(num_units)] == owners


@given(num_tiles=st.integers(1, 1024 * 6), num_blocks=st.integers(1, 160))
def test_no_cta_gathers_two_tiles_that_lie_in_others_too(num_tiles: int, num_blocks: int) -> None:
    """One room a CTA is then enough."""
    split = []
    for block in range(num_blocks):
        first, last = (first_unit(b, num_blocks, K_PARTS * num_tiles) for b in (block, block + 1))
        starts = range(-(-first // K_PARTS) * K_PARTS, last, K_PARTS)
        split.append(sum(start + K_PARTS > last for start in starts))
    assert max(split) <= 1


def test_the_numbers_of_the_largest_step_fit_into_32_bits() -> None:
    assert (1024 * 6 * K_PARTS + 1) * 160 < 2**31


def test_parts_of_k_are_those_of_the_form_that_serves() -> None:
    assert GateUpTactic(k_warps=16, depth=3, max_tokens=64).k_parts == K_PARTS


@pytest.mark.parametrize("block", [0, 131])
def test_with_fewer_units_than_ctas_some_take_none(block: int) -> None:
    assert first_unit(block + 1, 132, 1) - first_unit(block, 132, 1) == (block == 131)
