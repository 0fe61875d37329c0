"""An import hook that pins where a subject comes from, digests what is run, and wraps functions on import."""

from __future__ import annotations

import hashlib
import importlib.abc
import importlib.machinery
import inspect
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, Protocol

from harness.engine.trace_settings import is_below

Wrapper = Callable[[Callable[..., Any], str], Callable[..., Any]]
"""Takes a function and its target name, gives the function to put in its place."""


class ImportListener(Protocol):
    """Hears what the hook sees."""

    def module_found(self, module: str) -> None:
        """A watched module is about to be executed."""
        ...

    def file_read(self, module: str, path: Path, data: bytes) -> None:
        """The bytes of a watched module's file, as they are executed."""
        ...

    def target_wrapped(self, target: str) -> None:
        """A target is wrapped from now on."""
        ...

    def target_missing(self, target: str, reason: str) -> None:
        """A target's module was imported and the target cannot be wrapped."""
        ...


class SubjectFinder(importlib.abc.MetaPathFinder):
    """Finds the import roots in one folder only, and wraps targets as soon as their module has run.

    Wrapping happens before the importing statement continues, so `from module import function` gets the wrapped
    function. Watched source files are always compiled from the bytes that are digested: compiled files in
    `__pycache__` are neither used nor written.
    """

    def __init__(
        self,
        *,
        pinned: Mapping[str, Path],
        watched: Sequence[str],
        wrappers: Iterable[tuple[str, Wrapper]],
        listener: ImportListener,
    ) -> None:
        self._pinned = dict(pinned)
        self._watched = tuple(watched)
        self._wrappers: dict[str, list[tuple[str, Wrapper]]] = {}
        for target, wrapper in wrappers:
            self._wrappers.setdefault(target.partition(":")[0], []).append((target, wrapper))
        self._listener = listener

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The spec of a pinned, watched or targeted module; None leaves the module to the other finders."""
        watched = is_below(fullname, self._watched)
        if fullname not in self._pinned and fullname not in self._wrappers and not watched:
            return None
        spec = self._locate(fullname, path, target)
        if spec is None:
            return None
        if isinstance(spec.loader, SourceFileLoader) and watched:
            spec.loader = _DigestingLoader(spec.loader.name, spec.loader.path, self._listener)
        if spec.loader is not None and not isinstance(spec.loader, type):
            self._finish_after(spec, spec.loader, watched)
        return spec

    def _locate(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None
    ) -> ModuleSpec | None:
        if fullname in self._pinned:
            folder = self._pinned[fullname]
            spec = PathFinder.find_spec(fullname, [str(folder)])
            if spec is None:
                raise ModuleNotFoundError(f"No module named {fullname!r} in its pinned folder", name=fullname)
            if spec.submodule_search_locations is not None:
                # A namespace package would search sys.path again whenever that changes.
                spec.submodule_search_locations = list(spec.submodule_search_locations)
            return spec
        for finder in sys.meta_path:
            if finder is not self and (spec := finder.find_spec(fullname, path, target)) is not None:
                return spec
        return None

    def _finish_after(self, spec: ModuleSpec, loader: Any, watched: bool) -> None:
        execute = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            if watched:
                self._listener.module_found(spec.name)
            execute(module)
            if watched and not isinstance(loader, _DigestingLoader) and spec.has_location and spec.origin:
                self._listener.file_read(spec.name, Path(spec.origin), Path(spec.origin).read_bytes())
            self.wrap_module(module)

        loader.exec_module = exec_module

    def wrap_module(self, module: ModuleType) -> None:
        """Wraps the targets that live in an executed module."""
        for target, wrapper in self._wrappers.get(module.__name__, ()):
            reason = wrap_target(module, target, wrapper, self._watched)
            if reason:
                self._listener.target_missing(target, reason)
            else:
                self._listener.target_wrapped(target)


class _DigestingLoader(SourceFileLoader):
    """Runs exactly the source bytes that it reports."""

    def __init__(self, fullname: str, path: str, listener: ImportListener) -> None:
        super().__init__(fullname, path)
        self._listener = listener

    def get_code(self, fullname: str) -> CodeType | None:
        """The code compiled from the file's bytes, never from a cache."""
        path = self.get_filename(fullname)
        data = self.get_data(path)
        self._listener.file_read(fullname, Path(path), data)
        code: CodeType = self.source_to_code(data, path)
        return code


def wrap_target(module: ModuleType, target: str, wrapper: Wrapper, rebind_below: Sequence[str] = ()) -> str:
    """Replaces the function that `target` names inside `module`; the reason when that is impossible, else "".

    Whoever else holds it by then gets the wrapped one, too: other names in `module` and its classes, entries of their
    tables, and modules below `rebind_below` that took it in an import cycle.
    """
    *owners, name = target.partition(":")[2].split(".")
    owner: Any = module
    for part in owners:
        owner = getattr(owner, part, None)
        if owner is None:
            return f"{module.__name__} has no {part!r}"
    try:
        raw = inspect.getattr_static(owner, name)
    except AttributeError:
        return f"{'.'.join([module.__name__, *owners])} has no {name!r}"
    function = raw.__func__ if isinstance(raw, staticmethod | classmethod) else raw
    if not inspect.isroutine(function):
        return f"{name!r} is a {type(function).__name__}, not a function"
    if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function):
        return f"{name!r} is a coroutine or a generator, whose call returns before it has run"
    wrapped: Any = wrapper(function, target)
    replacement = type(raw)(wrapped) if function is not raw else wrapped
    is_own = name in vars(owner)
    setattr(owner, name, replacement)
    if is_own:  # the class that an inherited function comes from keeps its own
        modules = [module, *(m for n, m in list(sys.modules.items()) if is_below(n, rebind_below))]
        for holder in [held for m in modules for held in (m, *_classes_of(m))]:
            _rebind(holder, {id(raw): replacement, id(function): wrapped})
    return ""


def _classes_of(module: ModuleType) -> list[type]:
    found = list(vars(module).values())
    return [c for c in found if isinstance(c, type) and c.__module__ == module.__name__]


def _rebind(holder: Any, new: Mapping[int, Any]) -> None:
    """Replaces what a module or a class holds under any name, and in its dictionaries and lists, by identity."""
    for name, value in list(vars(holder).items()):
        if id(value) in new:
            setattr(holder, name, new[id(value)])
        elif isinstance(value, dict) and not name.startswith("__"):
            value.update({key: new[id(entry)] for key, entry in value.items() if id(entry) in new})
        elif isinstance(value, list):
            value[:] = [new.get(id(entry), entry) for entry in value]


def digest_bytes(data: bytes) -> str:
    """The sha256 of a file's bytes, in hexadecimal."""
    return hashlib.sha256(data).hexdigest()
