"""ISO011: on a GPU a specialised step changes the cache pages of its own requests, and of no other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from harness.checks.isolation.iso008_declared_writes import (
    decide_layers,
    decide_observed,
    decide_silent,
    decide_slots,
    silent_steps,
    specialised_steps,
)
from harness.checks.joins.probes import find_probe
from harness.checks.joins.ruling import Ruling, finding_of
from harness.model.check import BaseCheck, CheckContext
from harness.model.finding import Finding
from harness.model.words import Outcome, Principle, Tier


class PagesOnAGpu(BaseCheck):
    """Every page of the cache that differs after a specialised step, by its owner."""

    id = "ISO011"
    title = "On a GPU a specialised step changes only declared caches, in pages of its own requests"
    principle = Principle.ISOLATION
    tier = Tier.GPU
    how = (
        "Compares all pages of the engine's cache before and after each specialised step of the scripted run on a GPU, "
        "replayed graphs included; each page that differs must be one that a request of the step owns, in a layer "
        "under [state]."
    )

    def run(self, context: CheckContext) -> Sequence[Finding]:
        """Findings for pages of others, undeclared layers, and steps that were not seen to write."""
        probe = find_probe(context, self.tier)
        if isinstance(probe, Ruling):
            return [finding_of(self, "specialised steps", probe)]
        state = context.manifest.state
        if state is None:
            text = "The manifest does not say what a specialised step of this deployment may write."
            advice = "Declare caches and states under [models.slice.state], or [state] without a slice."
            return [self.finding(Outcome.NOT_RUN, "specialised steps", text, advice=advice)]
        steps = specialised_steps(probe, context.manifest.dispatch.targets)
        dead = decide_observed(steps)
        if dead is not None:
            return [finding_of(self, "specialised steps", dead, [probe.id])]
        silent = silent_steps(steps)
        steps = tuple(s for s in steps if s.writes)
        pages = decide_slots(steps)
        if pages.outcome is Outcome.PASS:
            replayed = sum(s.row.graph_replayed for s in steps)
            text = f"All pages that {len(steps)} specialised steps changed, {replayed} of them replays of a graph, were"
            pages = replace(pages, message=f"{text} of the step's own requests.")
        rulings = {"pages": pages, "declared layers": decide_layers(steps, state)}
        if silent:
            rulings["steps without a write"] = decide_silent(silent)
        return [finding_of(self, name, ruling, [probe.id]) for name, ruling in rulings.items()]
