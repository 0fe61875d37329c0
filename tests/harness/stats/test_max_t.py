"""Laws of the alarm over many cells."""

from __future__ import annotations

import numpy as np
import pytest

from harness.stats.max_t import max_t_p_values
from harness.stats.paired_ratio import sign_flip_p


def test_one_cell_alone_has_the_exact_sign_flip_p_value() -> None:
    values = [0.4, -0.1, 0.3, 0.25, 0.2, 0.6]
    assert max_t_p_values([values]) == pytest.approx([sign_flip_p([-v for v in values])])


def test_five_blocks_that_are_all_slower_have_the_smallest_p_value_there_is() -> None:
    assert max_t_p_values([[0.1, 0.12, 0.09, 0.1, 0.11]]) == (1 / 32,)


def test_more_cells_never_make_a_cell_more_alarming() -> None:
    rng = np.random.default_rng(1)
    cells = [list(rng.normal(0.5, 1, 8)) for _ in range(6)]
    assert max_t_p_values(cells)[0] >= max_t_p_values(cells[:1])[0]


def test_a_false_alarm_over_twenty_quiet_cells_is_as_rare_as_alpha() -> None:
    rng = np.random.default_rng(2)
    alarms = sum(min(max_t_p_values(rng.normal(0, 1, (20, 8)).tolist())) <= 0.05 for _ in range(400))
    assert alarms <= 32, "20 expected of 400; 32 is 2.7 standard deviations above"


def test_one_slow_cell_among_nineteen_quiet_ones_is_found() -> None:
    cells = np.random.default_rng(3).normal(0, 1, (20, 10))
    cells[7] += 4
    p_values = max_t_p_values(cells.tolist())
    assert [i for i, p in enumerate(p_values) if p <= 0.05] == [7]


def test_cells_of_unequal_length_and_a_cell_of_zeros_are_taken() -> None:
    p_values = max_t_p_values([[1.0, 1.1, 0.9, 1.2, 1.0, 0.8], [0.0, 0.0], [0.1, -0.1, 0.2]])
    assert p_values[0] < 0.05 < p_values[1]


@pytest.mark.parametrize("values", [[], [[]], [[float("nan")]]])
def test_nothing_to_test_is_refused(values: list[list[float]]) -> None:
    with pytest.raises(ValueError):
        max_t_p_values(values)
