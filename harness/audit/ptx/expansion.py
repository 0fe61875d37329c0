"""A kernel's statements as one flat list: calls to functions with a body are expanded in place."""

from __future__ import annotations

from dataclasses import dataclass, field

from harness.audit.program import Problem
from harness.audit.ptx.syntax import Arguments, Function, Label, Module, Name, Statement, Term

MAX_DEPTH = 24
MAX_ITEMS = 400_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """One expanded call; the kernel itself has an empty suffix."""

    function: Function
    suffix: str
    parent: Frame | None
    call_lines: tuple[int, ...]
    formals: dict[str, str]
    """Names of `.param` formals, as the caller's variable."""


@dataclass(frozen=True, slots=True)
class Place:
    """A label, unique in the kernel."""

    name: str


@dataclass(frozen=True, slots=True)
class Step:
    """A statement in its frame."""

    statement: Statement
    frame: Frame


@dataclass(frozen=True, slots=True)
class Enter:
    """A call about to run its body: pairs of formal and actual that pass through registers or by value."""

    statement: Statement
    caller: Frame
    callee: Frame
    pairs: tuple[tuple[str, Term], ...]
    """Unique name of the formal, and the caller's operand."""


@dataclass(frozen=True, slots=True)
class Leave:
    """The place after a body: pairs of the caller's result and the callee's register."""

    statement: Statement
    caller: Frame
    pairs: tuple[tuple[Term, str], ...]


Item = Place | Step | Enter | Leave


@dataclass(slots=True)
class Expansion:
    """The flat list and what could not be expanded."""

    items: list[Item] = field(default_factory=list)
    frames: list[Frame] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)


def expand(module: Module, kernel: Function) -> Expansion:
    """The kernel's flat list."""
    result = Expansion()
    frame = Frame(function=kernel, suffix="", parent=None, call_lines=(), formals={})
    result.frames.append(frame)
    _expand_body(module, frame, result, depth=0)
    return result


def call_parts(statement: Statement) -> tuple[tuple[Term, ...], str, tuple[Term, ...]]:
    """Results, name and arguments of a `call`; an empty name when it has none."""
    operands = list(statement.operands)
    results: tuple[Term, ...] = ()
    if operands and isinstance(operands[0], Arguments):
        results = operands.pop(0).items  # type: ignore[union-attr]
    if not operands or not isinstance(operands[0], Name):
        return results, "", ()
    name = operands.pop(0).text  # type: ignore[union-attr]
    arguments = operands[0].items if operands and isinstance(operands[0], Arguments) else ()
    return results, name, arguments


def _expand_body(module: Module, frame: Frame, result: Expansion, depth: int) -> None:
    for part in frame.function.body:
        if isinstance(part, Label):
            result.items.append(Place(part.name + frame.suffix))
        elif part.opcode.split(".", 1)[0] == "call" and _can_expand(module, part, result, depth):
            _expand_call(module, part, frame, result, depth)
        else:
            result.items.append(Step(part, frame))


def _can_expand(module: Module, statement: Statement, result: Expansion, depth: int) -> bool:
    name = call_parts(statement)[1]
    callee = module.functions.get(name)
    if callee is None or callee.is_entry:
        return False
    results, _, arguments = call_parts(statement)
    fits = len(arguments) == len(callee.params) and len(results) == len(callee.returns)
    if depth < MAX_DEPTH and len(result.items) + len(callee.body) < MAX_ITEMS and fits:
        return True
    reason = (
        "a call too deep or too large to follow" if fits else "a call whose arguments do not fit its function"
    )
    result.problems.append(Problem(statement.line, statement.text[:160], reason))
    return False


def _expand_call(module: Module, statement: Statement, caller: Frame, result: Expansion, depth: int) -> None:
    results, name, arguments = call_parts(statement)
    function = module.functions[name]
    suffix = f"#{len(result.frames)}"
    formals: dict[str, str] = {}
    callee = Frame(
        function=function,
        suffix=suffix,
        parent=caller,
        call_lines=(*caller.call_lines, statement.line),
        formals=formals,
    )
    result.frames.append(callee)
    entering: list[tuple[str, Term]] = []
    for declared, argument in zip(function.params, arguments, strict=True):
        variable = _param_variable(argument, statement, caller)
        if not declared.is_register and variable is not None:
            formals[declared.name] = variable
        else:
            entering.append((declared.name + suffix, argument))
    leaving: list[tuple[Term, str]] = []
    for declared, argument in zip(function.returns, results, strict=True):
        variable = _param_variable(argument, statement, caller)
        if not declared.is_register and variable is not None:
            formals[declared.name] = variable
        else:
            leaving.append((argument, declared.name + suffix))
    result.items.append(Enter(statement, caller, callee, tuple(entering)))
    _expand_body(module, callee, result, depth + 1)
    result.items.append(Place(f"return{suffix}"))
    result.problems += [p for p in function.problems if p not in result.problems]
    result.items.append(Leave(statement, caller, tuple(leaving)))


def _param_variable(argument: Term, statement: Statement, caller: Frame) -> str | None:
    """The unique name of a `.param` variable that passes an argument; None for a register or a constant."""
    if not isinstance(argument, Name):
        return None
    name = statement.scope.find_register(argument.text)
    if name is None:
        return None
    if name in caller.formals:
        return caller.formals[name]
    declared = (*caller.function.variables, *caller.function.params, *caller.function.returns)
    return name + caller.suffix if any(d.name == name and not d.is_register for d in declared) else None
