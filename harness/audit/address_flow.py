"""Data flow of addresses: what each value is made of, through registers, loops, and memory that keeps pointers."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from harness.audit.forms import (
    NOTHING,
    SOME_INTEGER,
    Form,
    Forms,
    Source,
    SourceKind,
    add,
    base,
    blur,
    constant,
    constant_source,
    join,
    strip_addresses,
)
from harness.audit.program import (
    Access,
    Address,
    AddressOf,
    Immediate,
    Instruction,
    Level,
    Op,
    Operand,
    ParamValue,
    Space,
    Unknown,
)
from harness.audit.values import Node, Origin, Values

SMALL_SPACES = (Space.SHARED, Space.LOCAL, Space.PARAM)
_SUMS = (Op.ADD, Op.OR, Op.XOR, Op.OPAQUE)
_CHOICES = (Op.MIN, Op.MAX)
_INTEGERS = (
    Op.MUL,
    Op.MUL_HIGH,
    Op.SHL,
    Op.SHR,
    Op.NOT,
    Op.DIV,
    Op.REM,
    Op.ELECT,
    Op.EQ,
    Op.NE,
    Op.LT,
    Op.LE,
    Op.GT,
    Op.GE,
)
_FLOATING_NAMES = """
DADD DFMA DMNMX DMUL F2F F2FP F2I F2IP FADD FADD2 FCHK FFMA FFMA2 FHADD FHFMA FMNMX FMNMX3 FMUL FMUL2 FRND
FSET FSWZADD HADD2 HFMA2 HMMA HMNMX2 HMUL2 HSET2 I2F I2FP MUFU UF2F UF2FP UF2I UFADD UFFMA UFMNMX UFMUL UI2F
UI2FP VHMNMX
"""
_FLOATING = frozenset(_FLOATING_NAMES.split())
_POINTERS = (SourceKind.PARAM, SourceKind.LOADED, SourceKind.CONSTANT)
_MAX_DEPTH = 3
_MAX_ROUNDS = 6
_SMALLEST_MASK = 1 << 12
"""An address masked with less than this keeps its misalignment only."""

Slot = tuple[Space, str, int | None]


class AddressFlow:
    """Forms of the values of one kernel, computed when asked for."""

    def __init__(self, values: Values) -> None:
        self.values = values
        self.kernel = values.graph.kernel
        self._names = [short_name(self.kernel.name, p.name) for p in self.kernel.params]
        self._forms: dict[int, Forms] = {}
        self._users: dict[int, list[int]] = {}
        """Values made of a value, among those that have forms."""
        self._from_slots: set[int] = set()
        """Loads of memory that keeps pointers."""
        self._slots: dict[Slot, Forms] = {}
        self._stores = [
            (i, a)
            for i in self.kernel.instructions
            for a in i.accesses
            if a.writes and a.registers and a.space in (*SMALL_SPACES, Space.GENERIC)
        ]
        self._fill_slots()

    def address(self, instruction: int, address: Address) -> Forms:
        """The alternatives of an address as the instruction sees it."""
        values = [self.values.operand(instruction, t) for t in address.terms]
        self._solve(v for v in values if isinstance(v, int))
        total = constant(address.offset)
        for value in values:
            total = add(total, self.known(value))
        return total

    def _fill_slots(self) -> None:
        """Pointers kept in shared or local memory, or passed to a function; a fixed point over all stores."""
        for _ in range(_MAX_ROUNDS):
            slots: dict[Slot, Forms] = {}
            for instruction, access in self._stores:
                self._store(instruction, access, slots)
            if slots == self._slots:
                return
            self._slots = slots
            self._read_slots_anew()
        self._slots = {key: blur(forms) for key, forms in self._slots.items()}
        self._read_slots_anew()

    def _store(self, instruction: Instruction, access: Access, slots: dict[Slot, Forms]) -> None:
        stored = [self.values.operand(instruction.index, r) for r in access.registers]
        self._solve(v for v in stored if isinstance(v, int))
        for position, value in enumerate(stored):
            forms = frozenset(f for f in self.known(value) if any(_is_named(s) for s in f.bases))
            if not forms:
                continue
            step = position * (access.element_bytes or 8)
            for slot in self._slots_of(access.space, self.address(instruction.index, access.address), step):
                slots[slot] = join((slots.get(slot, NOTHING), forms))

    def _slots_of(self, space: Space, forms: Forms, step: int) -> list[Slot]:
        found: list[Slot] = []
        for form in forms:
            offset = None if form.offset is None else form.offset + step
            owners = [s for s in form.bases if s.kind in (SourceKind.VARIABLE, SourceKind.OTHER)]
            if space is Space.GENERIC:
                owners = [s for s in owners if s.space in SMALL_SPACES]
                found += [(s.space, s.name, offset) for s in owners]
            elif owners:
                found += [(space, s.name, offset) for s in owners]
            else:
                found.append((space, "", offset))
        return found

    def _read_slots(self, wanted: list[Slot]) -> Forms:
        found = [NOTHING]
        for space, name, offset in wanted:
            for (other_space, other_name, other_offset), forms in self._slots.items():
                same_name = name == other_name or not name or not other_name
                same_place = offset is None or other_offset is None or offset == other_offset
                if space is other_space and same_name and same_place:
                    found.append(forms)
        return join(found)

    def known(self, value: int | Operand) -> Forms:
        """Forms of an operand; of a value as far as they are computed."""
        if isinstance(value, int):
            return self._forms.get(value, NOTHING)
        if isinstance(value, Immediate):
            source = constant_source(value.value)
            return constant(value.value) if source is None else base(source)
        if isinstance(value, ParamValue):
            return self._param_forms(value)
        if isinstance(value, AddressOf):
            if value.space is Space.PARAM:
                param = next((p for p in self.kernel.params if p.name == value.name), None)
                if param is not None:
                    return base(
                        Source(
                            SourceKind.PARAM_ADDRESS, self._names[param.index], param.index, space=Space.PARAM
                        )
                    )
            return base(Source(SourceKind.VARIABLE, value.name, space=value.space))
        if isinstance(value, Unknown):
            return base(Source(SourceKind.OTHER, value.text, space=Space.LOCAL))
        return SOME_INTEGER

    def _param_forms(self, value: ParamValue) -> Forms:
        param = self.kernel.params[value.param] if value.param < len(self.kernel.params) else None
        if param is None or param.is_pointer is False or value.offset % 8 or value.num_bytes < 4:
            return SOME_INTEGER
        return base(Source(SourceKind.PARAM, self._names[param.index], param.index, value.offset))

    def _solve(self, wanted: Iterable[int]) -> None:
        """Forms of all values that `wanted` depend on, to a fixed point."""
        fresh: list[int] = []
        stack = list(wanted)
        while stack:
            value = stack.pop()
            if value in self._forms:
                continue
            self._forms[value] = NOTHING
            fresh.append(value)
            for part in self._parts(value):
                self._users.setdefault(part, []).append(value)
                stack.append(part)
        self._propagate(fresh[::-1])

    def _read_slots_anew(self) -> None:
        """Forms of what is made of pointers in memory: those of empty slots are not kept beside those of full ones."""
        stack, made = sorted(self._from_slots), set(self._from_slots)
        while stack:
            more = [user for user in self._users.get(stack.pop(), ()) if user not in made]
            made.update(more)
            stack += more
        self._forms.update(dict.fromkeys(made, NOTHING))
        self._propagate(sorted(made))

    def _propagate(self, values: list[int]) -> None:
        """Forms of `values`, and of all that is made of them, to a fixed point."""
        work = deque(values)
        queued = set(values)
        while work:
            value = work.popleft()
            queued.discard(value)
            before, more = self._forms[value], self._transfer(value)
            if not more <= before:
                self._forms[value] = join((before, more))
                again = [u for u in self._users.get(value, ()) if u not in queued]
                work.extend(again)
                queued.update(again)

    def _parts(self, value: int) -> list[int]:
        node = self.values.node(value)
        if node.origin is not Origin.ASSIGN:
            return list(node.parts)
        assert node.assign is not None
        if node.assign.op is Op.LOAD:
            access = self._read_access(node)
            terms = () if access is None else access.address.terms
            found = [self.values.operand(node.place, t) for t in terms]
            return [v for v in found if isinstance(v, int)]
        if self.is_integer(node):
            return []
        return [a for a in self.values.args(value) if isinstance(a, int)]

    def _read_access(self, node: Node) -> Access | None:
        accesses = self.kernel.instructions[node.place].accesses
        return next((a for a in accesses if a.reads), None)

    def is_integer(self, node: Node) -> bool:
        """Whether no address can come out. In PTX a narrow register holds none; in SASS it may hold a half of one,
        but not as the result of floating-point arithmetic."""
        assign = node.assign
        if assign is None or assign.op is not Op.OPAQUE:
            return assign is not None and assign.op in _INTEGERS
        if self.kernel.level is Level.PTX:
            return assign.bits < 64
        root = self.kernel.instructions[node.place].opcode.partition(".")[0]
        return root in _FLOATING or assign.bits == 1

    def _transfer(self, value: int) -> Forms:
        node = self.values.node(value)
        if node.origin is Origin.ENTRY:
            return SOME_INTEGER
        if node.origin is not Origin.ASSIGN:
            return join(self.known(p) for p in node.parts)
        assert node.assign is not None
        op = node.assign.op
        if op is Op.LOAD:
            return self._load(value, node)
        if self.is_integer(node):
            return SOME_INTEGER
        return self.combine(op, [self.known(a) for a in self.values.args(value)], value)

    def combine(self, op: Op, args: list[Forms], value: int) -> Forms:
        """Forms of `op` on forms of its operands; `value` is the assignment."""
        if not args:
            return SOME_INTEGER
        if op in (Op.MOVE, Op.UNIFORM):
            return args[0]
        if op is Op.SUB and len(args) == 2:
            return add(args[0], args[1], -1)
        if op is Op.MAD and len(args) == 3:
            return add(blur(args[2]), SOME_INTEGER)
        if op is Op.SELECT or op in _CHOICES:
            return join(args[:2])
        if op is Op.AND:
            return self._mask(args, value)
        if op is Op.WIDEN:
            return strip_addresses(args[0], SMALL_SPACES)
        if op is Op.PACK:
            return args[0] if any(f.terms for f in args[0]) else join((args[0], *map(blur, args[1:])))
        if op is Op.PART:
            return self._part(args[0], value)
        total = args[0] if op in _SUMS and op is not Op.OPAQUE else blur(args[0])
        for other in args[1:]:
            total = add(total, other if op is Op.ADD else blur(other))
        return total

    def _mask(self, args: list[Forms], value: int) -> Forms:
        mask = next((a.value for a in self.values.args(value) if isinstance(a, Immediate)), None)
        if mask is not None and 0 <= mask < _SMALLEST_MASK:
            return SOME_INTEGER
        total = SOME_INTEGER
        for operand, forms in zip(self.values.args(value), args, strict=True):
            total = total if isinstance(operand, Immediate) else add(total, blur(forms))
        return total

    def _part(self, whole: Forms, value: int) -> Forms:
        node = self.values.node(value)
        assert node.assign is not None
        number = node.assign.args[1] if len(node.assign.args) > 1 else None
        if node.assign.bits >= 64:
            return blur(whole)
        return whole if number == Immediate(0) else SOME_INTEGER

    def _load(self, value: int, node: Node) -> Forms:
        access = self._read_access(node)
        assert node.assign is not None
        number = node.assign.args[0] if node.assign.args else Immediate(0)
        size = (access.element_bytes if access is not None else None) or 0
        step = number.value * size if isinstance(number, Immediate) else 0
        if access is None or step % 8 or size * access.num_elements - step < 8:
            return SOME_INTEGER
        return join(self._load_from(value, access.space, f, step) for f in self._address_of(node, access))

    def _address_of(self, node: Node, access: Access) -> Forms:
        """The address of a load from what is known so far."""
        total = constant(access.address.offset)
        for term in access.address.terms:
            total = add(total, self.known(self.values.operand(node.place, term)))
        return total

    def _load_from(self, value: int, space: Space, form: Form, step: int) -> Forms:
        found: list[Forms] = []
        offset = None if form.offset is None else form.offset + step
        for source in form.bases:
            if source.kind is SourceKind.PARAM_ADDRESS:
                param = self.kernel.params[source.param]
                if param.is_pointer is not False:
                    found.append(
                        base(Source(SourceKind.PARAM, self._names[param.index], param.index, offset))
                    )
            elif source.kind in _POINTERS or _is_global(source):
                parent = source if source.depth < _MAX_DEPTH else source.parent
                found.append(base(Source(SourceKind.LOADED, str(source), source.param, None, parent=parent)))
        if space in SMALL_SPACES or any(space_of(s) in SMALL_SPACES for s in form.bases):
            self._from_slots.add(value)
            found.append(self._read_slots(self._slots_of(space, frozenset((form,)), step)))
        return join(found) or SOME_INTEGER


def short_name(kernel: str, param: str) -> str:
    """The parameter's name without the kernel's, which compilers put in front of it."""
    return param.removeprefix(f"{kernel}_")


def _is_named(source: Source) -> bool:
    return source.kind is not SourceKind.CONSTANT


def _is_global(source: Source) -> bool:
    return source.kind is SourceKind.VARIABLE and source.space in (Space.GLOBAL, Space.CONST)


def space_of(source: Source) -> Space:
    """The state space that an address from `source` lies in."""
    if source.kind in (SourceKind.VARIABLE, SourceKind.PARAM_ADDRESS, SourceKind.OTHER):
        return source.space
    return Space.GLOBAL
