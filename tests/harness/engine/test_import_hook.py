"""The import hook pins, digests and wraps; modules that nobody imports stay unimported."""

from __future__ import annotations

import functools
import hashlib
import importlib
import importlib.util
import py_compile
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.engine.import_hook import SubjectFinder, Wrapper


class Listener:
    """Keeps what the hook reports."""

    def __init__(self) -> None:
        self.modules: list[str] = []
        self.files: dict[str, str] = {}
        self.wrapped: list[str] = []
        self.missing: dict[str, str] = {}

    def module_found(self, module: str) -> None:
        self.modules.append(module)

    def file_read(self, module: str, path: Path, data: bytes) -> None:
        assert path.is_file()
        self.files[module] = hashlib.sha256(data).hexdigest()

    def target_wrapped(self, target: str) -> None:
        self.wrapped.append(target)

    def target_missing(self, target: str, reason: str) -> None:
        self.missing[target] = reason


def shout(function: Callable[..., Any], _target: str) -> Callable[..., Any]:
    """Puts "wrapped" before what the function returns."""

    @functools.wraps(function)
    def shouted(*args: Any, **kwargs: Any) -> Any:
        return f"wrapped {function(*args, **kwargs)}"

    return shouted


Hook = Callable[..., Listener]


@pytest.fixture
def subject(tmp_path: Path) -> Path:
    """A folder with package `hooked`."""
    package = tmp_path / "head" / "hooked"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "code.py").write_text(
        "import hooked.early\n"
        "def run():\n    return 'run'\n"
        "class Planner:\n"
        "    def plan(self):\n        return 'plan'\n"
        "    @staticmethod\n    def still():\n        return 'still'\n"
        "    @classmethod\n    def made(cls):\n        return cls.__name__\n"
        "class Special(Planner):\n    pass\n"
        "limit = 3\n"
        "class Served:\n"
        "    def plain(self):\n        return 'plain'\n"
        "    quiet = plain\n"
        "    by_name = {'plain': plain}\n"
        "begin = run\n"
        "starts = [run]\n"
        "async def later():\n    return 1\n"
        "import hooked.late\n"
    )
    (package / "early.py").touch()
    # Imported in a cycle, before the import of `hooked.code` is complete.
    (package / "late.py").write_text("from hooked.code import run\n")
    (package / "user.py").write_text("from hooked.code import run as start\n")
    return tmp_path / "head"


@pytest.fixture
def hook(subject: Path) -> Iterator[Hook]:
    """Installs a finder for `hooked` with the given targets; all traces are removed at the end."""
    listener = Listener()
    finders: list[SubjectFinder] = []

    def install(*targets: str, wrapper: Wrapper = shout) -> Listener:
        finders.append(
            SubjectFinder(
                pinned={"hooked": subject},
                watched=("hooked",),
                wrappers=[(t, wrapper) for t in targets],
                listener=listener,
            )
        )
        sys.meta_path.insert(0, finders[-1])
        importlib.invalidate_caches()
        return listener

    yield install
    for finder in finders:
        sys.meta_path.remove(finder)
    for name in [n for n in sys.modules if n.partition(".")[0] == "hooked"]:
        del sys.modules[name]


def load(name: str) -> Any:
    return importlib.import_module(name)


def test_a_from_import_gets_the_wrapped_function(hook: Hook) -> None:
    listener = hook("hooked.code:run")
    assert (load("hooked.user").start(), listener.wrapped) == ("wrapped run", ["hooked.code:run"])


def test_a_from_import_inside_an_import_cycle_gets_the_wrapped_function(hook: Hook) -> None:
    hook("hooked.code:run")
    load("hooked.code")
    assert load("hooked.late").run() == "wrapped run"


@pytest.mark.parametrize(
    ("target", "call", "expected"),
    [
        ("Planner.plan", lambda code: code.Planner().plan(), "wrapped plan"),
        ("Planner.still", lambda code: code.Planner.still(), "wrapped still"),
        ("Planner.made", lambda code: code.Special.made(), "wrapped Special"),
        ("Special.plan", lambda code: code.Special().plan(), "wrapped plan"),
        ("Special.plan", lambda code: code.Planner().plan(), "plan"),
    ],
    ids=["method", "staticmethod", "classmethod", "inherited", "the base is left alone"],
)
def test_methods_are_wrapped_whatever_their_kind(
    hook: Hook, target: str, call: Callable[[Any], str], expected: str
) -> None:
    hook(f"hooked.code:{target}")
    assert call(load("hooked.code")) == expected


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ("gone", "has no 'gone'"),
        ("Gone.plan", "has no 'Gone'"),
        ("limit", "is a int, not a function"),
        ("later", "a coroutine"),
    ],
)
def test_a_target_that_cannot_be_wrapped_is_missing_with_its_reason(
    hook: Hook, target: str, reason: str
) -> None:
    listener = hook(f"hooked.code:{target}")
    load("hooked.code")
    assert reason in listener.missing[f"hooked.code:{target}"] and not listener.wrapped


def test_another_name_of_a_function_gets_the_wrapped_one(hook: Hook) -> None:
    hook("hooked.code:run", "hooked.code:Served.plain")
    code = load("hooked.code")
    assert {code.begin(), code.starts[0](), code.run()} == {"wrapped run"}
    served = code.Served()
    assert {served.quiet(), served.by_name["plain"](served), served.plain()} == {"wrapped plain"}


def test_a_class_keeps_the_function_that_another_inherits_from_it(hook: Hook) -> None:
    hook("hooked.code:Special.plan")
    code = load("hooked.code")
    assert (code.Special().plan(), code.Planner().plan()) == ("wrapped plan", "plan")


def test_naming_a_target_imports_nothing(hook: Hook) -> None:
    listener = hook("hooked.code:run")
    load("hooked.early")
    assert (listener.modules, listener.wrapped, listener.missing) == (["hooked", "hooked.early"], [], {})


def test_looking_for_a_module_is_not_importing_it(hook: Hook) -> None:
    listener = hook()
    load("hooked")
    assert importlib.util.find_spec("hooked.code") is not None
    assert listener.modules == ["hooked"]


def test_the_digest_is_that_of_the_file(hook: Hook, subject: Path) -> None:
    listener = hook()
    load("hooked.code")
    assert (
        listener.files["hooked.code"] == hashlib.sha256((subject / "hooked/code.py").read_bytes()).hexdigest()
    )


def test_a_compiled_file_never_runs_in_place_of_the_source(hook: Hook, subject: Path) -> None:
    source = subject / "hooked/early.py"
    source.write_text("who = 'planted'\n")
    py_compile.compile(str(source), invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)
    source.write_text("who = 'committed'\n")
    hook()
    assert load("hooked.early").who == "committed"


def test_a_root_comes_from_its_pinned_folder_even_if_another_stands_first(
    hook: Hook, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "installed/hooked").mkdir(parents=True)
    (tmp_path / "installed/hooked/__init__.py").write_text("who = 'installed'\n")
    monkeypatch.syspath_prepend(str(tmp_path / "installed"))
    hook()
    assert not hasattr(load("hooked"), "who")


def test_a_root_that_its_folder_lacks_is_not_looked_for_elsewhere(
    hook: Hook, subject: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "installed/hooked").mkdir(parents=True)
    (tmp_path / "installed/hooked/__init__.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path / "installed"))
    hook()
    (subject / "hooked").rename(subject / "renamed")
    importlib.invalidate_caches()
    with pytest.raises(ModuleNotFoundError):
        load("hooked")
