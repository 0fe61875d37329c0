"""Whether a case of a `match` statement is taken for a value."""

from __future__ import annotations

import ast
from collections.abc import Callable

from harness.facts.python_source.off_path.values import COMPARISONS, Value, combine


def matches(case: ast.match_case, value: Value, read: Callable[[ast.expr], Value]) -> bool | None:
    """True or False when the switch being off decides it; None when it does not."""
    hit = _pattern(case.pattern, value, read)
    if hit is not True or case.guard is None:
        return hit
    guard = read(case.guard)
    return guard.truth if guard.derived else None


def _pattern(pattern: ast.pattern, value: Value, read: Callable[[ast.expr], Value]) -> bool | None:
    if isinstance(pattern, ast.MatchAs):
        return True if pattern.pattern is None else _pattern(pattern.pattern, value, read)
    if isinstance(pattern, ast.MatchOr):
        hits = [_pattern(inner, value, read) for inner in pattern.patterns]
        return True if True in hits else None if None in hits else False
    if not value.derived:
        return None
    if isinstance(pattern, ast.MatchValue):
        return combine(COMPARISONS["Eq"], value, read(pattern.value)).truth
    if isinstance(pattern, ast.MatchSingleton):
        literal = pattern.value
        return combine(lambda found: found is literal, value).truth
    return None
