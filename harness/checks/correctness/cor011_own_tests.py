"""COR011: the change's own tests say something about what the subject computes."""

from __future__ import annotations

from collections.abc import Sequence

from harness.checks.joins.missing import missing_ruling
from harness.checks.joins.own_tests import JudgedTest, Worth, judge_tests
from harness.checks.joins.ruling import Ruling, finding_of
from harness.model.check import BaseCheck, CheckContext
from harness.model.evidence import ChangedFilesEvidence, OwnTestsEvidence
from harness.model.finding import Finding, Location
from harness.model.own_tests import OwnTestFile, is_test_name, own_test_paths
from harness.model.paths import PathClass, PathRules
from harness.model.words import Outcome, Principle, Tier

SUBJECT = "the change's own tests"
ADVICE = "Compare what the subject computes with an oracle, or with numbers worked out by hand."


class OwnTests(BaseCheck):
    """The tests that a change brings, by a control experiment."""

    id = "COR011"
    title = "The change's own tests say something about what the subject computes"
    principle = Principle.CORRECTNESS
    tier = Tier.CPU
    how = (
        "The changed test files are run as they are, then again with what the subject gives them falsified: a test "
        "that passes both times says nothing of the values."
    )

    def run(self, context: CheckContext) -> Sequence[Finding]:
        """One finding a changed test file."""
        changed = context.evidence.of(ChangedFilesEvidence)
        if not changed:
            return [
                finding_of(self, SUBJECT, missing_ruling(context.evidence, self.tier, "the changed files"))
            ]
        rules = PathRules(context.manifest.paths, context.policy)
        paths = own_test_paths(changed[-1].files, rules)
        if not paths:
            return [finding_of(self, SUBJECT, _without_tests(changed[-1], rules))]
        records = [
            r
            for r in context.evidence.of(OwnTestsEvidence, tier=self.tier)
            if r.commit == context.change.head and {f.path for f in r.files} == set(paths)
        ]
        if not records:
            ruling = missing_ruling(
                context.evidence, self.tier, f"runs of {len(paths)} test files", "own tests"
            )
            return [finding_of(self, SUBJECT, ruling)]
        return self._by_file(records[-1])

    def _by_file(self, record: OwnTestsEvidence) -> list[Finding]:
        tests = judge_tests(record.tests, record.num_outside)
        shown = frozenset(f for test in tests if test.worth is Worth.VALUES for f in test.functions)
        may_show = any(test.worth.is_open for test in tests) or any(f.is_missing_here for f in record.files)
        findings = []
        for file in record.files:
            own = [test for test in tests if test.path == file.path]
            ruling = _of_problem(file) if file.problem else _of_file(own, shown, may_show)
            finding = finding_of(self, file.path, ruling, (record.id,))
            findings.append(finding.model_copy(update={"location": Location(path=file.path)}))
        return findings


def _without_tests(changed: ChangedFilesEvidence, rules: PathRules) -> Ruling:
    code = [
        f.path
        for f in changed.files
        if rules.classify(f.path).path_class in (PathClass.OWNED, PathClass.HOOK) and not is_test_name(f.path)
    ]
    if not code:
        return Ruling(
            outcome=Outcome.NOT_APPLICABLE, message="The change edits neither the subject nor a test of it."
        )
    return Ruling(
        outcome=Outcome.INCONCLUSIVE,
        message=f"The change edits {len(code)} files of the subject and no test that would show what they do.",
        advice="Add a test that fails without the change, or say which test of the repository covers it.",
        details=tuple(code),
    )


def _of_problem(file: OwnTestFile) -> Ruling:
    if file.is_missing_here:
        return Ruling(
            outcome=Outcome.NOT_RUN,
            message=f"No test of this file can run on this machine: {file.problem.rstrip('.')}.",
            advice="Run them where they can run, or test on a CPU what a CPU can show.",
        )
    return Ruling(
        outcome=Outcome.FAIL,
        message=f"pytest finds no test in this file: {file.problem.rstrip('.')}.",
        advice="Repair the file, or give it another name if it is no test.",
    )


def _of_file(tests: Sequence[JudgedTest], shown: frozenset[str], may_show: bool) -> Ruling:
    """What the tests of one file come to; `shown` are the functions whose values some test of the change notices."""
    failures = [line for test in tests for line in test.failures]
    details = (*failures, *(test.text for test in tests))
    if failures:
        text = f"{len(failures)} cases of its {len(tests)} tests do not pass as they are: {failures[0]}."
        return Ruling(outcome=Outcome.FAIL, message=text, advice="Repair them.", details=details)
    outcome, text = _decide(tests, shown, may_show)
    advice = "" if outcome.lets_through else ADVICE
    return Ruling(outcome=outcome, message=text, advice=advice, details=details)


def _decide(tests: Sequence[JudgedTest], shown: frozenset[str], may_show: bool) -> tuple[Outcome, str]:
    count = {worth: sum(test.worth is worth for test in tests) for worth in Worth}
    said = ", ".join(f"{n} {worth}" for worth, n in count.items() if n)
    if count[Worth.VALUES]:
        return Outcome.PASS, f"Of {len(tests)} tests {count[Worth.VALUES]} notice falsified values ({said})."
    summary = f"None of its {len(tests)} tests notices falsified values ({said})."
    called = frozenset(f for test in tests for f in test.functions)
    open_tests = [test for test in tests if test.worth.is_open]
    if called and called <= shown:
        return (
            Outcome.PASS,
            f"{summary} Other tests of the change do, of all {len(called)} functions that it calls.",
        )
    if open_tests and all(test.worth is Worth.NOT_RUN for test in open_tests):
        return Outcome.NOT_RUN, summary
    if open_tests:
        return Outcome.INCONCLUSIVE, summary
    if shown and count[Worth.STRANGER] == len(tests):
        return Outcome.NOT_APPLICABLE, f"{summary} Other tests of the change do."
    if shown:
        untested = f", but not of {', '.join(sorted(called - shown))}" if called else ""
        return Outcome.INCONCLUSIVE, f"{summary} Other tests of the change do{untested}."
    if may_show:
        return Outcome.INCONCLUSIVE, f"{summary} What other tests of the change would show is not known here."
    return (
        Outcome.FAIL,
        f"{summary} No other test of the change does, so they are no evidence of what it computes.",
    )
