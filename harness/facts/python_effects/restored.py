"""Which effects are taken back: by a `finally` of the same function, or at the end of a `with`."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from harness.facts.python_effects.scopes import Module
from harness.facts.python_source.names import dotted
from harness.facts.python_source.off_path.scopes import imported_names
from harness.facts.python_source.walk import walk
from harness.model.effects import Effect, EffectKind

_KEEPERS = {"warnings.catch_warnings": "warnings.", "decimal.localcontext": "decimal."}
"""Contexts that put back at their end what is set inside them, and the settings that are meant."""
_CAN_BE_TAKEN_BACK = frozenset({EffectKind.GLOBAL_SETTING, EffectKind.ENVIRONMENT})
"""A patched attribute or operator is not: whatever runs meanwhile, in any thread, runs the patch."""


def mark_restored(module: Module, effects: Sequence[Effect]) -> list[Effect]:
    """The effects of one module, those that are taken back marked as such."""
    finals = _finally_ranges(module.tree)
    contexts = _context_calls(module.tree)
    kept = list(_kept_ranges(module))
    marked = []
    for effect in effects:
        restored = effect.kind in _CAN_BE_TAKEN_BACK and (
            (effect.line, effect.end_line) in contexts
            or any(effect.line in lines and effect.target.startswith(setting) for lines, setting in kept)
            or any(
                effect.function == other.function
                and (effect.kind, effect.target) == (other.kind, other.target)
                and _covers(finals, effect, other)
                for other in effects
            )
        )
        marked.append(effect.model_copy(update={"is_restored": True}) if restored else effect)
    return marked


class _Finally:
    """A `try` with a `finally`: from the first line that it takes back to its last."""

    def __init__(self, statement: ast.Try | ast.TryStar, first: int) -> None:
        self.first = first
        self.restores = (statement.finalbody[0].lineno, statement.finalbody[-1].end_lineno or 0)
        self.literal = [
            node.lineno
            for part in statement.finalbody
            for node in walk(part)
            if isinstance(node, (ast.Call, ast.Assign)) and _sets_literal(node)
        ]


def _covers(finals: Sequence[_Finally], effect: Effect, other: Effect) -> bool:
    """Whether `other`, in a `finally`, puts back a saved value of what `effect` changed before it."""
    return any(
        f.restores[0] <= other.line <= f.restores[1]
        and other.line not in f.literal
        and f.first <= effect.line <= f.restores[1]
        for f in finals
    )


def _finally_ranges(tree: ast.Module) -> list[_Finally]:
    found = []
    for node in walk(tree):
        for name in ("body", "orelse", "finalbody"):
            statements = getattr(node, name, None)
            if not isinstance(statements, list):
                continue
            for index, statement in enumerate(statements):
                if isinstance(statement, (ast.Try, ast.TryStar)) and statement.finalbody:
                    # What stands directly before the `try`, in the same block, is taken back as well.
                    first = index
                    while first and not isinstance(statements[first - 1], (ast.Return, ast.Raise, ast.Try)):
                        first -= 1
                    found.append(_Finally(statement, statements[first].lineno))
    return found


def _sets_literal(node: ast.Call | ast.Assign) -> bool:
    """Whether a value is set that the text fixes: that puts nothing back."""
    if isinstance(node, ast.Assign):
        return isinstance(node.value, ast.Constant)
    return bool(node.args) and all(isinstance(a, ast.Constant) for a in node.args) and not _is_pop(node)


def _is_pop(node: ast.Call) -> bool:
    return isinstance(node.func, ast.Attribute) and node.func.attr in ("pop", "unsetenv", "__delitem__")


def _kept_ranges(module: Module) -> Iterator[tuple[range, str]]:
    """Lines inside a context that puts settings back, and how the settings' names begin."""
    imported = dict(imported_names(module.tree, module.package))
    for node in walk(module.tree):
        for item in node.items if isinstance(node, ast.With | ast.AsyncWith) else ():
            called = item.context_expr.func if isinstance(item.context_expr, ast.Call) else None
            first, _, rest = ((dotted(called) if called is not None else "") or "").partition(".")
            name = f"{imported.get(first, first)}.{rest}" if rest else imported.get(first, first)
            if isinstance(node, ast.With | ast.AsyncWith) and name in _KEEPERS:
                yield range(node.body[0].lineno, (node.end_lineno or 0) + 1), _KEEPERS[name]


def _context_calls(tree: ast.Module) -> set[tuple[int, int]]:
    """Lines of the calls that a `with` enters."""
    return {
        (item.context_expr.lineno, item.context_expr.end_lineno or item.context_expr.lineno)
        for node in walk(tree)
        if isinstance(node, (ast.With, ast.AsyncWith))
        for item in node.items
        if isinstance(item.context_expr, ast.Call)
    }
