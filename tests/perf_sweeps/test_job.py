"""Laws of jobs: one machine is no replication, and two that contradict each other decide nothing."""

from __future__ import annotations

from typing import Any

import pytest

from harness.model.errors import ConfigurationError
from harness.model.words import Arm, Outcome, Verdict
from perf_sweeps.analysis import SweepResult
from perf_sweeps.job import Return, parse_job, replicate
from perf_sweeps.simulated import Simulation
from tests.perf_sweeps.sweeps import decode_cells, in_arm, judge, plan_of, simulate, with_visits

PLAN = plan_of(decode_cells(1, 4))


def result(ratio: float = 0.9, hardware: str = "a", **lost: Any) -> SweepResult:
    blocks = [b.model_copy(update={"hardware": hardware}) for b in simulate(PLAN, Simulation(ratio=ratio))]
    return judge(PLAN, [with_visits(b, in_arm(Arm.CANDIDATE, **lost)) for b in blocks])


def said(
    *results: SweepResult, trust: str = "contributor", signers: str = "xyz"
) -> tuple[Verdict, set[Outcome]]:
    returns = [Return(signer=s, trust=trust, result=r) for s, r in zip(signers, results, strict=False)]
    verdict, cells = replicate(returns)
    return verdict, {c.outcome for c in cells}


def test_two_signers_whose_intervals_overlap_replicate_a_cell() -> None:
    assert said(result(), result(0.9001)) == (Verdict.ADMIT, {Outcome.PASS})


def test_one_machine_alone_is_no_replication() -> None:
    assert said(result())[0] is Verdict.UNDECIDED


def test_one_signer_twice_is_one_signer() -> None:
    assert said(result(), result(), signers="xx")[0] is Verdict.UNDECIDED


def test_a_key_that_the_policy_does_not_know_counts_for_nothing() -> None:
    assert said(result(), result(), trust="unknown")[0] is Verdict.UNDECIDED
    assert said(result(1.2), trust="unknown")[0] is Verdict.UNDECIDED


def test_a_known_signer_who_shows_it_slower_rejects() -> None:
    assert said(result(1.1), result(1.1)) == (Verdict.REJECT, {Outcome.FAIL})


def test_machines_that_contradict_each_other_decide_nothing() -> None:
    assert said(result(0.9), result(1.1)) == (Verdict.UNDECIDED, {Outcome.INCONCLUSIVE})


def test_intervals_that_do_not_overlap_decide_nothing_though_both_pass() -> None:
    assert said(result(0.9), result(0.8)) == (Verdict.UNDECIDED, {Outcome.INCONCLUSIVE})


def test_other_hardware_replicates_nothing() -> None:
    assert said(result(), result(hardware="b")) == (Verdict.UNDECIDED, {Outcome.INCONCLUSIVE})


def test_a_job_with_wrong_fields_names_them_all() -> None:
    with pytest.raises(ConfigurationError, match=r"head: .*num_blocks: "):
        parse_job('{"num_blocks": 1}', "job.json")
