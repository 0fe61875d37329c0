"""Stands in front of every Python function of the subject, however it is referred to.

A function's code object is exchanged as soon as its module has run: whoever holds the function by then, under whatever
name, in a table, a decorator or a default, calls the new code.
"""

from __future__ import annotations

import functools
import importlib.abc
import inspect
import sys
import types
import warnings
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from importlib.machinery import ModuleSpec, SourceFileLoader
from typing import Any

Enter = Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]
"""Takes the function as it was, and the arguments of a call."""
_PLACE = 0x5EED_5EED
_LEFT_ALONE = frozenset(
    [
        "__repr__",
        "__str__",
        "__hash__",
        "__eq__",
        "__ne__",
        "__del__",
        "__new__",
        "__getattr__",
        "__getattribute__",
        "__setattr__",
        "__delattr__",
        "__init_subclass__",
        "__set_name__",
        "__class_getitem__",
        "__enter__",
        "__exit__",
        "__get__",
        "__reduce__",
        "__getstate__",
    ]
)
"""What Python or a debugger calls behind the back of a test."""


@functools.cache
def _template(num_free: int) -> types.CodeType:
    """Code that takes any arguments and gives them to a constant, with as many free variables as wanted."""
    names = [f"free{i}" for i in range(num_free)]
    source = "def outer():\n"
    source += f"    {' = '.join(names)} = None\n" if names else ""
    source += "    def inner(*args, **kwargs):\n"
    source += f"        if 0: {', '.join(names)}\n" if names else ""
    source += f"        return {_PLACE}(args, kwargs)\n"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SyntaxWarning)
        code = compile(source, "<watch>", "exec")
    for _ in range(2):
        code = next(c for c in code.co_consts if isinstance(c, types.CodeType))
    return code


def watch_function(function: types.FunctionType, enter: Enter) -> None:
    """Lets every call of the function go through `enter`."""
    code = function.__code__
    before = types.FunctionType(
        code, function.__globals__, function.__name__, function.__defaults__, function.__closure__
    )
    before.__kwdefaults__ = function.__kwdefaults__
    before.__qualname__, before.__module__ = function.__qualname__, function.__module__

    def go(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return enter(before, args, kwargs)

    template = _template(len(code.co_freevars))
    function.__signature__ = inspect.signature(before)  # type: ignore[attr-defined]
    function.__code__ = template.replace(
        co_consts=tuple(go if type(c) is int and c == _PLACE else c for c in template.co_consts),
        co_freevars=code.co_freevars,
        co_name=code.co_name,
        co_qualname=code.co_qualname,
        co_filename=code.co_filename,
        co_firstlineno=code.co_firstlineno,
    )


class SubjectWatch(importlib.abc.MetaPathFinder):
    """An import hook that watches the functions of the subject's files.

    Args:
        files: Absolute paths of the subject's Python files.
        enter: What every call goes through.
        inside: Held while a module of the subject runs: what it calls meanwhile is its own affair.
    """

    def __init__(
        self, files: Sequence[str], enter: Enter, inside: Callable[[], AbstractContextManager[None]]
    ) -> None:
        self._files = frozenset(files)
        self._enter = enter
        self._inside = inside
        self._watched: weakref.WeakSet[types.FunctionType] = weakref.WeakSet()
        self.modules: set[str] = set()
        """Names of the subject's modules that were imported."""
        self.num_functions = 0

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> ModuleSpec | None:
        """The spec that the other finders give, with a loader that watches what it has loaded."""
        for finder in sys.meta_path:
            spec = None if finder is self else finder.find_spec(fullname, path, target)
            if spec is not None:
                if isinstance(spec.loader, SourceFileLoader) and spec.origin in self._files:
                    self._watch_after(spec.loader)
                return spec
        return None

    def _watch_after(self, loader: Any) -> None:
        execute = loader.exec_module

        def exec_module(module: types.ModuleType) -> None:
            self.modules.add(module.__name__)
            with self._inside():
                execute(module)
            for function in _functions_of(module):
                self.watch(function)

        loader.exec_module = exec_module

    def is_own(self, kind: type) -> bool:
        """Whether a class is the subject's."""
        return kind.__module__ in self.modules

    def watch(self, function: object) -> None:
        """Watches a Python function of the subject's files; anything else is left alone."""
        if not isinstance(function, types.FunctionType) or function in self._watched:
            return
        if function.__code__.co_filename not in self._files or function.__name__ in _LEFT_ALONE:
            return
        if function.__code__.co_flags & (inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR):
            return
        self._watched.add(function)
        self.num_functions += 1
        watch_function(function, self._enter)


def _functions_of(module: types.ModuleType) -> Iterator[object]:
    """What a module holds that may be a function of its own, through classes, decorators and tables."""
    seen: set[int] = set()
    waiting = list(vars(module).values())
    while waiting:
        value = waiting.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, type):
            if value.__module__ == module.__name__:
                waiting += vars(value).values()
        elif isinstance(value, property):
            waiting += [value.fget, value.fset]
        elif isinstance(value, dict) and len(seen) < 100_000:
            waiting += [v for v in value.values() if callable(v)]
        elif isinstance(value, list | tuple):
            waiting += [v for v in value if callable(v)]
        else:
            if isinstance(value, staticmethod | classmethod):
                waiting.append(value.__func__)
            elif isinstance(value, functools.partial | functools.cached_property):
                waiting.append(value.func)
            waiting += [v for k, v in getattr(value, "__dict__", {}).items() if k == "__wrapped__"]
            yield value
