"""What does not let the change through, in one list: for SARIF, annotations and the job summary."""

from __future__ import annotations

from dataclasses import dataclass

from harness.model.finding import Location
from harness.model.words import Outcome
from reports.marks import MARKS, WORST_FIRST
from reports.view import ReportView

NO_FINDING = "The check gave no finding, which is an error, never a pass."


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenFinding:
    """One finding, as machines are told of it."""

    check: str
    required: bool
    outcome: Outcome
    subject: str
    message: str
    advice: str
    place: Location | None

    @property
    def word(self) -> str:
        """The outcome in words."""
        return MARKS[self.outcome].word


def open_findings(view: ReportView) -> tuple[OpenFinding, ...]:
    """Every finding that does not let through: those of required checks first, the worst of them first."""
    found = []
    for card in view.checks:
        for finding in card.open:
            found.append(
                OpenFinding(
                    check=card.id.text,
                    required=card.required,
                    outcome=finding.outcome,
                    subject=finding.subject.text,
                    message=finding.message.text,
                    advice=finding.advice.text if finding.advice else "",
                    place=finding.place,
                )
            )
        if not card.findings:
            found.append(
                OpenFinding(
                    check=card.id.text,
                    required=card.required,
                    outcome=Outcome.ERROR,
                    subject=card.title.text,
                    message=NO_FINDING,
                    advice="",
                    place=None,
                )
            )
    return tuple(sorted(found, key=lambda f: (not f.required, WORST_FIRST.index(f.outcome))))
