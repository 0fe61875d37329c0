"""What can run before `griddepcontrol.wait`: the one analysis behind PDL001, PDL003 and PDL004.

For each class of threads all ways that have not waited are walked. A place that no such way reaches is in order. A
place that one reaches, with nothing on the way that could order it, is shown out of order by that way. Between the two
lies what is not decidable.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from harness.audit.barriers import Barriers
from harness.audit.facts import Knowledge
from harness.audit.flags import flag_exits
from harness.audit.model import Model
from harness.audit.ordering import Census, Ordering
from harness.audit.program import Kind
from harness.audit.threads import ThreadClass
from harness.audit.unwaited_policy import UNKNOWN_KINDS, UnwaitedPolicy
from harness.audit.walk import EXIT, Mark, Walk, Walker
from harness.audit.witness import Way, contradiction, way_of

MAX_ROUNDS = 6
MAX_LINKS = 4
"""Links of a chain of barriers and mbarriers, from one thread's wait to another's read."""
MAX_LOOKS = 4
"""Accesses of one subject that are looked at in one round."""
MAX_TOTAL_STATES = 18_000
"""Beyond this nothing more is refined."""


class Verdict(Enum):
    """That a place can run before the wait: for certain, or perhaps."""

    SHOWN = "shown"
    UNDECIDED = "undecided"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The verdict on one place for one class."""

    verdict: Verdict
    way: Way | None = None
    doubt: str = ""
    """Why it is undecided."""


