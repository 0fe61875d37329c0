"""Who reaches the subject, and what of the engine the subject reaches."""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from harness.facts.python_source.imports import Import, find_imports
from harness.facts.python_source.may_import import MayImport
from harness.facts.python_source.names import dotted, is_below
from harness.facts.python_source.spelling import spelt_text, string_constants
from harness.facts.python_source.tree import SourceTree
from harness.facts.python_source.walk import walk
from harness.model.reach import ImportForm, InwardImport, OwnImport

_WORD = re.compile(r"\w+")
_DEFINED = rb"^(?:(?:async )?def|class) %(name)b\b|^%(name)b\b *[:=]"
_OWN = ""
"""Stands for what a name means that is the subject's own."""
_SELF = ("__name__", "__package__", "__spec__.name", "__spec__.parent")
_BEGINNING = re.compile(r"f?(?P<quote>['\"])(?P<text>[\w.]*)")
_MAX_DOORS = 8
"""Modules that hand a name on to each other."""
Guards = Callable[[str, int], tuple[str, ...]]
"""The conditions on the switch that keep a line of a file from running while it is off."""


@dataclass(slots=True)
class Reaches:
    """Imports across the border of the subject in one tree."""

    tree: SourceTree
    owned_paths: frozenset[str]
    ignored: Callable[[str], bool]
    """Files whose imports do not count: the change's tests and documents."""
    owned: frozenset[str] = field(init=False)
    _doors: frozenset[str] = field(init=False)
    _cache: dict[str, tuple[Import, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.owned = frozenset(self.tree.module_of(path) for path in self.owned_paths)
        self._doors = doors(self.tree, self.owned_paths)

    def imports(self, path: str) -> tuple[Import, ...]:
        """The imports of one file; none when it does not parse."""
        if path not in self._cache:
            parsed = self.tree.parse(path)
            found = find_imports(parsed, self.tree.package_of(path)) if parsed is not None else ()
            self._cache[path] = found
        return self._cache[path]

    def unreadable(self) -> tuple[str, ...]:
        """Files of the subject, and files that speak of it, which do not parse."""
        paths = sorted({*self.owned_paths, *self._outside(self._doors)})
        return tuple(f"{path}: {problem}" for path in paths if (problem := self.tree.problem(path)))

    def inward(self) -> Iterator[tuple[str, Import, str]]:
        """Path, import and what it goes through, of every import of the subject from outside."""
        exported: dict[str, str] = {}
        direct: set[tuple[str, int]] = set()
        for path in self._outside(self._doors):
            for found in self.imports(path):
                found = self._as_spelt(found)
                if not self._is_subject(found):
                    continue
                if found.form is ImportForm.NAMED and (path, found.line) in direct:
                    continue
                direct.add((path, found.line))
                yield path, found, ""
                if found.bound_at_top and found.form is not ImportForm.TYPES_ONLY:
                    exported[f"{self.tree.module_of(path)}.{found.bound_at_top}"] = found.target
            for chain in self._chains(path, self._own_module):
                if (path, chain.line) not in direct:
                    direct.add((path, chain.line))
                    yield path, chain, ""
        yield from self._through(exported)

    def outward(self, packages: Iterable[str]) -> Iterator[OwnImport]:
        """What the subject takes of the engine's packages: imports, and private names of what it imported."""
        roots = tuple(packages)
        for path in sorted(self.owned_paths):
            aliases: dict[str, list[str]] = {}
            for found in self.imports(path):
                if found.form is ImportForm.NAMED:
                    continue
                if self._is_subject(found):
                    aliases.setdefault(found.bound, []).append(_OWN)
                    continue
                if found.target.startswith("(") and not self._is_own_by_its_beginning(found.target):
                    yield OwnImport(path=path, line=found.line, target=found.target, form=found.form)
                elif is_below(found.module, roots):
                    yield OwnImport(path=path, line=found.line, target=found.target, form=found.form)
                    if (origin := self._origin(found.module, found.target)) and is_below(origin, roots):
                        yield OwnImport(path=path, line=found.line, target=origin, form=found.form)
                    bound = found.bound or found.target.rpartition(".")[2]
                    # `import a.b` binds a, and `import a.b as c` binds c to all of it.
                    is_top = found.target == found.module and found.target.partition(".")[0] == bound
                    aliases.setdefault(bound, []).append(bound if is_top else found.target)
            private = tuple(self._private_uses(path, aliases))
            yield from private
            known = {(use.line, use.target) for use in private}
            for chain in self._chains(path, lambda start, rest: self._engine_name(start, rest, roots)):
                if (chain.line, chain.target) not in known:
                    yield OwnImport(path=path, line=chain.line, target=chain.target, form=chain.form)

    def _is_own_by_its_beginning(self, target: str) -> bool:
        """Whether a computed name is the file's own, or begins with a package of the subject or with one dot."""
        text = target[1:-1]
        if text in _SELF:
            return True
        begins = _BEGINNING.match(text)
        start = begins["text"] if begins else ""
        if re.match(r"\.(?!\.)", start):
            return True
        package = start.rpartition(".")[0]
        others = (self.tree.module_of(p) for p in self.tree.files if p not in self.owned_paths)
        is_owned = any(is_below(name, (package,)) for name in self.owned)
        return bool(package) and is_owned and not any(is_below(name, (package,)) for name in others)

    def _origin(self, module: str, target: str, depth: int = 0) -> str:
        """Where a module outside the subject has a name from, if from another package; empty when it is its own."""
        name = target.removeprefix(f"{module}.")
        path = self.tree.path_of(module)
        # A name that is private already is judged as it is spelt.
        if path is None or path in self.owned_paths or "." in name or is_private(name) or depth > _MAX_DOORS:
            return ""
        if re.search(_DEFINED % {b"name": re.escape(name.encode())}, self.tree.files[path], re.MULTILINE):
            return ""
        found = next((i for i in self.imports(path) if i.bound_at_top == name and i.target != i.module), None)
        if found is None or self._is_subject(found):
            return ""
        # What a package publishes of its own modules is its interface.
        origin = self._origin(found.module, found.target, depth + 1) or found.target
        return "" if is_below(origin, (module,)) else origin

    def _outside(self, words: Iterable[str]) -> tuple[str, ...]:
        return tuple(
            path
            for path in self.tree.mentioning(words)
            if path not in self.owned_paths and not self.ignored(path)
        )

    def _is_subject(self, found: Import) -> bool:
        if found.target.startswith("("):
            words = set(_WORD.findall(found.target))
            return any(door in words for door in self._doors)
        if found.form is ImportForm.NAMED:
            return found.target in self.owned or found.target.rpartition(".")[0] in self.owned
        return found.target in self.owned or found.module in self.owned

    def _as_spelt(self, found: Import) -> Import:
        """A string that is the end of a module's name, as registries keep it, as an open import."""
        if found.form is not ImportForm.NAMED or self._is_subject(found):
            return found
        parts = (found.target, found.target.rpartition(".")[0])
        ends = [part for part in parts if "." in part]
        is_end = any(module.endswith(f".{end}") for module in self.owned for end in ends)
        return replace(found, target=f"({found.target})") if is_end else found

    def _own_module(self, start: str, rest: str) -> str:
        """The module of the subject in which a dotted name lies; empty when in none."""
        parts = f"{start}.{rest}".split(".")
        names = (".".join(parts[:count]) for count in range(len(parts), 0, -1))
        return next((name for name in names if name in self.owned), "")

    def _engine_name(self, start: str, rest: str, roots: tuple[str, ...]) -> str:
        """The whole name where it leads on from a package of the engine, not from a class or function."""
        is_package = "." not in start or (self.tree.path_of(start) or "").endswith("/__init__.py")
        is_own = bool(self._own_module(start, rest))
        return f"{start}.{rest}" if is_package and is_below(start, roots) and not is_own else ""

    def _chains(self, path: str, module_of: Callable[[str, str], str]) -> Iterator[Import]:
        """Modules that a file reaches by attributes of a package that it imported."""
        parsed = self.tree.parse(path)
        packages = {
            found.bound or found.target.rpartition(".")[2]: found
            for found in self.imports(path)
            if found.form not in (ImportForm.NAMED, ImportForm.DYNAMIC) and not self._is_subject(found)
        }
        inner: set[ast.AST] = set()
        for node in walk(parsed) if parsed is not None and packages else ():
            if not isinstance(node, ast.Attribute) or node in inner:
                continue
            inner |= {part for part in walk(node.value) if isinstance(part, ast.Attribute)}
            first, _, rest = (dotted(node) or "").partition(".")
            if first not in packages:
                continue
            found = packages[first]
            is_plain = found.target == found.module and found.target.partition(".")[0] == first
            start = first if is_plain else found.target
            if target := module_of(start, rest):
                yield replace(found, line=node.lineno, target=target, module=target, condition="", bound="")

    def _through(self, exported: dict[str, str]) -> Iterator[tuple[str, Import, str]]:
        """Imports of names that a module outside the subject had from the subject."""
        exporters = {name.rpartition(".")[0] for name in exported}
        paths = [path for module in exporters if (path := self.tree.path_of(module))]
        may_import = MayImport(exporters, paths)
        names = [name.rpartition(".")[2].encode() for name in exported]
        for path, content in sorted(self.tree.files.items()):
            if not may_import(path, content) or not any(name in content for name in names):
                continue
            for found in () if path in self.owned_paths or self.ignored(path) else self.imports(path):
                if found.target in exported and found.form is not ImportForm.NAMED:
                    yield path, found, found.module

    def _private_uses(self, path: str, aliases: dict[str, list[str]]) -> Iterator[OwnImport]:
        parsed = self.tree.parse(path)
        constants = string_constants(parsed) if parsed is not None else {}
        loops = _names_of_loops(parsed) if parsed is not None and aliases else {}
        key: ast.expr = ast.Constant("")
        seen: set[tuple[int, str]] = set()
        for node in walk(parsed) if parsed is not None and aliases else ():
            match node:
                case ast.Attribute(value=owner, attr=attribute):
                    spelt: str | None = attribute
                case ast.Call(func=ast.Name(id="getattr"), args=[owner, key, *_]):
                    spelt = spelt_text(key, constants)
                case ast.Subscript(value=ast.Attribute(value=owner, attr="__dict__"), slice=key):
                    spelt = spelt_text(key, constants)
                case ast.Subscript(value=ast.Call(func=ast.Name(id="vars"), args=[owner]), slice=key):
                    spelt = spelt_text(key, constants)
                case _:
                    continue
            first, _, rest = (dotted(owner) or "").partition(".")
            owners = dict.fromkeys(aliases.get(first, ()))
            others = [owner for owner in owners if owner != _OWN]
            names = [spelt] if spelt is not None else _looped(key, loops) if others else []
            for owner_name, name in itertools.product(others, names):
                if name is not None and not is_private(name):
                    continue
                target = ".".join(part for part in (owner_name, rest, name) if part)
                # A name that is the subject's own elsewhere in the file may be meant.
                target = f"({ast.unparse(node)})" if name is None or _OWN in owners else target
                if (node.lineno, target) not in seen:
                    seen.add((node.lineno, target))
                    yield OwnImport(path=path, line=node.lineno, target=target, form=ImportForm.STATIC)


def _names_of_loops(tree: ast.Module) -> dict[str, list[str | None]]:
    """The texts that a variable can be which nothing but loops over texts binds."""
    found: dict[str, list[str | None]] = {}
    nodes = walk(tree)
    loops = {id(node.target): node.iter for node in nodes if isinstance(node, ast.For | ast.comprehension)}
    for node in nodes:
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store | ast.Del):
            items = getattr(loops.get(id(node)), "elts", [None])
            found.setdefault(node.id, []).extend(
                item.value if isinstance(item, ast.Constant) and isinstance(item.value, str) else None
                for item in items
            )
        elif isinstance(node, ast.arg):
            found.setdefault(node.arg, []).append(None)
    return found


def _looped(key: ast.expr, loops: Mapping[str, list[str | None]]) -> list[str | None]:
    """The names that a key can be; None for one that cannot be told."""
    texts = loops.get(key.id) if isinstance(key, ast.Name) else None
    return texts if texts and None not in texts else [None]


def doors(tree: SourceTree, owned: frozenset[str]) -> frozenset[str]:
    """Names of which every import of the subject from outside mentions one.

    Of a folder that is owned whole its own name, of any other owned file the file's: a path into the subject from
    outside leads through it, whether it is written out or relative.
    """
    shared = {folder for path in tree.files if path not in owned for folder in _folders(path)}
    names = set()
    for path in owned:
        whole = [folder for folder in _folders(path) if folder and folder not in shared]
        module = tree.module_of(path)
        names.add(min(whole, key=len).rpartition("/")[2] if whole else module.rpartition(".")[2])
    return frozenset(names)


def _folders(path: str) -> list[str]:
    parts = path.split("/")[:-1]
    return ["/".join(parts[:count]) for count in range(len(parts) + 1)]


def collect_inward(head: Reaches, base: Reaches, guards: Guards) -> tuple[InwardImport, ...]:
    """Every reach into the subject at the head, one for each statement and module, and whether the base has it."""
    before = {(path, found.target) for path, found, _ in base.inward()}
    grouped: dict[tuple[str, int, str, str], list[Import]] = {}
    for path, found, via in head.inward():
        target = found.module if found.module in head.owned else found.target
        grouped.setdefault((path, found.line, target, via), []).append(found)
    return tuple(
        InwardImport(
            path=path,
            line=line,
            target=target,
            names=tuple(f.target.removeprefix(f"{target}.") for f in group if f.target != target),
            form=group[0].form,
            condition=group[0].condition,
            guards=guards(path, line),
            via=via,
            is_new=any((path, f.target) not in before for f in group),
        )
        for (path, line, target, via), group in grouped.items()
    )


def is_private(name: str) -> bool:
    """Whether a name is private by its underscore."""
    return name.startswith("_") and not name.startswith("__")
