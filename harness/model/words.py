"""The one vocabulary: outcomes, verdicts, principles, tiers, arms, exit codes."""

from __future__ import annotations

from enum import IntEnum, StrEnum


class Outcome(StrEnum):
    """What one finding says about its claim; absence of evidence is never `pass`."""

    PASS = "pass"
    FAIL = "fail"
    INCONCLUSIVE = "inconclusive"
    NOT_RUN = "not_run"
    NOT_APPLICABLE = "not_applicable"
    ERROR = "error"

    @property
    def lets_through(self) -> bool:
        """Whether a required check with this outcome lets the change through."""
        return self in (Outcome.PASS, Outcome.NOT_APPLICABLE)


class Verdict(StrEnum):
    """What the judge says about a whole change."""

    ADMIT = "admit"
    REJECT = "reject"
    UNDECIDED = "undecided"


class Principle(StrEnum):
    """The four questions that a change must answer."""

    ISOLATION = "isolation"
    SCOPE = "scope"
    CORRECTNESS = "correctness"
    PERFORMANCE = "performance"


class Tier(StrEnum):
    """What a check costs, cheapest first."""

    STATIC = "static"
    CPU = "cpu"
    GPU = "gpu"
    NODE = "node"
    CLUSTER = "cluster"

    @property
    def rank(self) -> int:
        """Position in the order of cost, 0 for `static`."""
        return list(Tier).index(self)


class Arm(StrEnum):
    """Which of the compared servers a record concerns."""

    BASELINE = "baseline"
    CANDIDATE = "candidate"
    BASELINE_AGAIN = "baseline_again"


class TrustLevel(StrEnum):
    """Whose word the evidence is, weakest first."""

    CONTRIBUTOR = "contributor"
    MAINTAINER = "maintainer"
    REPLICATED = "replicated"

    @property
    def rank(self) -> int:
        """Position in the order, 0 for `contributor`."""
        return list(TrustLevel).index(self)


class ExitCode(IntEnum):
    """Process exit codes of every command; never reused for anything else."""

    ADMIT = 0
    REJECT = 1
    USAGE = 2
    UNDECIDED = 3
    HARNESS = 4
    INTERRUPTED = 130