class Unwaited:
    """Verdicts for the places of interest of one kernel."""

    def __init__(self, model: Model, barriers: Barriers, subjects: Mapping[int, str]) -> None:
        self._model = model
        self._barriers = barriers
        places = frozenset(subjects)
        self._subjects = {**subjects, EXIT: ""}
        self._places = places | {EXIT}
        self._events = places | model.indices_of(Kind.WAIT, *UNKNOWN_KINDS)
        self.by_class: dict[ThreadClass, dict[int, Finding]] = {}
        """Findings other than `NEVER`. Once a place is shown, others of its subject are noted and not looked at."""
        self.classes: tuple[ThreadClass, ...] = ()
        self._shown: set[int] = set()
        self._num_states = 0
        self._tracked: frozenset[int] = frozenset()
        self._analyse()

    def at(self, place: int) -> list[tuple[ThreadClass, Finding]]:
        """The verdicts on one place that are not NEVER."""
        return [(c, f[place]) for c, f in self.by_class.items() if place in f]

    def _analyse(self) -> None:
        model = self._model
        first = self.walk(None, frozenset(), None, strict=False)[0]
        if first.is_complete and not (set(first.arrivals) & self._places):
            return
        region = frozenset(b for s in first.states for b in (s.block, *s.through))
        gathering = (*self._barriers.instructions, *self._barriers.objects, *flag_exits(model).values())
        self.classes = model.classes(region, self._events | {i.index for i in gathering})
        ordering = self._make_ordering(region)
        for threads in self.classes:
            findings = self._refine(threads, ordering)
            if findings:
                self.by_class[threads] = findings
                shown = {self._subjects[p] for p, f in findings.items() if f.verdict is Verdict.SHOWN}
                self._shown |= {p for p in self._places if p != EXIT and self._subjects[p] in shown}

    def walk(
        self, threads: ThreadClass | None, tracked: frozenset[int], ordering: Ordering | None, *,
        strict: bool, counts_only: bool = False, sees_arrivals: bool = False,
        specials: Mapping[str, int] | None = None,
    ) -> tuple[Walk, UnwaitedPolicy]:  # fmt: skip
        """All ways of a class that have not waited, with what the policy noted on them."""
        model = self._model
        knowledge = Knowledge(model.graph, model.values, model.expressions, threads, tracked, specials)
        gathering = (*self._barriers.instructions, *self._barriers.tests)
        flags = () if ordering is None else ordering.flags.values()
        events = frozenset(self._events | {i.index for i in (*gathering, *flags)})
        if counts_only or sees_arrivals:
            events |= {i.index for i, _ in self._barriers.arrivals}
        policy = UnwaitedPolicy(
            model, knowledge, events, threads, ordering, strict=strict, counts_only=counts_only
        )
        start: Mark = () if ordering is None else ordering.start
        walk = Walker(model.graph, model.expressions, knowledge, policy).walk(start)
        self._num_states += len(walk.states)
        return walk, policy

    def _make_ordering(self, region: frozenset[int]) -> Ordering | None:
        """None when no thread could order another: no barrier, no flag, or no wait at all."""
        model = self._model
        has_wait = bool(model.indices_of(Kind.WAIT))
        inside = [i for i in self._barriers.instructions if model.graph.block_of[i.index] in region]
        if not has_wait or not (inside or self._barriers.tests or flag_exits(model)):
            return None
        keys = [k for i in inside if (k := self._barriers.key_of(i)) is not None and k.number is not None]
        ordering = Ordering(model, self._barriers, tuple(dict.fromkeys(keys)))
        arrivals: set[int] = set()
        self._tracked = self._initial(region, ordering)
        for threads in self.classes:
            walk, policy = self.walk(threads, self._tracked, ordering, strict=False, counts_only=True)
            reached = frozenset(walk.arrivals)
            ordering.censuses[threads] = Census(policy.records, walk.is_complete, reached)
            arrivals |= set(walk.arrivals)
        ordering.unwaited_arrivals = frozenset(arrivals)
        ordering.close()
        self._follow_arrivals(ordering)
        return ordering

    def _follow_arrivals(self, ordering: Ordering) -> None:
        """Chains: an arrival behind a barrier or an mbarrier that is ordered is ordered itself."""
        if not (self._barriers.tests and self._barriers.arrivals):
            return
        for _ in range(MAX_LINKS):
            fewer = ordering.unwaited_arrivals & self._arrivals(ordering, strict=False)
            if fewer == ordering.unwaited_arrivals:
                break
            ordering.unwaited_arrivals = fewer
        for _ in range(MAX_LINKS):
            more = self._arrivals(ordering, strict=True)
            if more == ordering.surely_unwaited:
                break
            ordering.surely_unwaited = more

    def _arrivals(self, ordering: Ordering, *, strict: bool) -> frozenset[int]:
        """Arrivals at mbarriers that some class reaches before any order."""
        found: set[int] = set()
        places = frozenset(i.index for i, _ in self._barriers.arrivals)
        for threads in self.classes:
            census = ordering.censuses[threads]
            if census.is_complete and not census.reached & places:
                continue
            walk, _ = self.walk(threads, self._tracked, ordering, strict=strict, sees_arrivals=True)
            if not walk.is_complete:
                return frozenset() if strict else ordering.unwaited_arrivals
            found |= set(walk.arrivals)
        return frozenset(found)

    def _may_reach(self, census: Census) -> bool:
        """Whether a class reaches a place of interest that is not yet shown, if nothing orders it."""
        return not census.is_complete or bool(census.reached & (self._places - self._shown))

    def _initial(self, region: frozenset[int], ordering: Ordering) -> frozenset[int]:
        """Conditions to remember from the start: those that all threads share, and the phases of mbarriers."""
        model = self._model
        tracked: set[int] = set()
        deciding = model.indices_of(Kind.WAIT) | {i.index for i in self._barriers.instructions}
        for guard in model.guards(region, deciding):
            parts = {p for truth in (True, False) for p, _ in model.expressions.literal(guard, truth)}
            if len(tracked) < 8:
                tracked |= {
                    p for p in parts if ordering.is_uniform(p) and model.expressions[p].constant is None
                }
        for instruction in self._barriers.objects:
            mbarrier = instruction.mbarrier
            if mbarrier is None or mbarrier.parity is None or len(tracked) > 16:
                continue
            if model.graph.block_of[instruction.index] in region:
                parity = model.expressions.of_operand(instruction.index, mbarrier.parity)
                if model.expressions[parity].constant is None:
                    tracked.add(parity)
                    tracked |= {model.expressions.of_value(v) for v in model.expressions.leaves(parity)}
        return frozenset(tracked)

    def _refine(self, threads: ThreadClass, ordering: Ordering | None) -> dict[int, Finding]:
        """Walk, look for ways that contradict themselves, remember what they forgot, walk again."""
        if ordering is not None and not self._may_reach(ordering.censuses[threads]):
            return {}
        tracked = self._tracked
        shown: dict[int, Way] = {}
        findings: dict[int, Finding] | None = None
        for _ in range(MAX_ROUNDS):
            loose, policy = self.walk(threads, tracked, ordering, strict=False)
            if not loose.is_complete:
                break
            is_sure = not (policy.doubts or self._model.unknown_instructions)
            strict = loose if is_sure else self.walk(threads, tracked, ordering, strict=True)[0]
            checks = _Checks(self._model, threads, policy, loose, strict, shown, self._subjects)
            findings = checks.check_all((set(loose.arrivals) & self._places) - self._shown)
            learned = checks.most_telling(tracked)
            if not learned or self._num_states > MAX_TOTAL_STATES:
                break
            tracked |= learned
        if findings is None:
            doubt = "there are too many ways to look at"
            return {p: Finding(verdict=Verdict.UNDECIDED, doubt=doubt) for p in self._places - self._shown}
        return findings


