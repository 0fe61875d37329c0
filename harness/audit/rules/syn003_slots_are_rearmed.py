"""SYN003: the next round cannot take this round's data for its own."""

from __future__ import annotations

from collections.abc import Sequence

from harness.audit.analysis import Analysis
from harness.audit.decide import AuditResult, Decision, result_of, site_of
from harness.audit.mailboxes import Mailboxes, Spin
from harness.audit.model import Model

_REARMED = "another kernel arms the mailbox again before its next use"


class SlotsAreRearmed:
    """A consumed slot is set back to the word that means empty, or carries a tag that changes every round."""

    id = "SYN003"
    claim = "A mailbox slot is armed again after it was read, or its words carry a tag of the round"
    how = (
        "Looks what the spin compares the mailbox's words with: a constant needs a store of that constant to the same "
        "mailbox after the spin; a value that comes from an argument or a counter is a tag."
    )

    def decide(self, analysis: Analysis) -> Sequence[AuditResult]:
        """One result for each mailbox."""
        model, boxes = analysis.model, analysis.mailboxes
        if not boxes.spins:
            reason = "No loop spins on an argument declared a mailbox."
            return [result_of(self.id, model.kernel, Decision.NOT_APPLICABLE, reason)]
        return [self._decide(model, boxes, spin) for spin in boxes.spins]

    def _decide(self, model: Model, boxes: Mailboxes, spin: Spin) -> AuditResult:
        poll = spin.polls[-1]
        constants, is_tagged = boxes.sentinels(spin)
        rearms = boxes.rearms(spin)
        words = {_word(c) for c in constants}
        matching = [
            t for t, stored in rearms if stored and all(c is not None and _word(c) in words for c in stored)
        ]
        steady = [t for t, stored in rearms if stored and all(c is not None for c in stored)]
        assumptions: tuple[str, ...] = ()
        sites = tuple(site_of(t.instruction, "polls") for t in spin.polls)
        if matching:
            decision = Decision.PROVEN
            reason = (
                f"Line {matching[0].instruction.line} sets {poll.subject} back to the word that means empty."
            )
        elif is_tagged and not constants:
            decision = Decision.PROVEN
            reason = f"The words of {poll.subject} are compared with a tag that changes from round to round."
            assumptions = ("the tag differs between rounds that use the same slot",)
        elif boxes.assignment(poll).is_rearmed_elsewhere:
            decision, assumptions = Decision.PROVEN, (_REARMED,)
            reason = f"{poll.subject} is declared as armed again by another kernel."
        elif steady or (is_tagged and constants) or (rearms and not constants):
            decision = Decision.UNDECIDED
            reason = f"Whether a store to {poll.subject} makes it empty again cannot be told from what the spin tests."
            sites += tuple(site_of(t.instruction, "stores to the mailbox") for t in steady)
        else:
            decision = Decision.SHOWN
            reason = (
                f"The spin on {poll.subject} waits for its words to differ from a constant, and nothing after it sets "
                "them back: the next round reads this round's data."
            )
        return result_of(
            self.id,
            model.kernel,
            decision,
            reason,
            sites=sites,
            subject=poll.subject,
            assumptions=assumptions,
        )


def _word(constant: int) -> int:
    return constant & 0xFFFFFFFF
