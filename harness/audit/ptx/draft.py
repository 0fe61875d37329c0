"""What the translation of one statement collects, and how names become operands."""

from __future__ import annotations

from dataclasses import dataclass, field

from harness.audit.program import (
    Access,
    Address,
    AddressOf,
    Assign,
    Barrier,
    Immediate,
    Kind,
    Mbarrier,
    Op,
    Operand,
    Param,
    Register,
    Space,
    Special,
    Unknown,
)
from harness.audit.ptx.expansion import Frame
from harness.audit.ptx.syntax import (
    Arguments,
    Declaration,
    Garbled,
    Memory,
    Module,
    Name,
    Number,
    Pair,
    Scope,
    Statement,
    Term,
    Vector,
)
from harness.audit.ptx.words import special_of


class NotUnderstood(Exception):
    """The statement does not have the form that its opcode asks for; the reader makes it opaque."""


class Names:
    """Names of one kernel: what each unique name is."""

    def __init__(self, module: Module, params: tuple[Param, ...], frames: list[Frame]) -> None:
        self._params = {p.name: p for p in params}
        self._declared: dict[str, Declaration] = {d.name: d for d in module.variables}
        for frame in frames:
            function = frame.function
            for declared in (*function.variables, *function.params, *function.returns):
                if not (frame.parent is None and declared.name in self._params):
                    self._declared[declared.name + frame.suffix] = declared
        self._functions = set(module.functions)
        self._module_names = {d.name for d in module.variables}
        self._memo: dict[tuple[int, str, str], Operand] = {}

    def param_index(self, name: str) -> int | None:
        """The number of a kernel parameter; None for another variable."""
        param = self._params.get(name)
        return None if param is None else param.index

    def operand_of(self, name: str, scope: Scope, frame: Frame) -> Operand:
        """What `name` means at this place."""
        key = (id(scope), frame.suffix, name)
        found = self._memo.get(key)
        if found is None:
            found = self._memo[key] = self._look_up(name, scope, frame)
        return found

    def _look_up(self, name: str, scope: Scope, frame: Frame) -> Operand:
        unique = scope.find_register(name)
        if unique is None:
            special = special_of(name)
            if special is not None:
                return Special(special)
            head, _, component = name.rpartition(".")
            if component in ("x", "y", "z", "w", "r", "g", "b", "a") and head:
                return self._look_up(head, scope, frame)
            if name in self._functions:
                return AddressOf(name, Space.CONST)
            return Unknown(name)
        if unique in frame.formals:
            return AddressOf(frame.formals[unique], Space.PARAM)
        if frame.parent is None and unique in self._params:
            return AddressOf(unique, Space.PARAM)
        if unique in self._module_names:
            return AddressOf(unique, self._declared[unique].space)
        declared = self._declared.get(unique + frame.suffix)
        if declared is not None and not declared.is_register:
            return AddressOf(unique + frame.suffix, declared.space)
        return Register(unique + frame.suffix)


@dataclass(slots=True)
class Draft:
    """The facts of one statement, as they are found."""

    statement: Statement
    frame: Frame
    names: Names
    kind: Kind = Kind.PLAIN
    defs: list[str] = field(default_factory=list)
    uses: list[str] = field(default_factory=list)
    assigns: list[Assign] = field(default_factory=list)
    accesses: list[Access] = field(default_factory=list)
    barrier: Barrier | None = None
    mbarrier: Mbarrier | None = None
    labels: tuple[str, ...] = ()
    num_temporaries: int = 0
    words: list[str] = field(init=False)
    """The opcode's parts."""

    def __post_init__(self) -> None:
        self.words = self.statement.opcode.split(".")

    def operand(self, index: int) -> Term:
        """The statement's operand; raises NotUnderstood when there are fewer."""
        if index >= len(self.statement.operands):
            raise NotUnderstood("too few operands")
        return self.statement.operands[index]

    def source(self, term: Term) -> Operand:
        """A value that the instruction uses; a negated predicate goes through a temporary."""
        if isinstance(term, Number):
            return Immediate(term.value) if term.value is not None else Unknown("a decimal float")
        if isinstance(term, Name):
            operand = self.names.operand_of(term.text, self.statement.scope, self.frame)
            if isinstance(operand, Unknown):
                if term.text == "_":
                    return operand
                raise NotUnderstood(f"nothing declares {term.text}")
            if isinstance(operand, Register):
                self.uses.append(operand.name)
            return self.compute(Op.NOT, (operand,), bits=1) if term.negated else operand
        if isinstance(term, Memory) and not term.others and term.base is not None:
            return self.compute(Op.ADD, (self.source(term.base), Immediate(term.offset)), bits=64)
        raise NotUnderstood("an operand of another form was expected")

    def sources(self, terms: tuple[Term, ...]) -> tuple[Operand, ...]:
        """All values of `terms`, vectors flattened."""
        found: list[Operand] = []
        for term in terms:
            if isinstance(term, Vector | Arguments):
                found += self.sources(term.items)
            elif isinstance(term, Pair):
                found += self.sources((term.first, term.second))
            elif isinstance(term, Garbled):
                raise NotUnderstood(f"an operand that cannot be read: {term.text}")
            elif isinstance(term, Memory):
                found += self.address(term).terms
                found += self.sources(term.others)
            else:
                found.append(self.source(term))
        return tuple(found)

    def targets(self, term: Term) -> list[str | None]:
        """Registers that the instruction writes, in order; None for the sink `_`."""
        if isinstance(term, Vector):
            return [t for item in term.items for t in self.targets(item)]
        if isinstance(term, Pair):
            return self.targets(term.first) + self.targets(term.second)
        if not isinstance(term, Name):
            raise NotUnderstood("a register was expected as result")
        if term.text == "_":
            return [None]
        operand = self.names.operand_of(term.text, self.statement.scope, self.frame)
        if not isinstance(operand, Register):
            raise NotUnderstood(f"{term.text} is no register")
        self.defs.append(operand.name)
        return [operand.name]

    def compute(self, op: Op, args: tuple[Operand, ...], *, bits: int, signed: bool = False) -> Register:
        """An intermediate value of this instruction."""
        self.num_temporaries += 1
        name = f"~{self.num_temporaries}"
        self.assigns.append(Assign(target=name, op=op, args=args, bits=bits, signed=signed))
        return Register(name)

    def assign(
        self, target: str | None, op: Op, args: tuple[Operand, ...], *, bits: int = 32, signed: bool = False
    ) -> None:
        """`target` gets a value; nothing happens for the sink."""
        if target is not None:
            self.assigns.append(Assign(target=target, op=op, args=args, bits=bits, signed=signed))

    def address(self, term: Term) -> Address:
        """Where a memory operand points."""
        if not isinstance(term, Memory):
            raise NotUnderstood("a memory operand was expected")
        terms = () if term.base is None else (self.source(term.base),)
        return Address(terms=terms, offset=term.offset)