class _Checks:
    """Verdicts on the places that one round of walks reached."""

    def __init__(
        self,
        model: Model,
        threads: ThreadClass,
        policy: UnwaitedPolicy,
        loose: Walk,
        strict: Walk,
        shown: dict[int, Way],
        subjects: Mapping[int, str],
    ) -> None:
        self._subjects = subjects
        self._model = model
        self._threads = threads
        self._policy = policy
        self._loose = loose
        self._strict = strict
        self._shown = shown
        self._checked: dict[object, frozenset[int]] = {}
        self._causes: Counter[frozenset[int]] = Counter()

    def check_all(self, places: set[int]) -> dict[int, Finding]:
        """All places, those first that nothing can have ordered; one shown place settles its subject."""
        findings: dict[int, Finding] = {}
        last: dict[str, Finding] = {}
        looked: Counter[str] = Counter()
        for place in sorted(places, key=lambda p: (p not in self._strict.arrivals, p)):
            subject = self._subjects[place]
            known = last.get(subject)
            if known is not None and (known.verdict is Verdict.SHOWN or looked[subject] >= MAX_LOOKS):
                findings[place] = Finding(
                    verdict=Verdict.UNDECIDED, doubt=known.doubt or "as another access of it"
                )
                continue
            looked[subject] += 1
            findings[place] = last[subject] = self.check(place)
        return findings

    def check(self, place: int) -> Finding:
        """SHOWN by a way that nothing could have ordered, and that does not contradict itself."""
        if place in self._shown:
            return Finding(verdict=Verdict.SHOWN, way=self._shown[place])
        arrival = self._strict.arrivals.get(place) if self._strict.is_complete else None
        walk, sure = (self._strict, True) if arrival is not None else (self._loose, False)
        arrival = arrival or self._loose.arrivals[place]
        way = way_of(self._model.graph, walk, arrival, place, self._threads)
        same = (sure, arrival.state, arrival.choices)
        if same not in self._checked:
            self._checked[same] = contradiction(self._model, way)
        causes = self._checked[same]
        if causes:
            self._causes[causes] += 1
            return Finding(verdict=Verdict.UNDECIDED, way=way, doubt="the only way found contradicts itself")
        if sure:
            self._shown[place] = way
            return Finding(verdict=Verdict.SHOWN, way=way)
        return Finding(verdict=Verdict.UNDECIDED, way=way, doubt=self._doubt(way))

    def most_telling(self, tracked: frozenset[int]) -> frozenset[int]:
        """What most of the contradictions need to be seen, if it is not remembered yet."""
        for causes, _ in sorted(
            self._causes.items(), key=lambda item: (-item[1], len(item[0]), sorted(item[0]))
        ):
            if causes - tracked:
                return causes - tracked
        return frozenset()

    def _doubt(self, way: Way) -> str:
        doubts = self._policy.doubts
        passed = [i for i in way.instructions if i.index in doubts or i.kind in UNKNOWN_KINDS]
        first = next(iter(passed or doubts.values()), None)
        if first is None:
            return "the ways to it could not be told apart"
        if first.kind in UNKNOWN_KINDS:
            return f"line {first.line} may wait or not: {first.text}"
        return f"line {first.line} may or may not order it after another thread's wait: {first.text}"
