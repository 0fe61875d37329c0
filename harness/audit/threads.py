"""Warp roles: the threads of a CTA in classes that take the same way at every branch on who they are."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from harness.audit.expressions import Expressions
from harness.audit.integers import compute
from harness.audit.program import Kernel, Op

WARP = 32
MAX_THREADS = 1024
MAX_CLASSES = 20

Vector = list[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadClass:
    """Threads that agree on every role condition."""

    threads: tuple[int, ...]
    """Linear thread numbers."""
    is_elected: bool | None
    """Whether `elect.sync` chose the thread; None when the kernel elects nobody that matters."""
    outcomes: tuple[tuple[int, int], ...]
    """Value of each role expression, by its number."""
    certain_warps: frozenset[int]
    """Warps that surely have a thread of this class."""
    is_certain: bool
    """Every CTA surely has a thread of this class."""

    @property
    def label(self) -> str:
        """The class in words."""
        ranges: list[list[int]] = []
        for thread in self.threads:
            if ranges and thread == ranges[-1][1] + 1:
                ranges[-1][1] = thread
            else:
                ranges.append([thread, thread])
        shown = ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in ranges[:4])
        more = ", ..." if len(ranges) > 4 else ""
        chosen = {True: ", elected", False: ", not elected", None: ""}[self.is_elected]
        return f"threads {shown}{more}{chosen}" if len(self.threads) > 1 else f"thread {shown}{chosen}"


class Threads:
    """Values of role expressions for every thread of a CTA."""

    def __init__(
        self, kernel: Kernel, expressions: Expressions, block_size: tuple[int, int, int] | None
    ) -> None:
        self._expressions = expressions
        self._is_exact = block_size is not None
        x, y, z = block_size or (min(kernel.max_threads or MAX_THREADS, MAX_THREADS), 1, 1)
        self.places = [(i, j, k) for k in range(z) for j in range(y) for i in range(x)][:MAX_THREADS]
        self._size = (x, y, z)
        self._vectors: dict[int, Vector | None] = {}

    @property
    def count(self) -> int | None:
        """Threads of a CTA, when it is known."""
        return len(self.places) if self._is_exact else None

    def vector(self, number: int) -> Vector | None:
        """The expression's value for each thread; None when it depends on more than the thread."""
        if number not in self._vectors:
            self._vectors[number] = self._evaluate(number)
        return self._vectors[number]

    def _evaluate(self, number: int) -> Vector | None:
        entry = self._expressions[number]
        if entry.constant is not None:
            return [entry.constant] * len(self.places)
        if entry.special:
            return self._special(entry.special)
        if entry.op is None or entry.op is Op.ELECT:
            return None
        args = [self.vector(a) for a in entry.args]
        if entry.op is Op.UNIFORM:
            return self._of_lane(args[0], args[1] if len(args) > 1 else None)
        known = [a for a in args if a is not None]
        if len(known) != len(args):
            return None
        rows = list(zip(*known, strict=True))
        results = {row: compute(entry.op, entry.bits, entry.signed, row) for row in set(rows)}
        found = [results[row] for row in rows]
        return None if None in results.values() else [v for v in found if v is not None]

    def _special(self, name: str) -> Vector | None:
        head, _, axis = name.partition(".")
        position = "xyz".find(axis) if axis else -1
        if head == "tid" and position >= 0:
            if position > 0 and not self._is_exact:
                return None
            return [p[position] for p in self.places]
        if head == "ntid" and position >= 0 and self._is_exact:
            return [self._size[position]] * len(self.places)
        if name == "WARP_SZ":
            return [WARP] * len(self.places)
        if name == "laneid":
            return [i % WARP for i in range(len(self.places))]
        if name == "warpid":
            return [i // WARP for i in range(len(self.places))]
        return None

    def _of_lane(self, values: Vector | None, lanes: Vector | None) -> Vector | None:
        if values is None or not lanes or len(set(lanes)) != 1:
            return None
        lane = lanes[0] % WARP
        last = len(values) - 1
        return [values[min(i - i % WARP + lane, last)] for i in range(len(values))]

    def classes(self, conditions: Iterable[int]) -> tuple[ThreadClass, ...]:
        """Threads by their outcomes of the conditions, the most important first: later ones are left out when the
        classes would be too many; a condition left out stays open both ways."""
        used: list[tuple[int, Vector]] = []
        groups: dict[tuple[int, ...], list[int]] = {(): list(range(len(self.places)))}
        elects = False
        for number in dict.fromkeys(conditions):
            elects = elects or self._expressions[number].op is Op.ELECT
            vector = self.vector(number)
            if vector is None:
                continue
            finer: dict[tuple[int, ...], list[int]] = {}
            for key, members in groups.items():
                for member in members:
                    finer.setdefault((*key, vector[member]), []).append(member)
            if len(finer) <= MAX_CLASSES:
                groups = finer
                used.append((number, vector))
        found = [
            self._make(key, tuple(members), elected, used)
            for key, members in groups.items()
            for elected in ((True, False) if elects else (None,))
        ]
        return tuple(found)

    def _make(
        self,
        key: tuple[int, ...],
        members: tuple[int, ...],
        elected: bool | None,
        used: list[tuple[int, Vector]],
    ) -> ThreadClass:
        lanes: dict[int, int] = {}
        for member in members:
            lanes[member // WARP] = lanes.get(member // WARP, 0) + 1
        total = len(self.places)
        if elected is None:
            warps = frozenset(lanes)
        elif elected:
            warps = frozenset(w for w, n in lanes.items() if n == min(WARP, total - w * WARP))
        else:
            warps = frozenset(w for w, n in lanes.items() if n >= 2)
        if not self._is_exact:
            only_first = 0 in members and (elected is None or (elected and 0 in warps))
            warps = frozenset((0,)) if only_first else frozenset()
        return ThreadClass(
            threads=members,
            is_elected=elected,
            outcomes=tuple((number, value) for (number, _), value in zip(used, key, strict=True)),
            certain_warps=warps,
            is_certain=bool(warps),
        )
