"""What a call returns: of a judged function, of one that imports, looks up or copies, and of any other."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from harness.facts.python_effects.containers import dictionary_of, pairs_of, subscript_values
from harness.facts.python_effects.flow import own_statements
from harness.facts.python_effects.records import (
    change_of_record,
    changed_records,
    fields_of_record,
    made_to_hold,
    record_of,
)
from harness.facts.python_effects.scopes import Site
from harness.facts.python_effects.values import (
    CALL,
    COPY_OF,
    NOTHING_KNOWN,
    RECORD,
    UNKNOWN,
    UNSPELT,
    Builtin,
    Constant,
    Holder,
    Imported,
    Items,
    Made,
    Namespace,
    OwnClass,
    OwnFunction,
    OwnInstance,
    OwnModule,
    Shared,
    Value,
    Values,
    dotted_names,
    paths,
    spelt,
    texts,
    union,
)

if TYPE_CHECKING:
    from harness.facts.python_effects.resolve import Resolver

_COPIES = frozenset({"list", "tuple", "set", "frozenset", "sorted"})
_ITERATORS = frozenset(
    {"enumerate", "zip", "map", "filter", "itertools.chain", "itertools.product", "itertools.zip_longest"}
)
_PASSED_THROUGH = _COPIES | {"iter", "reversed", "next"}
_GETTER = re.compile(r"_*(get|current|lookup|find)([_A-Z]\w*)?$")
_TRANSPARENT = frozenset(
    {"property", "cached_property", "staticmethod", "classmethod", "cache", "lru_cache", "override", "final"}
    | {"contextmanager", "asynccontextmanager", "wraps"}
)
_BUILTINS_THAT_MATTER = _PASSED_THROUGH | {
    "dict",
    "__import__",
    "getattr",
    "globals",
    "locals",
    "vars",
    "type",
}
_TAKES_FIRST = re.compile(
    r"^builtins\.|^logging\.getLogger$|^importlib\.import_module$|library\.Library$|^inspect\.(getmodule|unwrap)$"
    r"|^collections\.ChainMap$|^copy\.copy$|^inspect\.getmembers$|^pydoc\.locate$|(^|\.)resolve_(name|obj_by_qualname)$"
)
_GIVES_BACK = {
    "typing.cast": 1,
    "typing_extensions.cast": 1,
    "typing.assert_type": 0,
    "typing_extensions.assert_type": 0,
    "weakref.proxy": 0,
    "functools.update_wrapper": 0,
}
"""Functions that return one of their arguments as it is, or what stands for it, and its position."""
_GIVES_MODULE = {
    "torch.cuda.cudart": "torch._C._cudart",
    "multiprocessing.get_context": "multiprocessing",
    "torch.multiprocessing.get_context": "multiprocessing",
}
"""Functions that return a module, or what has its functions."""
_PATH_METHODS = frozenset(
    {"joinpath", "resolve", "absolute", "expanduser", "with_name", "with_suffix", "with_stem", "relative_to"}
)
"""Methods of a path that give another path."""
_VIEWS = frozenset({"values", "keys", "items", "copy"})
_TAKES_ONE = frozenset({"get", "pop", "popleft", "setdefault"})
"""Methods of a container that give one of its elements, or their second argument."""


def returned_values(resolver: Resolver, function: OwnFunction) -> Values:
    """What a call of a judged function returns."""
    node, module = function.node, function.module
    scope = module.inner[node]
    if isinstance(node, ast.Lambda):
        return resolver.evaluate(
            node.body, Site(scope, module.sites[node].block, module.sites[node].position)
        )
    if not all(_keeps_result(resolver, d, module.sites[node]) for d in node.decorator_list):
        return NOTHING_KNOWN
    statements = list(own_statements(node))
    yields = [
        Items((part.value,), module.sites[statement])
        for statement in statements
        for part in [getattr(statement, "value", None)]
        if isinstance(part, ast.Yield) and part.value is not None
    ]
    if yields:
        return frozenset(yields)
    results = [
        resolver.evaluate(statement.value, module.sites[statement])
        for statement in statements
        if isinstance(statement, ast.Return) and statement.value is not None
    ]
    return union(results) if results else frozenset({Constant(None)})


def call_values(resolver: Resolver, node: ast.Call, site: Site) -> Values:
    if isinstance(node.func, ast.Attribute) and node.func.attr in _VIEWS | _TAKES_ONE:
        owner = resolver.evaluate(node.func.value, site)
        is_namespace = isinstance(node.func.value, ast.Call)
        of_container = all(
            isinstance(v, (Items, Namespace, OwnModule) if is_namespace else (Items, Namespace))
            or v == Imported("sys.modules")
            for v in owner
        )
        if of_container and node.func.attr in _TAKES_ONE:
            given = [resolver.evaluate(argument, site) for argument in node.args[:2]]
            taken = subscript_values(resolver, owner, given[0] if given else NOTHING_KNOWN)
            return union([taken, *given[1:]])
        if of_container and node.func.attr in _VIEWS and not node.args:
            return _view(owner, node.func.attr)
    if (
        isinstance(node.func, ast.Attribute)
        and node.func.attr in _PATH_METHODS
        and (found := paths(resolver.evaluate(node.func.value, site)))
    ):
        return found
    callee = resolver.evaluate(node.func, site)
    if (change := change_of_record(node, callee)) is not None:
        return changed_records(resolver, change, site)
    if fields := fields_of_record(resolver, node, callee, site):
        return fields
    return union(_called(resolver, value, node, site) for value in callee)


def _called(resolver: Resolver, value: Value, node: ast.Call, site: Site) -> Values:
    match value:
        case OwnFunction():
            return returned_values(resolver, value)
        case OwnClass(node=own, module=module):
            return frozenset({OwnInstance(own, module)})
        case Holder():
            return resolver.attribute(frozenset({value}), CALL)
        case Made(name=name) if name.startswith(RECORD):
            return frozenset({record_of(node, name.removeprefix(RECORD).split(), site)})
        case OwnInstance():
            called = resolver.attribute(frozenset({value}), "__call__")
            return union(returned_values(resolver, c) for c in called if isinstance(c, OwnFunction))
        case Imported() | Builtin():
            return _called_foreign(resolver, value, node, site)
        case Made(name="operator.attrgetter") if isinstance(node.func, ast.Call) and node.args:
            found = resolver.evaluate(node.args[0], site)
            for path in texts(resolver.evaluate(node.func.args[0], site)) if node.func.args else ():
                for name in path.split("."):
                    found = resolver.attribute(found, name)
            return found
    return NOTHING_KNOWN


def _called_foreign(resolver: Resolver, value: Imported | Builtin, node: ast.Call, site: Site) -> Values:
    """What a function of Python or of another package returns."""
    if value.name in _ITERATORS and node.args:
        return _over(value.name.rpartition(".")[2], node.args, site)
    if isinstance(value, Builtin) and value.name not in _BUILTINS_THAT_MATTER:
        return NOTHING_KNOWN
    if isinstance(value, Imported) and value.name in _GIVES_BACK:
        index = _GIVES_BACK[value.name]
        return resolver.evaluate(node.args[index], site) if len(node.args) > index else NOTHING_KNOWN
    if value.name in _GIVES_MODULE:
        return frozenset({Imported(_GIVES_MODULE[value.name])})
    if (holder := made_to_hold(resolver, value.name, node, site)) is not None:
        return frozenset({holder})
    if isinstance(value, Imported) and not _TAKES_FIRST.search(value.name):
        return _result_of(value.name)
    first = resolver.evaluate(node.args[0], site) if node.args else NOTHING_KNOWN
    match value:
        case Builtin(name="__import__") | Imported(name="builtins.__import__"):
            return _import_call(resolver, node, first, site, whole=len(node.args) + len(node.keywords) > 1)
        case Imported(name="importlib.import_module"):
            return _import_call(resolver, node, first, site, whole=True)
        case Builtin(name="getattr") | Imported(name="builtins.getattr") if len(node.args) >= 2:
            found = [
                some_attribute(first) if name == UNSPELT else resolver.attribute(first, name)
                for name in spelt(resolver.evaluate(node.args[1], site))
            ]
            rest = [resolver.evaluate(node.args[2], site)] if len(node.args) > 2 else []
            return union([*found, *rest])
        case Builtin(name="globals"):
            return frozenset({OwnModule(site.scope.module)})
        case Builtin(name="locals" | "vars") if not node.args:
            return _locals(site)
        case Imported(name="logging.getLogger"):
            return _logger(resolver, texts(first), bool(node.args))
        case Builtin(name="vars") if node.args:
            return resolver.attribute(first, "__dict__")
        case Builtin(name="type") if len(node.args) == 1:
            return resolver.attribute(first, "__class__")
        case Builtin(name="dict"):
            return frozenset({dictionary_of(resolver, node, site)})
        case Builtin(name=name) if name in _PASSED_THROUGH and node.args:
            if name == "next":
                return resolver.elements(first)
            return _copied(first) if name in _COPIES else first
        case Imported(name=name) if name.endswith("library.Library") and texts(first):
            return frozenset({Made(f"torch.library.Library({texts(first)[0]})")})
        case Imported(name="inspect.getmodule" | "inspect.unwrap" | "collections.ChainMap" | "copy.copy"):
            if value.name == "inspect.getmodule" and UNKNOWN in first:
                return first | {Shared(f"{value.name}({UNSPELT})")}
            return _copied(first) if value.name == "copy.copy" else first
        case Imported(name="inspect.getmembers"):
            return frozenset(Namespace(v) if isinstance(v, (Imported, Shared)) else v for v in first)
        case Imported(name=name) if name.endswith(("locate", "resolve_name", "resolve_obj_by_qualname")):
            whole = [Shared(f"{name}({UNSPELT})")] if UNSPELT in spelt(first) else []
            return union([frozenset(whole), *(resolver.named(t.replace(":", ".")) for t in texts(first))])
        case Imported(name=name):
            return _result_of(name)
    return NOTHING_KNOWN


def _logger(resolver: Resolver, names: tuple[str, ...], is_named: bool) -> Values:
    """A logger: the subject's own under a name of its modules or `__name__`, otherwise one of others."""
    if names and not any(name in resolver.owned for name in names):
        return frozenset({Shared(f"logging.getLogger({names[0]!r})")})
    return frozenset({Made("logging.getLogger") if is_named else Shared("logging.getLogger()")})


