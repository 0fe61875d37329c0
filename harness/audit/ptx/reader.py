"""PTX text → kernels in the common form."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from harness.audit.program import (
    Access,
    Address,
    AddressOf,
    Effect,
    Instruction,
    Kernel,
    Kind,
    Level,
    Op,
    Param,
    Predicate,
    Problem,
    Register,
    SourceLine,
    Space,
    Variable,
)
from harness.audit.ptx import arithmetic, control, copies, memory, synchronisation, words
from harness.audit.ptx.draft import Draft, Names, NotUnderstood
from harness.audit.ptx.expansion import Enter, Expansion, Leave, Place, Step, expand
from harness.audit.ptx.parser import parse_module
from harness.audit.ptx.syntax import Declaration, Function, Module

_TRANSLATORS: dict[str, Callable[[Draft], None]] = {
    "ld": memory.translate_load,
    "ldu": memory.translate_load,
    "st": memory.translate_store,
    "atom": memory.translate_atomic,
    "red": memory.translate_atomic,
    "multimem": memory.translate_multimem,
    "prefetch": memory.translate_prefetch,
    "prefetchu": memory.translate_prefetch,
    "discard": memory.translate_prefetch,
    "tex": memory.translate_texture,
    "tld4": memory.translate_texture,
    "suld": memory.translate_texture,
    "sust": memory.translate_texture,
    "sured": memory.translate_texture,
    "ldmatrix": memory.translate_matrix,
    "stmatrix": memory.translate_matrix,
    "wmma": memory.translate_matrix,
    "wgmma": memory.translate_tensor_core,
    "tcgen05": memory.translate_tensor_core,
    "cp": copies.translate_copy,
    "tensormap": copies.translate_tensor_map,
    "clusterlaunchcontrol": copies.translate_launch_control,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PtxFile:
    """What one PTX text holds."""

    kernels: tuple[Kernel, ...]
    problems: tuple[Problem, ...]
    """Problems of the file; each kernel carries them too."""


def read_ptx(text: str, source_file: str = "") -> PtxFile:
    """Every kernel of the text, and what could not be read. Never raises, whatever the text."""
    module = parse_module(text)
    problems = list(module.problems)
    if module.version is None:
        problems.append(Problem(1, text[:80].split("\n", 1)[0], "the text has no PTX version", True))
    elif module.version[0] > words.NEWEST_MAJOR:
        version = ".".join(map(str, module.version))
        line = next((n for n, t in enumerate(text.split("\n"), 1) if ".version" in t), 1)
        problems.append(
            Problem(line, f".version {version}", "a PTX version newer than the audit knows", True)
        )
    kernels = [
        _read_kernel(module, function, tuple(problems), source_file)
        for function in module.functions.values()
        if function.is_entry
    ]
    return PtxFile(kernels=tuple(kernels), problems=tuple(problems))


def _read_kernel(
    module: Module, function: Function, problems: tuple[Problem, ...], source_file: str
) -> Kernel:
    params = tuple(_param_of(i, d) for i, d in enumerate(function.params))
    expansion = expand(module, function)
    names = Names(module, params, expansion.frames)
    instructions, found = _translate(module, expansion, names)
    variables = [
        Variable(name=d.name, space=d.space, num_bytes=d.num_bytes)
        for d in (*module.variables, *function.variables)
        if not d.is_register
    ]
    return Kernel(
        name=function.name,
        arch=module.target,
        level=Level.PTX,
        instructions=tuple(instructions),
        params=params,
        variables=tuple(variables),
        block_size=function.block_size,
        max_threads=function.max_threads,
        problems=(*problems, *function.problems, *expansion.problems, *found),
        source_file=source_file,
    )


def _param_of(index: int, declared: Declaration) -> Param:
    size = declared.num_bytes or 0
    is_pointer: bool | None = None
    if declared.is_pointer:
        is_pointer = True
    elif size < 8 or not declared.is_integer:
        is_pointer = False
    return Param(
        index=index,
        name=declared.name,
        num_bytes=size,
        is_pointer=is_pointer,
        is_grid_constant_struct=declared.is_array,
    )


def _translate(module: Module, expansion: Expansion, names: Names) -> tuple[list[Instruction], list[Problem]]:
    labels: dict[str, int] = {}
    drafts: list[tuple[Instruction, tuple[str, ...]]] = []
    problems: list[Problem] = []
    for item in expansion.items:
        if isinstance(item, Place):
            labels[item.name] = len(drafts)
        elif isinstance(item, Step):
            drafts.append(_translate_step(item, names, module, len(drafts), problems))
        else:
            drafts.append((_translate_boundary(item, names, len(drafts), problems), ()))
    instructions = [
        i._replace(targets=tuple(labels[name] for name in wanted)) if wanted else i for i, wanted in drafts
    ]
    return instructions, problems


def _translate_step(
    step: Step, names: Names, module: Module, index: int, problems: list[Problem]
) -> tuple[Instruction, tuple[str, ...]]:
    statement = step.statement
    draft = Draft(statement=statement, frame=step.frame, names=names)
    predicate = None
    try:
        if statement.guard is not None:
            guard = names.operand_of(statement.guard.text, statement.scope, step.frame)
            if not isinstance(guard, Register):
                raise NotUnderstood(f"nothing declares the guard {statement.guard.text}")
            draft.uses.append(guard.name)
            predicate = Predicate(guard.name, statement.guard.negated)
        _dispatch(draft)
    except NotUnderstood as error:
        problems.append(Problem(statement.line, statement.text[:160], str(error)))
        draft = Draft(statement=statement, frame=step.frame, names=names, kind=Kind.OPAQUE)
    return _freeze(draft, predicate, module, index), draft.labels


def _dispatch(draft: Draft) -> None:
    root = draft.words[0]
    if root in words.ARITHMETIC:
        arithmetic.translate_arithmetic(draft)
    elif root in words.CONTROL:
        control.translate_control(draft)
    elif root in words.SYNCHRONISATION:
        synchronisation.translate_synchronisation(draft)
    elif root in words.NO_EFFECT:
        draft.sources(draft.statement.operands)
    elif root in _TRANSLATORS:
        if root == "tcgen05" and "commit" in draft.words:
            synchronisation.translate_commit(draft)
        else:
            _TRANSLATORS[root](draft)
    else:
        raise NotUnderstood(f"an unknown opcode {draft.statement.opcode}")


def _freeze(draft: Draft, predicate: Predicate | None, module: Module, index: int) -> Instruction:
    statement = draft.statement
    source = statement.source
    if source is not None:
        file, outer = (module.files.get(int(n), n) if n else "" for n in (source.file, source.outer_file))
        source = SourceLine(file, source.line, outer, source.outer_line)
    return Instruction(
        index=index,
        line=statement.line,
        text=statement.text,
        opcode=statement.opcode,
        kind=draft.kind,
        predicate=predicate,
        defs=tuple(draft.defs),
        uses=tuple(draft.uses),
        assigns=tuple(draft.assigns),
        accesses=tuple(draft.accesses),
        barrier=draft.barrier,
        mbarrier=draft.mbarrier,
        source=source,
        call_lines=draft.frame.call_lines,
    )


def _translate_boundary(
    item: Enter | Leave, names: Names, index: int, problems: list[Problem]
) -> Instruction:
    """The two ends of an expanded call: arguments go in, results come out."""
    statement = item.statement
    draft = Draft(statement=statement, frame=item.caller, names=names)
    try:
        _pass_values(draft, item)
    except NotUnderstood as error:
        problems.append(Problem(statement.line, statement.text[:160], str(error)))
        draft = Draft(statement=statement, frame=item.caller, names=names, kind=Kind.OPAQUE)
    return Instruction(
        index=index,
        line=statement.line,
        text=statement.text,
        opcode=statement.opcode,
        kind=draft.kind,
        defs=tuple(draft.defs),
        uses=tuple(draft.uses),
        assigns=tuple(draft.assigns),
        accesses=tuple(draft.accesses),
        call_lines=item.caller.call_lines,
    )


def _pass_values(draft: Draft, item: Enter | Leave) -> None:
    if isinstance(item, Leave):
        for result, formal in item.pairs:
            for target in draft.targets(result):
                draft.assign(target, Op.MOVE, (Register(formal),), bits=64)
                draft.uses.append(formal)
        return
    for formal, actual in item.pairs:
        value = draft.source(actual)
        declared = next(d for d in item.callee.function.params if d.name + item.callee.suffix == formal)
        if declared.is_register:
            draft.defs.append(formal)
            draft.assign(formal, Op.MOVE, (value,), bits=64)
        else:
            draft.accesses.append(
                Access(
                    effect=Effect.WRITE,
                    space=Space.PARAM,
                    address=Address(terms=(AddressOf(formal, Space.PARAM),)),
                    registers=(value,),
                    element_bytes=declared.num_bytes,
                )
            )
