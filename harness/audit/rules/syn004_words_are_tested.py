"""SYN004: every word that a spin takes out of a mailbox was seen to be ready."""

from __future__ import annotations

from collections.abc import Sequence

from harness.audit.analysis import Analysis
from harness.audit.decide import AuditResult, Decision, result_of, site_of
from harness.audit.mailboxes import Spin
from harness.audit.model import Model, Touch
from harness.audit.program import Immediate, Level, Register

_ONE_WORD = 8
"""Bytes that a machine load moves at once, whatever the source called them."""


class WordsAreTested:
    """The elements of a vector read are separate accesses: each that is used must be tested."""

    id = "SYN004"
    claim = "A vector read of a mailbox tests every element that it uses, since elements arrive separately"
    how = (
        "The PTX memory model takes a vector access as one access an element, in no order. Each element of a polled "
        "vector that is used anywhere must reach the condition that ends the spin."
    )

    def decide(self, analysis: Analysis) -> Sequence[AuditResult]:
        """One result for each vector with an untested element, or one for the kernel."""
        model, boxes = analysis.model, analysis.mailboxes
        if not boxes.spins:
            reason = "No loop spins on an argument declared a mailbox."
            return [result_of(self.id, model.kernel, Decision.NOT_APPLICABLE, reason)]
        results = [r for s in boxes.spins for t in s.polls if (r := self._decide(model, s, t)) is not None]
        if results:
            return results
        reason = "Every element of every polled read is tested."
        return [result_of(self.id, model.kernel, Decision.PROVEN, reason)]

    def _decide(self, model: Model, spin: Spin, touch: Touch) -> AuditResult | None:
        access, index = touch.access, touch.instruction.index
        count = access.num_elements
        if count <= 1:
            return None
        tested = {element for e in spin.ready for place, element in e.slice.loads if place == index}
        untested = [
            k for k in range(count) if k not in tested and _is_used(model, access.registers[k : k + 1])
        ]
        if not untested:
            return None
        size = access.element_bytes or 0
        wide = f"{count} elements of {size} bytes"
        sites = (
            site_of(touch.instruction, f"reads {wide}"),
            *(site_of(e.instruction, "tests") for e in spin.ready),
        )
        which = ", ".join(map(str, untested))
        if model.kernel.level is Level.SASS and (size * count) <= _ONE_WORD:
            return None
        if model.kernel.level is Level.SASS:
            reason = (
                f"Line {touch.instruction.line} polls {wide} of {touch.subject} and tests not all (not {which}); "
                "whether the source read one wide word or a vector cannot be seen in SASS."
            )
            return result_of(
                self.id, model.kernel, Decision.UNDECIDED, reason, sites=sites, subject=touch.subject
            )
        reason = (
            f"Line {touch.instruction.line} polls {wide} of {touch.subject} and uses elements that it does not test: "
            f"{which}. They may not have arrived yet."
        )
        return result_of(self.id, model.kernel, Decision.SHOWN, reason, sites=sites, subject=touch.subject)


def _is_used(model: Model, operands: tuple[object, ...]) -> bool:
    if not operands or isinstance(operands[0], Immediate) or not isinstance(operands[0], Register):
        return False
    name = operands[0].name
    return any(name in i.uses for i in model.kernel.instructions)
