"""The judge's own test: faults that it must find, their clean twins, and what it said of them."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated

from pydantic import Field, model_validator

from harness.model.record import Record
from harness.model.words import Principle, Tier, Verdict

Text = Annotated[str, Field(min_length=1, max_length=400)]


class Stage(StrEnum):
    """What is run anew for a case."""

    STATIC = "static"
    """What text and compilers show."""
    TESTS = "tests"
    """The change's own tests; no engine."""
    PROBE = "probe"
    """The scripted runs."""
    ARM = "arm"
    """The candidate, through the suites."""
    MADE = "made"
    """A made clean change: the candidate, through the suites of the profile that was asked for; every required check is
    expected to let it through that the profile asks."""
    TIMING = "timing"
    """All arms, timed."""
    GPU = "gpu"
    """What the gpu tier runs, but for timings."""
    BUNDLE = "bundle"
    """Nothing: a finished bundle is tampered with, and the gate asked."""
    EVIDENCE = "evidence"
    """The same with the bundle of a run of all arms, timed, which is made once."""

    @property
    def is_tampering(self) -> bool:
        """Whether a program edits a bundle, and no patch a tree."""
        return self in (Stage.BUNDLE, Stage.EVIDENCE)


class FaultDescription(Record):
    """`fault.toml` of one folder of the catalogue."""

    title: Text
    kind: Text
    """The kind that it stands for."""
    principle: Principle
    tier: Tier
    stage: Stage
    expected: tuple[Text, ...]
    """Checks of which each must fail; the gate's reasons where a bundle is tampered with. Empty only where no check
    could find it, which `escapes` then says, and at the stage `made`."""
    subject: str = ""
    """Of a finding of the first expected check that must fail; empty: any."""
    twin: Text
    """What the innocent change does that stands beside it."""
    source: str = ""
    """Where such a fault was met in public."""
    needs_kernel_compiler: bool = False
    """Whether kernels must be compiled, which takes an interpreter that has the DSL."""
    features: bool = False
    """Whether the served features must be asked."""
    escapes: str = ""
    """Why it is known not to be found, and which issue would close it; it is counted as an escape."""

    @model_validator(mode="after")
    def _expects_something(self) -> FaultDescription:
        if not self.expected and not self.escapes and self.stage is not Stage.MADE:
            raise ValueError("checks under `expected`, or `escapes` to say why there are none")
        return self

    @model_validator(mode="after")
    def _has_the_stage_of_its_tier(self) -> FaultDescription:
        if (self.tier is Tier.GPU) is not (self.stage is Stage.GPU):
            raise ValueError('`tier` and `stage` both "gpu", or neither')
        return self


NOT_ASKED = "not asked for"
"""In the reason of a case that the call left out, and not the machine."""

STOPPED = "the run was stopped before a verdict"
"""The reason of a case that a stopped run left."""


class CaseVerdict(StrEnum):
    """What became of a case."""

    DETECTED = "detected"
    ESCAPED = "escaped"
    CLEAN = "clean"
    FALSE_ALARM = "false alarm"
    UNDECIDED = "undecided"
    """A clean twin on which an expected check could not decide."""
    NOT_RUN = "not_run"
    ERROR = "error"


class CaseResult(Record):
    """One fault, or one twin, and what the judge said."""

    id: str
    is_twin: bool
    verdict: CaseVerdict
    principle: Principle
    tier: Tier
    expected: tuple[str, ...]
    fired: tuple[str, ...] = ()
    """Every check that failed, or reason of the gate."""
    open: tuple[str, ...] = ()
    """Checks that were to let a twin through and did not, none having failed."""
    seconds: float = 0.0
    """Wall time to the verdict."""
    change: Verdict | None = None
    """What the policy made of the change; None: a bundle was tampered with, or nothing was judged."""
    reason: str = ""
    is_known: bool = False
    """Whether its fault is known to escape."""


class Rate(Record):
    """A counted rate with its interval."""

    hits: int
    n: int
    low: float
    high: float
    confidence: float


class SelftestReport(Record):
    """All cases of one run."""

    schema_version: int = 2
    recorded_at: str
    tier: Tier
    """The most expensive tier that was asked for."""
    profile: str
    """How much was asked of engines."""
    only: tuple[str, ...] = ()
    """Faults that were asked for by name; none: the whole catalogue, or made changes."""
    hardware: str
    harness_version: str
    commit: str
    """Of the checkout when the run began; with `+` where its files were not those of the commit, or became others."""
    cases: tuple[CaseResult, ...]
    detection: Rate
    false_alarm: Rate
    undecided: Rate
    """Twins that were left undecided."""

    @property
    def is_whole(self) -> bool:
        """Whether no case broke."""
        return all(case.verdict is not CaseVerdict.ERROR for case in self.cases)

    @property
    def is_decided(self) -> bool:
        """Whether any case was run, each that was asked for was, and no twin was left undecided.

        Whoever names a fault asks for it, whatever it needs.
        """
        return any(case.verdict is not CaseVerdict.NOT_RUN for case in self.cases) and all(
            case.verdict is not CaseVerdict.UNDECIDED
            and (case.verdict is not CaseVerdict.NOT_RUN or (NOT_ASKED in case.reason and not self.only))
            for case in self.cases
        )


def count_detected(cases: Sequence[CaseResult]) -> tuple[int, int]:
    """Faults that were found, and faults that were run."""
    ran = [c.verdict for c in cases if not c.is_twin and c.verdict is not CaseVerdict.NOT_RUN]
    return sum(v is CaseVerdict.DETECTED for v in ran), len(ran)


def count_twins(cases: Sequence[CaseResult], verdict: CaseVerdict) -> tuple[int, int]:
    """Twins of which that was said, and twins that were run."""
    ran = [c.verdict for c in cases if c.is_twin and c.verdict is not CaseVerdict.NOT_RUN]
    return sum(v is verdict for v in ran), len(ran)
