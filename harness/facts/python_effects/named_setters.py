"""Functions of others that set something of their own package, as far as their names and arguments say."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from harness.facts.python_effects.scopes import Site
from harness.facts.python_effects.values import Builtin, Constant, Imported, OwnFunction, Values, dotted_names

if TYPE_CHECKING:
    from harness.facts.python_effects.resolve import Resolver

_SETS = re.compile(
    r"(\w+\.)+(_?(set|unset|reset|enable|disable|override|destroy|init|initialize|seed|patch|install|configure|clear"
    r"|update)_\w+|cache_clear)"
)
_NOTHING_TO_CHANGE = (Builtin, Constant, Imported, OwnFunction)


def set_by_name(resolver: Resolver, site: Site, call: ast.Call, callee: Values) -> str:
    """The function of others that a statement calls to set something which none of its arguments is; empty for none.

    Its name begins with a verb of setting, and it is given nothing but constants, functions and what is imported, so
    that there is no object of the subject's own which it could be about.
    """
    name = next((n for n in dotted_names(callee) if _SETS.fullmatch(n)), "")
    given = [
        a.value if isinstance(a, ast.Starred) else a for a in (*call.args, *(k.value for k in call.keywords))
    ]
    return name if name and all(_is_no_object(resolver, argument, site) for argument in given) else ""


def _is_no_object(resolver: Resolver, node: ast.expr, site: Site) -> bool:
    match node:
        case ast.List(elts=parts) | ast.Tuple(elts=parts) | ast.Set(elts=parts) | ast.Dict(values=parts):
            return all(_is_no_object(resolver, part, site) for part in parts)
        case ast.Constant():
            return True
    return all(isinstance(value, _NOTHING_TO_CHANGE) for value in resolver.evaluate(node, site))
