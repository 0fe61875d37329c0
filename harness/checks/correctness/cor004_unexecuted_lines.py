"""COR004: the evaluations executed the lines of the subject that this tier is expected to run."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from harness.checks.joins.missing import arm_need, missing_ruling
from harness.checks.joins.ruling import Ruling, combine_rulings, finding_of
from harness.model.check import BaseCheck, CheckContext
from harness.model.evidence import CoverageEvidence, CoverageFile, SubjectEvidence, SuiteEvidence
from harness.model.finding import Finding, Location, Measurement
from harness.model.globs import matching_glob
from harness.model.words import Arm, Outcome, Principle, Tier

START = "start"
"""Name under which lines are recorded that ran before the first suite."""


class UnexecutedLines(BaseCheck):
    """Executable lines of the subject that no evaluation on the candidate executed."""

    id = "COR004"
    title = "The evaluations execute the lines of the subject that they are evidence for"
    principle = Principle.CORRECTNESS
    tier = Tier.CPU
    requires = ("COR005",)
    how = (
        "Line coverage in the candidate's worker, for the files under [coverage] cpu, against the policy's share; "
        "a file that was never imported is missed whole."
    )

    def run(self, context: CheckContext) -> Sequence[Finding]:
        """One finding for the whole, and one a file that falls short."""
        globs = context.manifest.coverage.cpu
        subject = "files under [coverage] cpu"
        if not globs:
            text = "The manifest names no files under [coverage] cpu, so nothing shows that their lines ran."
            advice = "Name the files that a CPU can execute."
            return [self.finding(Outcome.NOT_RUN, subject, text, advice=advice)]
        records = [r for r in context.evidence.of(CoverageEvidence, tier=self.tier) if r.arm is Arm.CANDIDATE]
        committed = context.evidence.of(SubjectEvidence)
        if not records or not committed:
            what = (
                "line coverage of the candidate's worker" if committed else "the subject's files at the head"
            )
            ruling = missing_ruling(
                context.evidence, self.tier, what, arm_need(Arm.CANDIDATE), "coverage", "subject"
            )
            return [finding_of(self, subject, ruling)]
        evidence = (*(record.id for record in records), committed[-1].id)
        wanted = sorted(p for p in committed[-1].files if p.endswith(".py") and matching_glob(p, globs))
        findings = [
            self._unmatched(glob) for glob in globs if not any(matching_glob(p, [glob]) for p in wanted)
        ]
        if not wanted:
            return findings
        measured = merge_files(f for record in records for f in record.files)
        never = [p for p in wanted if p not in measured or not _ran(measured[p])]
        present = [measured[p] for p in wanted if p in measured]
        suites = {
            r.suite for r in context.evidence.of(SuiteEvidence, tier=self.tier) if r.arm is Arm.CANDIDATE
        }
        share = context.policy.min_executed_line_share
        rulings = [decide_lines(present, share), *decide_suites(present, suites, share)]
        ruling = combine_rulings(rulings)
        findings.append(finding_of(self, subject, ruling, evidence))
        findings += [
            self.finding(
                Outcome.FAIL,
                path,
                "The candidate's worker never executed a line of this file.",
                advice="Remove it, exercise it, or leave it out of [coverage] cpu and say which tier runs it.",
                location=Location(path=path),
                evidence=evidence,
            )
            for path in never
            if path not in measured or measured[path].executable_lines
        ]
        return findings

    def _unmatched(self, glob: str) -> Finding:
        return self.finding(
            Outcome.NOT_RUN,
            glob,
            f'The glob "{glob}" under [coverage] cpu matches no Python file of the head commit.',
            advice="Correct the glob or remove it.",
        )


def merge_files(files: Iterable[CoverageFile]) -> dict[str, CoverageFile]:
    """Each file once, with the lines that ran in any of the candidate's processes."""
    merged: dict[str, CoverageFile] = {}
    for file in files:
        known = merged.get(file.path, file)
        suites = known.executed_lines.keys() | file.executed_lines.keys()
        lines = {
            suite: tuple(sorted({*known.executed_lines.get(suite, ()), *file.executed_lines.get(suite, ())}))
            for suite in sorted(suites)
        }
        merged[file.path] = known.model_copy(update={"executed_lines": lines})
    return merged


