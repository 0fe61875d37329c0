"""Laws of stated numbers: each is matched to a cell, contradicted, or reported as unsupported."""

from __future__ import annotations

import pytest

from harness.model.manifest import Claim
from perf_sweeps.claims import ClaimResult, Support, match_claim, match_text
from perf_sweeps.simulated import HARDWARE, Simulation
from tests.perf_sweeps.sweeps import decode_cells, judge, plan_of, simulate

PLAN = plan_of(decode_cells(1, 8))
CELLS = judge(PLAN, simulate(PLAN, Simulation(ratios={1: 1 / 1.5, 8: 1 / 1.2}))).cells


def claimed(value: float, batch: int = 1, hardware: str = HARDWARE) -> Support:
    claim = Claim(metric="decode_itl_speedup", batch=batch, value=value, hardware=hardware)
    return match_claim(claim, CELLS, 0.02).support


def stated(text: str) -> ClaimResult:
    (found,) = match_text(text, CELLS, 0.02)
    return found


@pytest.mark.parametrize(
    ("value", "support"),
    [
        (1.49, Support.SUPPORTED),
        (1.6, Support.CONTRADICTED),
        (1.53, Support.UNDECIDED),
    ],
)
def test_a_claim_needs_the_interval_of_its_cell(value: float, support: Support) -> None:
    assert claimed(value) is support


@pytest.mark.parametrize(("batch", "hardware"), [(4, HARDWARE), (1, "GB300")])
def test_a_claim_about_what_no_cell_measured_is_unsupported(batch: int, hardware: str) -> None:
    assert claimed(1.2, batch, hardware) is Support.UNSUPPORTED


@pytest.mark.parametrize(
    ("text", "support"),
    [
        ("At batch 1 decode is 1.49x as fast.", Support.SUPPORTED),
        ("At batch 8 decode is 1.49x as fast.", Support.CONTRADICTED),
        ("Decode is 1.19× as fast.", Support.SUPPORTED),
        ("Decode is 1.49x as fast.", Support.CONTRADICTED),
        ("batch size 4: 1.2x", Support.UNSUPPORTED),
        ("1.2x at batch 1 and batch 8", Support.UNSUPPORTED),
        ("36 % faster at batch 1", Support.UNSUPPORTED),
        ("batch 1: 910 tok/s", Support.SUPPORTED),
        ("batch 1: 1,364 tokens/s", Support.SUPPORTED),
        ("batch 1: 842 tok/s", Support.UNSUPPORTED),
        ("842 tok/s", Support.UNSUPPORTED),
        ("bs=1 takes 1.1 ms", Support.SUPPORTED),
        ("bs=1 takes 1100 us", Support.SUPPORTED),
        ("batch 8: 555 tok/s/user", Support.SUPPORTED),
    ],
)
def test_a_number_in_a_description_counts_only_with_a_cell_behind_it(text: str, support: Support) -> None:
    assert stated(text).support is support


@pytest.mark.parametrize("text", ["vLLM 0.33.0", "1x1 convolution", "#61867", "KimiK3", "4 GPUs"])
def test_what_is_no_measurement_is_no_claim(text: str) -> None:
    assert not match_text(text, CELLS, 0.02)


def test_every_number_of_a_line_is_looked_at() -> None:
    assert len(match_text("batch 1: 842 tok/s against 488 tok/s, 1.73x", CELLS, 0.02)) == 3
