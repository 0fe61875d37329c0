"""What can be stored after `griddepcontrol.launch_dependents`: the analysis behind PDL002."""

from __future__ import annotations

from dataclasses import dataclass, field

from harness.audit.barriers import BarrierKey, Barriers
from harness.audit.cfg import Edge
from harness.audit.decide import Site, site_of
from harness.audit.facts import Facts, Knowledge
from harness.audit.model import Model, Need, Touch
from harness.audit.ordering import MAX_COUNT, MAX_KEYS
from harness.audit.program import BarrierAction, Instruction, Kind
from harness.audit.threads import ThreadClass
from harness.audit.walk import Mark, Walk, Walker
from harness.audit.witness import Way, contradiction, way_of

MAX_ROUNDS = 8
_UNKNOWN_KINDS = (Kind.CALL, Kind.OPAQUE, Kind.OPAQUE_BRANCH)


@dataclass(frozen=True, slots=True, kw_only=True)
class Late:
    """A store that a trigger may precede."""

    subject: str
    reason: str
    note: str
    is_sure: bool
    way: Way | None = None
    before: tuple[Site, ...] = ()
    """Sites of another thread, ahead of the way."""


@dataclass(slots=True)
class _Tally:
    """Barrier counts seen at one instruction over all ways."""

    marks: list[Mark] = field(default_factory=list)

    def most(self, place: int) -> int:
        return max(m[place] for m in self.marks)

    def least(self, place: int) -> int:
        return min(m[place] for m in self.marks)


class _Policy:
    """Marks a way as triggered, and counts barriers until then."""

    def __init__(
        self, model: Model, barriers: Barriers, events: frozenset[int], keys: tuple[BarrierKey, ...]
    ) -> None:
        self.events = events
        self.tallies: dict[int, _Tally] = {}
        self._keys = keys
        self._barriers = barriers
        self._offset = len(model.kernel.instructions)
        self._tests = {
            i.index for i in barriers.objects if i.mbarrier and i.mbarrier.action is BarrierAction.TEST
        }

    def key(self, instruction: Instruction, facts: Facts, mark: Mark) -> int:  # noqa: ARG002
        """Arrivals after the trigger are told apart from those before."""
        return instruction.index + self._offset * mark[0]

    def visit(self, instruction: Instruction, facts: Facts, mark: Mark) -> Mark:  # noqa: ARG002
        if not mark[0]:
            self.tallies.setdefault(instruction.index, _Tally()).marks.append(mark)
        if instruction.kind is Kind.TRIGGER:
            return (1, *([0] * (len(mark) - 1)))
        if instruction.barrier is not None and not mark[0]:
            return self._count(instruction, mark)
        return mark

    def _count(self, instruction: Instruction, mark: Mark) -> Mark:
        key = self._barriers.key_of(instruction)
        if key not in self._keys or instruction.barrier is None:
            return mark
        place = 1 + 2 * self._keys.index(key)
        counts = list(mark)
        if instruction.barrier.action in (BarrierAction.SYNC, BarrierAction.ARRIVE):
            counts[place] = min(MAX_COUNT, counts[place] + 1)
        if instruction.barrier.action in (BarrierAction.SYNC, BarrierAction.WAIT):
            counts[place + 1] = min(MAX_COUNT, counts[place + 1] + 1)
        return tuple(counts)

    def cross(self, edge: Edge, branch: Instruction, facts: Facts, mark: Mark) -> Mark:  # noqa: ARG002
        return mark

    def finish(self, facts: Facts, mark: Mark) -> None:
        """The end says nothing about stores."""

    def is_final(self, instruction: Instruction) -> bool:
        return instruction.kind in (Kind.TRIGGER, Kind.BARRIER)


@dataclass(slots=True)
class _Seen:
    """One class: its walk, its counts, the ways to late stores."""

    walk: Walk
    policy: _Policy
    late: dict[int, tuple[Way, bool]]
    """By instruction: the way, and whether it is free of contradiction."""


