"""Every interleaving of the mailbox protocol, for a few ranks and exchanges: what is read, lost, or waited for.

The model is weaker than the machine, so what holds here holds there: a store to any box may arrive at any later
time and in any order, except that a rank's own emptying has arrived before a kernel behind it publishes (one that
has executed the dependency wait finds all earlier kernels complete and flushed). A kernel that publishes what it has
itself just read, as the owners of a two-shot exchange do, has no such wait between. Reads see what has arrived.

Source of the idea: bounded model checking of caching protocols; Lamport's mailbox as used by all-reduce kernels.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

_EMPTY = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """One exchange of the run."""

    copy: int
    """The copy of the boxes that it fills."""
    rows: int
    """Rows that every rank publishes."""
    is_reduced: bool = False
    """Whether the kernel that reads and empties the exchange before publishes this one, each row once it has read that
    row of all ranks: the second half of a two-shot exchange."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Protocol:
    """A run to check, and the rules that may be broken on purpose."""

    num_ranks: int
    exchanges: tuple[Exchange, ...]
    emptied_before_publishing: bool = True
    """The dependency wait between a rank's emptying and its next publishing."""
    checks_every_row: bool = True
    """Whether a reader waits for every row, or for the first one only."""
    empties_every_row: bool = True
    """Whether a reader empties all rows that it read, or only the first one."""
    absent_rank: int | None = None
    """A rank that publishes nothing."""

    def __post_init__(self) -> None:
        """Refuses a reduced exchange that has none before it, or another number of rows than that."""
        for before, exchange in zip((None, *self.exchanges), self.exchanges, strict=False):
            if exchange.is_reduced and (before is None or before.rows != exchange.rows):
                raise ValueError(f"a reduced exchange of {exchange.rows} rows: got {before} before it")

    def is_reduced(self, number: int) -> bool:
        """Whether there is an exchange of this number that is published while the one before is read."""
        return number < len(self.exchanges) and self.exchanges[number].is_reduced


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """A run that goes wrong."""

    kind: str
    """`stale read`, `lost data`, `stuck` or `not empty at the end`."""
    trace: tuple[str, ...]
    """The events up to it."""


_Slot = tuple[int, int, int, int]
"""Box of rank, copy, publishing rank, row."""
_Place = tuple[int, frozenset[_Slot] | None]
"""A rank's exchange, and the slots that it has yet to read; None before it has published."""
_State = tuple[tuple[_Place, ...], frozenset[tuple[_Slot, int]], frozenset[tuple[_Slot, int]]]
"""Place of each rank; what the full slots hold; stores on their way."""


def find_violation(
    protocol: Protocol, *, sought: str | None = None, max_states: int = 2_000_000
) -> tuple[Violation | None, int]:
    """The first violation in breadth-first order, so with a shortest trace, and the number of states seen.

    With `sought` only a violation of that kind counts; a run ends, unseen, where it goes wrong in another way.

    Raises:
        ValueError: the run has more than `max_states` states, so nothing is known.
    """
    start: _State = (((0, None),) * protocol.num_ranks, frozenset(), frozenset())
    origin: dict[_State, tuple[_State, str] | None] = {start: None}
    frontier = [start]
    while frontier:
        following: list[_State] = []
        for state in frontier:
            wrong, successors = _explore(protocol, state, sought)
            if wrong is not None:
                kind, event = wrong
                trace = _trace(origin, state) + ((event,) if event else ())
                return Violation(kind=kind, trace=trace), len(origin)
            for event, successor in successors:
                if successor not in origin:
                    origin[successor] = (state, event)
                    following.append(successor)
        if len(origin) > max_states:
            raise ValueError(f"more than {max_states} states: make the run smaller")
        frontier = following
    return None, len(origin)


def _explore(
    protocol: Protocol, state: _State, sought: str | None
) -> tuple[tuple[str, str] | None, list[tuple[str, _State]]]:
    """What goes wrong in the next event, if anything does, and the states that may follow."""
    wrong: list[tuple[str, str]] = []
    successors: list[tuple[str, _State]] = []
    for kind, event, successor in _events(protocol, state):
        if successor is None:
            wrong.append((kind, event))
        else:
            successors.append((event, successor))
    if not successors and not wrong:
        if any(number < len(protocol.exchanges) for number, _ in state[0]):
            wrong.append(("stuck", ""))
        elif state[1]:
            wrong.append(("not empty at the end", ""))
    return next((found for found in wrong if sought in (None, found[0])), None), successors