def _view(owner: Values, name: str) -> Values:
    """`keys()`, `values()`, `items()` or a copy of a dictionary."""
    views: set[Value] = set()
    for value in owner:
        if isinstance(value, Items) and value.keys is not None and name in ("keys", "items"):
            keys = tuple(key for key in value.keys if key is not None)
            views.add(Items(keys, value.site) if name == "keys" else pairs_of(value))
        else:
            views.add(value)
    return frozenset(views)


def _import_call(resolver: Resolver, node: ast.Call, first: Values, site: Site, *, whole: bool) -> Values:
    found: list[Values] = []
    for name in spelt(first):
        if UNSPELT in name:
            found.append(frozenset({Shared(f"the module that `{ast.unparse(node)[:60]}` names")}))
            continue
        if name.startswith("."):
            package = texts(resolver.evaluate(node.args[1], site)) if len(node.args) > 1 else ()
            base = package[0] if package else site.scope.module.package
            up = len(name) - len(name.lstrip(".")) - 1
            kept = base.split(".")[: len(base.split(".")) - up]
            name = ".".join([*kept, name.lstrip(".")])
        found.append(resolver.named(name if whole else name.partition(".")[0]))
    return union(found)


def _keeps_result(resolver: Resolver, decorator: ast.expr, site: Site) -> bool:
    """Whether a decorated function may still return what its text says."""
    name = decorator.func if isinstance(decorator, ast.Call) else decorator
    last = name.attr if isinstance(name, ast.Attribute) else getattr(name, "id", "")
    return last in _TRANSPARENT or any(isinstance(v, OwnFunction) for v in resolver.evaluate(name, site))


