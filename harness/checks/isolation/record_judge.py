"""Checks that judge the latest record of one kind of evidence, and name it in each finding."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Generic

from harness.model.check import BaseCheck, CheckContext
from harness.model.evidence import E
from harness.model.finding import Finding, Location
from harness.model.words import Outcome


class RecordJudge(ABC, Generic[E]):
    """The decision over one record."""

    def __init__(self, check: BaseCheck, context: CheckContext, record: E) -> None:
        self._check = check
        self._context = context
        self._record = record

    @abstractmethod
    def findings(self) -> Iterator[Finding]:
        """All that the check says about the record, at least one finding."""

    def _finding(
        self,
        outcome: Outcome,
        subject: str,
        message: str,
        *,
        advice: str = "",
        location: Location | None = None,
        details: Sequence[str] = (),
    ) -> Finding:
        return self._check.finding(
            outcome,
            subject,
            message,
            advice=advice,
            location=location,
            details=details,
            evidence=[self._record.id],
        )


def judge_latest(
    check: BaseCheck,
    context: CheckContext,
    kind: type[E],
    judge: type[RecordJudge[E]],
    *,
    subject: str,
    unread: str,
) -> list[Finding]:
    """The judge's findings over the latest record of a kind; `not_run` where nothing was read.

    Args:
        check: whose findings they are.
        context: of the judgement.
        kind: of evidence.
        judge: of one record.
        subject: of the finding when there is no record.
        unread: its message.
    """
    records = context.evidence.of(kind)
    if not records:
        advice = "Run `fasttrack validate` in a clone that holds the head."
        return [check.finding(Outcome.NOT_RUN, subject, unread, advice=advice)]
    return list(judge(check, context, records[-1]).findings())
