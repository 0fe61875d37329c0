"""A finding: what one check says about one subject, with the evidence it rests on."""

from __future__ import annotations

from typing import Self

from pydantic import model_validator

from harness.model.record import Record
from harness.model.words import Outcome, Principle, Tier


class Location(Record):
    """A place in the change: a repository path (POSIX, relative) and, where known, lines from 1."""

    path: str
    line: int | None = None
    end_line: int | None = None


class Measurement(Record):
    """A number that a finding rests on, with its interval and the margin it is held against.

    `n` is the number of independent units (blocks, items, prompts) behind `estimate`.
    """

    name: str
    unit: str
    estimate: float
    ci_low: float | None = None
    ci_high: float | None = None
    margin: float | None = None
    n: int
    hardware: str = ""
    """What the number was measured on; empty for numbers that no machine changes."""


class ItemScores(Record):
    """An item of an evaluation that the arms score differently, from 0 to 1."""

    item: str
    """Its name in the suite's answers."""
    baseline: float
    candidate: float
    baseline_again: float


class Finding(Record):
    """One claim about one subject and what the evidence says of it.

    A finding that says `pass` or `fail` without evidence does not parse.
    """

    check: str
    principle: Principle
    tier: Tier
    subject: str
    """What the claim is about: a path, a cell, a feature."""
    outcome: Outcome
    message: str
    """One or two plain sentences with the numbers that decided."""
    advice: str = ""
    """What to do about it; empty when nothing needs doing."""
    location: Location | None = None
    evidence: tuple[str, ...] = ()
    """Identifiers of the evidence records that decided."""
    measurements: tuple[Measurement, ...] = ()
    items: tuple[ItemScores, ...] = ()
    """Answers that the arms score differently, for the drill-down; of the suites among `evidence`."""
    details: tuple[str, ...] = ()
    """Further lines for the drill-down: items that differ, files, a traceback."""

    @model_validator(mode="after")
    def _decided_needs_evidence(self) -> Self:
        if self.outcome in (Outcome.PASS, Outcome.FAIL) and not self.evidence:
            raise ValueError(f"{self.check}: outcome {self.outcome} without evidence")
        if not self.message.strip():
            raise ValueError(f"{self.check}: a finding needs a message")
        return self