def _events(protocol: Protocol, state: _State) -> Iterator[tuple[str, str, _State | None]]:
    """(violation or empty, what happens, the state after it)."""
    places, held, flying = state
    contents = dict(held)
    for store in sorted(flying):
        slot, value = store
        left, now = flying - {store}, contents.get(slot, _EMPTY)
        what = f"{_name(slot)} becomes {'empty' if value == _EMPTY else f'exchange {value}'}"
        if value == _EMPTY:
            yield "", what, (places, held - {(slot, now)}, left)
        elif now != _EMPTY:
            yield "lost data", f"{what} while it holds exchange {now}", None
        else:
            yield "", what, (places, held | {store}, left)
    for rank, (number, unread) in enumerate(places):
        if number == len(protocol.exchanges):
            continue
        if unread is None:
            yield from _publish(protocol, number, rank, state)
        else:
            for slot in sorted(unread):
                yield from _read(protocol, number, rank, slot, state)


def _moved(state: _State, rank: int, place: _Place) -> tuple[_Place, ...]:
    return (*state[0][:rank], place, *state[0][rank + 1 :])


def _publish(
    protocol: Protocol, number: int, rank: int, state: _State
) -> Iterator[tuple[str, str, _State | None]]:
    """Stores to every box are on their way at once, as soon as the rank's own emptying has arrived."""
    _, held, flying = state
    own = any(value == _EMPTY and slot[0] == rank for slot, value in flying)
    if own and protocol.emptied_before_publishing:
        return
    sent = _stores(protocol, number, rank, range(protocol.exchanges[number].rows))
    after = _moved(state, rank, (number, _awaited(protocol, number, rank)))
    yield "", f"rank {rank} publishes exchange {number}", (after, held, flying | sent)


def _stores(protocol: Protocol, number: int, rank: int, rows: Iterable[int]) -> frozenset[tuple[_Slot, int]]:
    """What a rank stores of these rows, into every box."""
    if rank == protocol.absent_rank:
        return frozenset()
    copy, boxes = protocol.exchanges[number].copy, range(protocol.num_ranks)
    return frozenset(((box, copy, rank, row), number) for box in boxes for row in rows)


def _awaited(protocol: Protocol, number: int, rank: int) -> frozenset[_Slot]:
    """What a rank has yet to read when it begins to."""
    exchange = protocol.exchanges[number]
    sources, rows = range(protocol.num_ranks), range(exchange.rows)
    return frozenset((rank, exchange.copy, source, row) for source in sources for row in rows)


def _read(
    protocol: Protocol, number: int, rank: int, slot: _Slot, state: _State
) -> Iterator[tuple[str, str, _State | None]]:
    """One row is read as soon as it is there, whatever the others are, and its emptying store is on its way."""
    _, held, flying = state
    value = dict(held).get(slot, _EMPTY)
    awaited = protocol.checks_every_row or slot[3] == 0
    if value == _EMPTY and awaited:
        return
    what = f"rank {rank} reads {_name(slot)} for exchange {number}"
    if value != number:
        found = "nothing" if value == _EMPTY else f"exchange {value}"
        yield "stale read", f"{what} and finds {found}", None
        return
    place = state[0][rank]
    assert place[1] is not None
    left = place[1] - {slot}
    sent = frozenset({(slot, _EMPTY)}) if protocol.empties_every_row or slot[3] == 0 else frozenset()
    following: _Place = (number + 1, None)
    if protocol.is_reduced(number + 1):
        following = (number + 1, _awaited(protocol, number + 1, rank))
        if all(other[3] != slot[3] for other in left):
            sent |= _stores(protocol, number + 1, rank, [slot[3]])
    after = _moved(state, rank, (number, left) if left else following)
    yield "", what, (after, held, flying | sent)


def _name(slot: _Slot) -> str:
    box, copy, source, row = slot
    return f"box {box} copy {copy} row {row} of rank {source}"


def _trace(origin: dict[_State, tuple[_State, str] | None], state: _State) -> tuple[str, ...]:
    events: list[str] = []
    step = origin[state]
    while step is not None:
        state, event = step
        events.append(event)
        step = origin[state]
    return tuple(reversed(events))