class Triggered:
    """Stores that may come after the trigger."""

    def __init__(self, model: Model, barriers: Barriers) -> None:
        self._model = model
        self._barriers = barriers
        self._stores = {t.instruction.index: t for t in model.writes if t.dependent_need is not Need.NO}
        self._unknown = {i.index for i in model.unknown_instructions}
        self._triggers = model.indices_of(Kind.TRIGGER)
        gathering = {i.index for i in (*barriers.instructions, *barriers.tests)}
        self._events = frozenset(set(self._stores) | self._unknown | self._triggers | gathering)
        keys = [
            k for i in barriers.instructions if (k := barriers.key_of(i)) is not None and barriers.is_full(k)
        ]
        self._keys = tuple(dict.fromkeys(keys))[:MAX_KEYS]
        self.relies_on_each_thread = False
        self.late: list[Late] = []
        self._analyse()

    def _analyse(self) -> None:
        blocks = frozenset(range(len(self._model.graph.blocks)))
        by_subject: dict[str, Late] = {}
        seen: dict[ThreadClass, _Seen] = {}
        for threads in self._model.classes(blocks, self._events):
            done = {
                p
                for p, t in self._stores.items()
                if t.subject in by_subject and by_subject[t.subject].is_sure
            }
            seen[threads] = self._see(threads, done)
            for late in self._own(seen[threads]):
                self._keep(by_subject, late)
            if all(t.subject in by_subject and by_subject[t.subject].is_sure for t in self._stores.values()):
                break
        for threads, one in seen.items():
            for late in self._of_others(threads, one, seen, by_subject):
                self._keep(by_subject, late)
        self.late = list(by_subject.values())

    def _keep(self, by_subject: dict[str, Late], late: Late) -> None:
        known = by_subject.get(late.subject)
        if known is None or (late.is_sure and not known.is_sure):
            by_subject[late.subject] = late

    def _see(self, threads: ThreadClass, done: set[int]) -> _Seen:
        """One class; stores in `done` are not looked at again."""
        model = self._model
        tracked: frozenset[int] = frozenset()
        late: dict[int, tuple[Way, bool]] = {}
        for _ in range(MAX_ROUNDS):
            knowledge = Knowledge(model.graph, model.values, model.expressions, threads, tracked)
            policy = _Policy(model, self._barriers, self._events, self._keys)
            start = (0,) * (1 + 2 * len(self._keys))
            walk = Walker(model.graph, model.expressions, knowledge, policy).walk(start)
            if not walk.is_complete and late:
                break
            late, learned = self._late_ways(walk, threads, done)
            if not walk.is_complete or not learned - tracked:
                break
            tracked |= learned
        return _Seen(walk, policy, late)

    def _late_ways(
        self, walk: Walk, threads: ThreadClass, done: set[int]
    ) -> tuple[dict[int, tuple[Way, bool]], set[int]]:
        count = len(self._model.kernel.instructions)
        late: dict[int, tuple[Way, bool]] = {}
        learned: set[int] = set()
        checked: dict[object, frozenset[int]] = {}
        for key in sorted(walk.arrivals):
            place = key - count
            if place in done or (place not in self._stores and place not in self._unknown):
                continue
            arrival = walk.arrivals[key]
            way = way_of(self._model.graph, walk, arrival, place, threads)
            same = (arrival.state, arrival.choices)
            if same not in checked:
                checked[same] = contradiction(self._model, way)
            causes = checked[same]
            learned |= causes
            late[place] = (way, not causes and walk.is_complete)
        return late, learned

    def _own(self, one: _Seen) -> list[Late]:
        """Stores after the same thread's trigger, the surest way to each argument."""
        best: dict[str, tuple[int, Way, bool]] = {}
        for place, (way, is_possible) in one.late.items():
            touch = self._stores.get(place)
            subject = touch.subject if touch is not None else "anything"
            sure = is_possible and touch is not None and touch.dependent_need is Need.YES
            if subject not in best or (sure and not best[subject][2]):
                best[subject] = (place, way, sure)
        return [self._late(subject, *found) for subject, found in best.items()]

    def _late(self, subject: str, place: int, way: Way, sure: bool) -> Late:
        instruction = self._model.kernel.instructions[place]
        trigger = next(i for i in way.instructions if i.kind is Kind.TRIGGER)
        verb = "stores to" if place in self._stores else "may store to"
        reason = f"Line {instruction.line} {verb} {subject} after the trigger in line {trigger.line}"
        reason += "." if sure else ", but whether it can is not clear."
        note = f"{verb} {subject} after the trigger"
        return Late(subject=subject, reason=reason, note=note, is_sure=sure, way=way)

    def _of_others(
        self, threads: ThreadClass, one: _Seen, seen: dict[ThreadClass, _Seen], known: dict[str, Late]
    ) -> list[Late]:
        """Stores of a class that never triggers itself, which another class's trigger must be ordered after."""
        if any(t in one.policy.tallies for t in self._triggers):
            self.relies_on_each_thread = True
            return []
        found = []
        for place, touch in self._stores.items():
            tally = one.policy.tallies.get(place)
            if tally is None or (touch.subject in known and known[touch.subject].is_sure):
                continue
            for other, theirs in seen.items():
                for trigger in sorted(self._triggers & set(theirs.policy.tallies)):
                    if other is not threads and not self._is_ordered(tally, theirs.policy.tallies[trigger]):
                        found.append(self._unordered(touch, threads, one, other, theirs, trigger))
                        break
        return found

    def _is_ordered(self, store: _Tally, trigger: _Tally) -> bool:
        places = range(1, 1 + 2 * len(self._keys), 2)
        return any(store.most(p) < min(MAX_COUNT, trigger.least(p + 1)) for p in places)

    def _unordered(
        self, touch: Touch, threads: ThreadClass, one: _Seen, other: ThreadClass, theirs: _Seen, trigger: int
    ) -> Late:
        model = self._model
        instruction = model.kernel.instructions[trigger]
        way = way_of(model.graph, theirs.walk, theirs.walk.arrivals[trigger], trigger, other)
        might_order = any(
            (i.barrier is not None and self._barriers.key_of(i) not in self._keys)
            or (i.mbarrier is not None and i.mbarrier.action is BarrierAction.TEST)
            or i.index in self._unknown
            for i in way.instructions
        )
        own = way_of(
            model.graph,
            one.walk,
            one.walk.arrivals[touch.instruction.index],
            touch.instruction.index,
            threads,
        )
        line = touch.instruction.line
        sure = not might_order and touch.dependent_need is Need.YES and one.walk.is_complete
        reason = (
            f"Line {line} stores to {touch.subject} in {threads.label}; {other.label} trigger in line "
            f"{instruction.line} with no barrier between"
        )
        reason += "." if sure else ", unless something on the way orders them."
        return Late(
            subject=touch.subject,
            reason=reason,
            note=f"stores to {touch.subject}, not ordered before that trigger",
            is_sure=sure,
            way=own,
            before=(site_of(instruction, f"triggers (by {other.label})"),),
        )
