"""The negative control: a slice of a suite once more, on a candidate that is made wrong on purpose."""

from __future__ import annotations

from eval_suites.suite import Suite, run_suite
from harness.app.arm_session import ArmSession
from harness.app.recorder import Recorder, utc_now
from harness.model.errors import EngineError
from harness.model.evidence import SuiteEvidence
from harness.model.words import Arm, Tier

AMPLITUDE = 4.0
"""Standard deviation of the noise over the root mean square of a row. A trained model shrugs off as much noise as
signal: the miniature then still says 99 of 100 tokens of an answer right, 90 at twice and 35 at four times as much."""


def collect_control(recorder: Recorder, session: ArmSession, suite: Suite) -> None:
    """Puts the candidate through a control suite while what its specialised code returns is noisy.

    The suite is one of `eval_suites.eval_set.control_of`, after the suite that it is a slice of. Nothing may be
    running on the session. A subject whose specialised code returns no tensor, or never ran, leaves a gap. Nothing is
    done where the record is there already.
    """
    what = f"suite {suite.name} on {Arm.CANDIDATE}"
    if recorder.evidence.suite(suite.name, Arm.CANDIDATE, Tier.CPU) is not None:
        return
    recorder.progress.say(f"{Arm.CANDIDATE}: {suite.name}, {suite.num_requests} requests")
    try:
        session.begin_suite(suite.name)
        session.perturb(AMPLITUDE, suite.seed)
        try:
            items = run_suite(suite, session.completer)
        finally:
            num_calls = session.perturb(0, 0)
    except EngineError as error:
        recorder.broken(Tier.CPU, what, error)
        return
    if num_calls == 0:
        reason = "no call of the specialised code returned a floating-point tensor that could be made wrong"
        recorder.gap(Tier.CPU, what, reason, broke=False)
    # Kept without a changed call, too: the ledger accounts for every request that was sent.
    recorder.record(
        SuiteEvidence(
            tier=Tier.CPU,
            recorded_at=utc_now(),
            hardware=recorder.hardware,
            command=session.command,
            seed=suite.seed,
            suite=suite.name,
            arm=Arm.CANDIDATE,
            perturbation=f"Gaussian noise of {AMPLITUDE:g} times the root mean square of each row on what the "
            f"specialised code returns, seed {suite.seed}",
            num_perturbed_calls=num_calls,
            items=items,
        )
    )
