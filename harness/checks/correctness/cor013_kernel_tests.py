"""COR013: a test that passed on a GPU launched every kernel variant, as the head commit has it."""

from __future__ import annotations

from collections.abc import Sequence

from harness.checks.joins.kernel_sources import undeclared_kernels, untested_kernels
from harness.checks.joins.missing import missing_ruling
from harness.checks.joins.ruling import Ruling, finding_of
from harness.model.check import BaseCheck, CheckContext
from harness.model.evidence import KernelTestsEvidence
from harness.model.finding import Finding
from harness.model.words import Outcome, Principle, Tier

ALL = "*"
"""The glob of a record that is held against the whole inventory."""
_AGAIN = (
    "Run `fasttrack kernels test --out FILE` at the head commit on a GPU, and pass it on with --kernel-tests."
)


class KernelTests(BaseCheck):
    """The kernels' own tests, by record."""

    id = "COR013"
    title = "Tests that pass on a GPU launch every kernel variant"
    principle = Principle.CORRECTNESS
    tier = Tier.GPU
    how = (
        "Reads the records of `fasttrack kernels test`: their sources must be the head's, no test may fail, and every "
        "variant of the inventory must have been launched by a test that passed. A skipped test has not run."
    )

    def run(self, context: CheckContext) -> Sequence[Finding]:
        """One finding for the records that do not count, one for the tests, one for the variants, one for memory."""
        records = context.evidence.of(KernelTestsEvidence, tier=self.tier)
        if not records:
            return [self._missing(context)]
        void = {record.id: why for record in records if (why := why_void(record))}
        counted = [record for record in records if record.id not in void]
        rulings = {"records": decide_void(list(void.values()))} if void else {}
        if counted:
            rulings["tests"] = decide_tests(counted)
            rulings["variants"] = decide_variants(counted)
            if untested := untested_kernels(context, {path for r in counted for path in r.run.sources}):
                rulings["kernel sources"] = untested
            rulings["memory"] = decide_memory(counted)
        ids = [record.id for record in records]
        return [finding_of(self, name, ruling, ids) for name, ruling in rulings.items()]

    def _missing(self, context: CheckContext) -> Finding:
        """Without a record: not run, unless the change has no kernel for a GPU."""
        kernels = context.manifest.kernels
        if kernels.entries or kernels.inventory or kernels.tests:
            missing = missing_ruling(
                context.evidence, self.tier, "the kernels' tests on a GPU", "kernel tests"
            )
            return finding_of(self, "kernel tests", missing)
        return finding_of(self, "kernel tests", *undeclared_kernels(context))


def why_void(record: KernelTestsEvidence) -> str:
    """Why a record shows nothing of the change's kernels on a GPU; empty when it does."""
    run = record.run
    if run.machine is None:
        return f"The run of {run.recorded_at} used no GPU."
    if not run.sources:
        return f"The run of {run.recorded_at} does not say of which sources it is."
    if others := record.other_sources:
        more = f" and {len(others) - 3} more" if len(others) > 3 else ""
        return f"The run of {run.recorded_at} is of other sources: {', '.join(others[:3])}{more}."
    if unnamed := record.unnamed_sources:
        more = f" and {len(unnamed) - 3} more" if len(unnamed) > 3 else ""
        return f"The run of {run.recorded_at} does not name what its tests import: {', '.join(unnamed[:3])}{more}."
    return ""


def decide_void(reasons: Sequence[str]) -> Ruling:
    """Records that do not count leave open what they were to show."""
    return Ruling(
        outcome=Outcome.NOT_RUN,
        message=f"{len(reasons)} records of the kernels' tests do not count.",
        advice=_AGAIN,
        details=tuple(reasons),
    )


def decide_tests(records: Sequence[KernelTestsEvidence]) -> Ruling:
    """Whether no test went wrong; one that was skipped shows nothing, and its variants are asked for by themselves."""
    tests = [test for record in records for test in record.run.tests]
    wrong = [test for test in tests if test.outcome in ("failed", "error")]
    passed = sum(test.outcome == "passed" for test in tests)
    skipped = sum(test.outcome == "not_run" for test in tests)
    early = [record.run for record in records if record.run.stopped_by or record.run.exit_status]
    text = f"{passed} of {len(tests)} tests passed, {len(wrong)} failed, {skipped} were not run."
    if wrong:
        outcome = Outcome.FAIL
    elif early:
        outcome = Outcome.INCONCLUSIVE
        text += f" {len(early)} runs did not come to their end."
    else:
        outcome = Outcome.PASS if passed else Outcome.NOT_RUN
    return Ruling(
        outcome=outcome,
        message=text,
        advice="" if outcome is Outcome.PASS else _AGAIN,
        details=tuple(f"{test.test}: {test.outcome}: {test.reason}" for test in wrong)
        + tuple(
            f"run of {r.recorded_at}: {r.stopped_by or f'pytest ended with {r.exit_status}'}" for r in early
        ),
    )


def decide_variants(records: Sequence[KernelTestsEvidence]) -> Ruling:
    """Whether every variant was launched by a passed test of one of the records."""
    whole = [set(record.run.never_launched) for record in records if record.run.match == ALL]
    if not whole:
        return Ruling(
            outcome=Outcome.NOT_RUN,
            message="No record is held against the whole inventory, so which variants it lacks is not known.",
            advice="Make one of them without --match.",
        )
    launched = {
        name
        for record in records
        for test in record.run.tests
        if test.outcome == "passed"
        for name in test.launched
    }
    missing = sorted(set.union(*whole) - launched)
    return Ruling(
        outcome=Outcome.NOT_RUN if missing or not launched else Outcome.PASS,
        message=f"{len(launched)} variants were launched by passed tests; {len(missing)} of the inventory never were.",
        advice=_AGAIN if missing or not launched else "",
        details=tuple(f"{name}: launched by no test that passed" for name in missing),
    )


def decide_memory(records: Sequence[KernelTestsEvidence]) -> Ruling:
    """What compute-sanitizer's memcheck reported, where it was asked for."""
    seen = [record.run.memcheck for record in records if record.run.memcheck is not None]
    dirty = [check for check in seen if not check.is_clean]
    if dirty:
        return Ruling(
            outcome=Outcome.FAIL if any(check.num_errors for check in dirty) else Outcome.INCONCLUSIVE,
            message=f"memcheck reported {sum(check.num_errors for check in dirty)} errors in {len(dirty)} records.",
            advice="See the lines below; a process that it did not follow to its end shows nothing.",
            details=tuple(line for check in dirty for line in check.findings),
        )
    if not seen:
        return Ruling(
            outcome=Outcome.NOT_APPLICABLE, message="No record was made under memcheck (--memcheck)."
        )
    return Ruling(outcome=Outcome.PASS, message=f"memcheck reported nothing in {len(seen)} records.")
