"""Laws of the interval figure: places keep the order of the numbers, and nothing is drawn that was not measured."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from harness.model.finding import Measurement
from reports.interval import draw_interval

NUMBERS = st.floats(-1e9, 1e9)


def measurement(
    estimate: float, low: float | None = None, high: float | None = None, margin: float | None = None
) -> Measurement:
    return Measurement(name="x", unit="", estimate=estimate, ci_low=low, ci_high=high, margin=margin, n=1)


@given(NUMBERS, NUMBERS, NUMBERS, NUMBERS)
def test_places_keep_the_order_of_the_numbers_and_stay_on_the_axis(
    estimate: float, low: float, high: float, margin: float
) -> None:
    figure = draw_interval(measurement(estimate, low, high, margin))
    assert figure is not None
    pairs = [(estimate, figure.estimate), (low, figure.low), (high, figure.high), (margin, figure.margin)]
    for value, place in pairs:
        assert place is not None
        assert 0 <= place <= 100
        for other, other_place in pairs:
            assert other_place is not None
            assert value > other or place <= other_place


@given(NUMBERS)
def test_a_number_that_is_held_against_nothing_has_no_figure(estimate: float) -> None:
    assert draw_interval(measurement(estimate)) is None


def test_what_was_not_measured_is_not_drawn() -> None:
    figure = draw_interval(measurement(1.0, margin=2.0))
    assert figure is not None
    assert (figure.low, figure.high) == (None, None)
    assert figure.margin is not None


def test_an_interval_that_crosses_its_margin_is_drawn_across_it() -> None:
    figure = draw_interval(measurement(1.0, 0.98, 1.05, 1.02))
    assert figure is not None
    assert figure.low is not None
    assert figure.high is not None
    assert figure.margin is not None
    assert figure.low < figure.estimate < figure.margin < figure.high


def test_a_range_that_no_axis_holds_is_left_out_and_the_numbers_stay_in_the_text() -> None:
    assert draw_interval(measurement(0.0, -1.7e308, 1.7e308)) is None


def test_equal_numbers_lie_in_the_middle() -> None:
    figure = draw_interval(measurement(2.0, 2.0, 2.0, 2.0))
    assert figure is not None
    assert (figure.estimate, figure.margin) == (50, 50)
