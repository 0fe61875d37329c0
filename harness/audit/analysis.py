"""A kernel with its shared analyses, as the rules get it."""

from __future__ import annotations

from functools import cached_property

from harness.audit.barriers import Barriers
from harness.audit.completion import Completion
from harness.audit.mailboxes import Mailboxes
from harness.audit.model import Model
from harness.audit.triggered import Triggered
from harness.audit.unwaited import Unwaited


class Analysis:
    """Lazy: a rule pays for what it asks."""

    def __init__(self, model: Model) -> None:
        self.model = model

    @cached_property
    def barriers(self) -> Barriers:
        """Barriers and mbarriers."""
        return Barriers(self.model)

    @cached_property
    def unwaited(self) -> Unwaited:
        """What can run before the wait."""
        model = self.model
        places = {i.index: "anything" for i in model.unknown_instructions}
        for touch in model.touches:
            if touch.must_wait:
                places[touch.instruction.index] = f"{touch.access.effect} {touch.subject}"
        return Unwaited(model, self.barriers, places)

    @cached_property
    def completion(self) -> Completion:
        """What holds the grid's completion when not every thread waits."""
        return Completion(self.model, self.unwaited)

    @cached_property
    def triggered(self) -> Triggered:
        """What can run after the trigger."""
        return Triggered(self.model, self.barriers)

    @cached_property
    def mailboxes(self) -> Mailboxes:
        """Reads of mailboxes and the loops that spin on them."""
        return Mailboxes(self.model)