def entered_values(resolver: Resolver, node: ast.expr, site: Site) -> Values:
    """What a `with` gives a name that enters the context of an expression."""
    if isinstance(node, ast.Call) and node.args:
        called = dotted_names(resolver.evaluate(node.func, site))
        if any(name.startswith("contextlib.") for name in called):
            return resolver.evaluate(node.args[0], site)
    found: set[Value] = set()
    for value in resolver.evaluate(node, site):
        if isinstance(value, OwnInstance):
            for enter in resolver.attribute(frozenset({value}), "__enter__"):
                found |= returned_values(resolver, enter) if isinstance(enter, OwnFunction) else {UNKNOWN}
        elif isinstance(value, Items):
            found |= resolver.elements(frozenset({value}))
    return frozenset(found) or NOTHING_KNOWN


def _over(name: str, given: list[ast.expr], site: Site) -> Values:
    """What `enumerate`, `zip`, `map`, `filter` and `itertools.chain` go through, as a display of the same elements."""
    each: list[ast.expr] = [ast.Call(ast.Name("next", ast.Load()), [g], []) for g in given]
    unknown = ast.Name("", ast.Load())
    match name:
        case "enumerate":
            element: ast.expr = ast.Tuple([unknown, each[0]], ast.Load())
        case "zip" | "zip_longest" | "product":
            element = ast.Tuple(each, ast.Load())
        case "map" if len(given) > 1:
            element = ast.Call(given[0], each[1:], [])
        case "filter" if len(given) > 1:
            element = each[1]
        case _:
            return frozenset({Items(tuple(ast.Starred(g, ast.Load()) for g in given), site)})
    return frozenset({Items((element,), site)})


def _copied(values: Values) -> Values:
    """A new container with the same elements: what is written to it reaches nobody else."""
    return frozenset(
        Made(f"{COPY_OF}{getattr(v, 'name', '')}")
        if isinstance(v, (Imported, Shared, Namespace)) and not getattr(v, "name", "").endswith("()")
        else v
        for v in values
    )


def _locals(site: Site) -> Values:
    """The names of a function, or of a module or class while it is imported, as a dictionary."""
    if site.scope.kind == "module":
        return frozenset({OwnModule(site.scope.module)})
    names = sorted(site.scope.bindings)
    keys = tuple(ast.Constant(name) for name in names)
    return frozenset({Items(tuple(ast.Name(name, ast.Load()) for name in names), site, keys=keys)})


def some_attribute(values: Values) -> Values:
    """An attribute whose name the text does not say."""
    return frozenset(
        Imported(f"{v.name}.{UNSPELT}")
        if isinstance(v, Imported)
        else Shared(f"{v.name}.{UNSPELT}")
        if isinstance(v, Shared)
        else UNKNOWN
        for v in values
    )


def _result_of(name: str) -> Values:
    last = name.rpartition(".")[2]
    if last == "__subclasses__":
        return frozenset({Imported(f"{name}()")})
    if _GETTER.match(last) or name in (
        "sys._getframe",
        "inspect.currentframe",
        "inspect.stack",
        "decimal.getcontext",
    ):
        return frozenset({Shared(f"{name}()")})
    return frozenset({Made(name)})