def decide_lines(files: Sequence[CoverageFile], min_share: float) -> Ruling:
    """The executed share of the executable lines of all files, and the missed ranges of each."""
    total = sum(len(set(f.executable_lines)) for f in files)
    if total == 0:
        return Ruling(
            outcome=Outcome.INCONCLUSIVE, message="The coverage record has no executable line of these files."
        )
    ran = sum(len(_ran(f)) for f in files)
    by_evaluation = sum(len(_ran(f, with_start=False)) for f in files)
    share = ran / total
    missed = tuple(f"{f.path}: lines {ranges}" for f in files if (ranges := render_ranges(_missed(f))))
    measurement = Measurement(name="executed lines", unit="share", estimate=share, margin=min_share, n=total)
    text = (
        f"{ran} of {total} executable lines ran ({share:.1%}, required {min_share:.0%}), "
        f"{by_evaluation} of them during an evaluation."
    )
    if by_evaluation == 0:
        outcome, text = (
            Outcome.FAIL,
            f"{text} The files were imported, and no evaluation executed any of them.",
        )
    else:
        outcome = Outcome.PASS if share >= min_share else Outcome.FAIL
    return Ruling(
        outcome=outcome,
        message=text,
        advice="Add requests that reach the listed lines, or remove what cannot be reached."
        if outcome is Outcome.FAIL
        else "",
        measurements=(measurement,),
        details=missed,
    )


def decide_suites(files: Sequence[CoverageFile], suites: Collection[str], min_share: float) -> list[Ruling]:
    """Whether each suite ran most of the lines that any of them ran; nothing when there are fewer than two.

    A path that is left for other code on the way, behind the functions that the ledger counts, runs fewer lines from
    there on.
    """
    ran = {
        suite: {
            (f.path, n) for f in files for n in set(f.executed_lines.get(suite, ())) & set(f.executable_lines)
        }
        for suite in suites
    }
    lines = {suite: found for suite, found in ran.items() if found}
    union = set().union(*lines.values())
    if len(lines) < 2:
        return []
    shares = {suite: len(found) / len(union) for suite, found in lines.items()}
    least = min(shares, key=lambda suite: shares[suite])
    few = {suite: share for suite, share in sorted(shares.items()) if share < min_share}
    if few:
        text = f"{len(few)} of {len(lines)} suites ran less than {min_share:.0%} of the lines that all of them ran, "
        text += "so other code may have served their tokens."
        return [
            Ruling(
                outcome=Outcome.INCONCLUSIVE,
                message=text,
                advice="Show with requests of these suites which code serves them.",
                details=tuple(f"{suite}: {share:.1%} of {len(union)} lines" for suite, share in few.items()),
            )
        ]
    text = f"Each of {len(lines)} suites ran at least {shares[least]:.0%} of what any of them ran."
    return [Ruling(outcome=Outcome.PASS, message=text)]


def _ran(file: CoverageFile, *, with_start: bool = True) -> set[int]:
    """Executable lines that ran in some suite, or before the first one."""
    lines = {n for suite, ran in file.executed_lines.items() if with_start or suite != START for n in ran}
    return lines & set(file.executable_lines)


def _missed(file: CoverageFile) -> list[int]:
    return sorted(set(file.executable_lines) - _ran(file))


def render_ranges(lines: Iterable[int]) -> str:
    """Line numbers as ranges: "3-5, 9"."""
    ranges: list[list[int]] = []
    for line in lines:
        if ranges and line == ranges[-1][1] + 1:
            ranges[-1][1] = line
        else:
            ranges.append([line, line])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in ranges)
