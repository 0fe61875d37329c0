"""Where every access goes: kernel parameters and variables that its address can start from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from harness.audit.address_flow import SMALL_SPACES, AddressFlow, short_name, space_of
from harness.audit.forms import Forms, Source, SourceKind, add, constant, constant_source, join
from harness.audit.program import Access, Address, Instruction, Mechanism, Op, Operand, Space
from harness.audit.values import Origin, Values

MAX_CHOICES = 48
Chooser = Callable[[int], bool | None]
"""Whether a predicate, given as a value, is known to hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """What one access can touch."""

    space: Space
    sources: tuple[tuple[Source, int | None], ...]
    """Each with the constant that is added to it."""
    is_ambiguous: bool
    """Some address is a sum of several possible bases."""
    is_resolved: bool
    """False when some alternative has no base at all."""


class Pointers:
    """Answers for one kernel."""

    def __init__(self, values: Values) -> None:
        self._values = values
        self._kernel = values.graph.kernel
        self._flow = AddressFlow(values)
        self._definite: set[Source] = set()
        self._find_definite()

    def address(self, instruction: int, address: Address) -> Forms:
        """The alternatives of an address as the instruction sees it."""
        return self._flow.address(instruction, address)

    def reach(self, instruction: Instruction, access: Access) -> Reach:
        """Where the access goes, as far as it can be followed."""
        is_map = access.mechanism is Mechanism.TENSOR_MAP
        return self._reach_of(access.space, self.address(instruction.index, access.address), is_map)

    def _reach_of(self, space: Space, forms: Forms, is_map: bool) -> Reach:
        sources: dict[tuple[Source, int | None], None] = {}
        spaces: set[Space] = set()
        ambiguous, resolved = False, bool(forms)
        for form in sorted(forms, key=str):
            candidates = [s for s in form.bases if s.kind is not SourceKind.OTHER]
            if not form.terms and form.offset is not None and (number := constant_source(form.offset)):
                candidates = [number]
            if len(candidates) > 1:
                sure = [s for s in candidates if s in self._definite]
                candidates = sure or candidates
            if not candidates:
                resolved = resolved and form.offset == 0 and len(forms) > 1
                continue
            ambiguous = ambiguous or len(candidates) > 1
            for source in candidates:
                sources[source, form.offset] = None
                spaces.add(space_of(source))
        if space is Space.GENERIC:
            space = spaces.pop() if len(spaces) == 1 else Space.GLOBAL
        kept = tuple(
            k for k in sources if is_map or space is not Space.GLOBAL or space_of(k[0]) not in SMALL_SPACES
        )
        return Reach(
            space=space, sources=kept or tuple(sources), is_ambiguous=ambiguous, is_resolved=resolved
        )

    def reach_given(self, instruction: Instruction, access: Access, chooser: Chooser) -> Reach:
        """Where the access goes on a way on which `chooser` knows how selects and guarded writes turn out."""
        total = constant(access.address.offset)
        for term in access.address.terms:
            value = self._values.operand(instruction.index, term)
            total = add(total, self._given(value, chooser, 0))
        return self._reach_of(access.space, total, access.mechanism is Mechanism.TENSOR_MAP)

    def _given(self, value: int | Operand, chooser: Chooser, depth: int) -> Forms:
        if not isinstance(value, int):
            return self._flow.known(value)
        node = self._values.node(value)
        if depth > MAX_CHOICES or node.origin in (Origin.ENTRY, Origin.PHI):
            return self._flow.known(value)
        if node.origin is Origin.MERGE:
            guard = self._kernel.instructions[node.place].predicate
            runs = None if guard is None else chooser(self._values.use(node.place, guard.register))
            wanted = node.parts if runs is None or guard is None else (node.parts[runs is guard.negated],)
            return join(self._given(p, chooser, depth + 1) for p in wanted)
        assert node.assign is not None
        if node.assign.op is Op.LOAD or self._flow.is_integer(node):
            return self._flow.known(value)
        args = self._values.args(value)
        if node.assign.op is Op.SELECT and len(args) == 3 and isinstance(args[2], int):
            chosen = chooser(args[2])
            if chosen is not None:
                return self._given(args[0 if chosen else 1], chooser, depth + 1)
        return self._flow.combine(node.assign.op, [self._given(a, chooser, depth + 1) for a in args], value)

    def choices(self, instruction: Instruction, access: Access) -> set[int]:
        """Predicates that choose between alternatives of an address."""
        found: set[int] = set()
        stack = [self._values.operand(instruction.index, t) for t in access.address.terms]
        seen: set[int] = set()
        while stack:
            value = stack.pop()
            if not isinstance(value, int) or value in seen or len(seen) > MAX_CHOICES:
                continue
            seen.add(value)
            node = self._values.node(value)
            if node.origin is Origin.MERGE:
                guard = self._kernel.instructions[node.place].predicate
                if guard is not None:
                    found.add(self._values.use(node.place, guard.register))
                stack += node.parts
            elif node.origin is Origin.ASSIGN and node.assign is not None and node.assign.op is not Op.LOAD:
                args = self._values.args(value)
                if node.assign.op is Op.SELECT and isinstance(args[-1], int):
                    found.add(args[-1])
                stack += args
        return found

    def _find_definite(self) -> None:
        for param in self._kernel.params:
            if param.is_pointer:
                self._definite.add(
                    Source(SourceKind.PARAM, short_name(self._kernel.name, param.name), param.index)
                )
        for instruction in self._kernel.instructions:
            for assign in instruction.assigns:
                if assign.is_global_address:
                    self._mark(self.address(instruction.index, Address(terms=assign.args)))
            for access in instruction.accesses:
                if access.space is Space.GLOBAL:
                    self._mark(self.address(instruction.index, access.address))

    def _mark(self, forms: Forms) -> None:
        for form in forms:
            if len(form.bases) == 1:
                self._definite.add(form.bases[0])
