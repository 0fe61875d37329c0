"""What the gate reads of the commits by itself, in place of what bundles say of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from bundles.readings import ABOUT_THE_MAKING
from harness.app.collector import collector_paused
from harness.app.inward import InwardEvidence, collect_inward_evidence
from harness.app.kernels import collect_kernel_sources
from harness.app.reaching import StaticQuestion, engine_source, read_outside
from harness.facts.engine_source import EngineSource
from harness.model.effects import FoundName, NameSearch
from harness.model.evidence import (
    AnyEvidence,
    EvidenceRecord,
    EvidenceSet,
    KernelSourcesEvidence,
    PythonEffectsEvidence,
    SurfaceEvidence,
)

LookedUpEvidence = PythonEffectsEvidence | SurfaceEvidence
"""Kinds that also say where names are in the engine, which a gate without an engine cannot look up."""
ReadEvidence = InwardEvidence | KernelSourcesEvidence | LookedUpEvidence
"""Kinds that git's objects give, apart from those names."""
_LOOKED_UP = frozenset({"searched", "searches"})


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnReading:
    """What git's objects of the gating repository say of the change."""

    records: tuple[ReadEvidence, ...]
    """One of each kind."""
    knows_engine: bool
    """Whether names were looked up in vLLM's own files: the merge base's, or those that this machine has installed."""

    @property
    def known(self) -> tuple[type[EvidenceRecord], ...]:
        """Kinds of which nothing is taken from a bundle."""
        return tuple(
            type(mine) for mine in self.records if self.knows_engine or not isinstance(mine, LookedUpEvidence)
        )

    def stands_in(self, records: Sequence[AnyEvidence]) -> tuple[AnyEvidence, ...]:
        """The records of bundles with the gate's in the place of every one that it reads itself.

        Without an engine, where names are in the engine is taken from the bundle that supplies the record.
        """
        told = EvidenceSet(tuple(records))
        return (
            *(record for record in records if not isinstance(record, ReadEvidence)),
            *(self._looked_up(mine, told) for mine in self.records),
        )

    def differing_fields(self, records: Iterable[AnyEvidence]) -> Iterator[tuple[str, str]]:
        """Kind and fields of what records say otherwise than the gate reads it, or do not say at all."""
        told = EvidenceSet(tuple(records))
        for mine in self.records:
            theirs = told.of(type(mine))
            if not theirs:
                yield mine.kind, "no record"
            left = mine.model_dump(mode="json", exclude=set(ABOUT_THE_MAKING | _LOOKED_UP))
            for record in theirs:
                right = record.model_dump(mode="json", include=set(left))
                fields = [name for name in left if left[name] != right[name]]
                if fields:
                    yield mine.kind, f"other {', '.join(fields)}"

    def _looked_up(self, mine: ReadEvidence, told: EvidenceSet) -> ReadEvidence:
        if self.knows_engine or not isinstance(mine, LookedUpEvidence):
            return mine
        theirs: LookedUpEvidence | None = next(iter(told.of(type(mine))), None)
        if theirs is None:
            return mine
        # The repository's own files were searched here, so that a bundle can only add to what they hold.
        found: dict[str, tuple[FoundName, ...]] = {}
        for search in (*mine.searches, *theirs.searches):
            found[search.name] = tuple(dict.fromkeys((*found.get(search.name, ()), *search.found)))
        searches = tuple(NameSearch(name=name, found=places) for name, places in found.items())
        return mine.model_copy(update={"searched": theirs.searched, "searches": searches})


def read_commits(question: StaticQuestion) -> OwnReading:
    """Reads both commits, in seconds, and the engine's files as text where there are any."""
    with collector_paused(), question.kept():
        source = engine_source(question)
        known = source if source.holds_engine else EngineSource(names=(), files={})
        records = (
            *collect_inward_evidence(question),
            collect_kernel_sources(question),
            *read_outside(question, known),
        )
        return OwnReading(records=records, knows_engine=source.holds_engine)
