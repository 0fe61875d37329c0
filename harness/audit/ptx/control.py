"""Branches, calls, exits."""

from __future__ import annotations

from harness.audit.program import Kind, Op
from harness.audit.ptx.draft import Draft, NotUnderstood
from harness.audit.ptx.expansion import call_parts
from harness.audit.ptx.syntax import Arguments, Memory, Name

WITHOUT_EFFECT = frozenset(["vprintf", "__assertfail", "malloc", "free"])
"""Functions of the CUDA run time that neither wait nor touch the kernel's arguments."""


def translate_control(draft: Draft) -> None:
    """Fill `draft` for an opcode of `words.CONTROL`."""
    root = draft.words[0]
    if root in ("exit", "trap", "ret") and draft.statement.operands:
        raise NotUnderstood("operands where none belong")
    if root == "exit":
        draft.kind = Kind.EXIT
    elif root == "trap":
        draft.kind = Kind.TRAP
    elif root == "ret":
        if draft.frame.parent is None:
            draft.kind = Kind.EXIT
        else:
            draft.kind, draft.labels = Kind.BRANCH, (f"return{draft.frame.suffix}",)
    elif root == "bra":
        draft.kind, draft.labels = Kind.BRANCH, (_label(draft, 0),)
    elif root == "brx":
        _translate_table(draft)
    else:
        _translate_call(draft)


def _label(draft: Draft, position: int) -> str:
    term = draft.operand(position)
    name = draft.statement.scope.find_label(term.text) if isinstance(term, Name) else None
    if name is None:
        raise NotUnderstood("a branch to a label that is not there")
    return name + draft.frame.suffix


def _translate_table(draft: Draft) -> None:
    draft.source(draft.operand(0))
    table = draft.operand(1)
    found = draft.statement.scope.find_list(table.text) if isinstance(table, Name) else None
    if found is None:
        raise NotUnderstood("a branch table that is not there")
    scope, names = found
    labels = [scope.find_label(n) for n in names]
    if not labels or any(n is None for n in labels):
        raise NotUnderstood("a branch table with a label that is not there")
    draft.kind = Kind.BRANCH
    draft.labels = tuple(f"{n}{draft.frame.suffix}" for n in labels)


def _translate_call(draft: Draft) -> None:
    results, name, arguments = call_parts(draft.statement)
    if not name:
        raise NotUnderstood("a call without a name")
    for term in results:
        if not isinstance(term, Memory | Arguments):
            try:
                for target in draft.targets(term):
                    draft.assign(target, Op.OPAQUE, ())
            except NotUnderstood:
                continue  # a .param variable takes the result
    draft.sources(arguments)
    if name not in WITHOUT_EFFECT:
        draft.kind = Kind.CALL
