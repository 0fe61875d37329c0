"""Which calls of a subject are a test's own, what they gave, and that they are falsified there alone."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from harness.own_tests.boundary import ERRORS, OBJECTS, TENSORS, VALUES, Boundary

SOURCE = """
import functools
import torch

class Cache:
    def __init__(self):
        self.rows, self.size = torch.zeros(4), 4
    def put(self, x):
        self.rows[1] = x
    @property
    def half(self):
        return self.size // 2
    @staticmethod
    def twice(x):
        return x * 2

def inner(x):
    return x + 1

def outer(x, *, scale=2):
    return inner(x) * scale

def add(x, out):
    out[:2] += x
    return out

def refuse(n):
    raise ValueError("no")

def nothing():
    return None

def maker(n):
    def made(x):
        return x + n
    return made

@functools.lru_cache
def kept(n):
    return n + 1

TABLE = {"inner": inner, "lambda": lambda x: x * 3}
AT_IMPORT = inner(1)
"""
Open = Callable[[str], tuple[ModuleType, Boundary]]


@pytest.fixture
def subject(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Open]:
    """Imports the subject under a boundary that falsifies what is asked."""
    path = tmp_path / "a_subject.py"
    path.write_text(SOURCE)
    monkeypatch.syspath_prepend(str(tmp_path))
    opened: list[Boundary] = []

    def open_subject(falsified: str = "") -> tuple[ModuleType, Boundary]:
        boundary = Boundary([str(path), str(tmp_path / "a_subject_too.py")], falsified)
        opened.append(boundary)
        sys.meta_path.insert(0, boundary.watch)
        return importlib.import_module("a_subject"), boundary

    yield open_subject
    sys.modules.pop("a_subject", None)
    for boundary in opened:
        sys.meta_path.remove(boundary.watch)


def calls_of(boundary: Boundary, act: Callable[[], Any]) -> dict[str, set[str]]:
    with boundary.scope("a test") as scope, suppress(ValueError):
        act()
    return {name.removeprefix("a_subject:"): kinds for name, kinds in scope.calls.items()}


@pytest.mark.parametrize(
    ("act", "calls"),
    [
        (lambda s: s.outer(torch.ones(2)), {"outer": {"tensors"}}),
        (lambda s: s.outer(3), {"outer": {"values"}}),
        (lambda s: s.add(1, torch.zeros(3)), {"add": {"tensors"}}),
        (lambda s: s.refuse(3), {"refuse": {"errors"}}),
        (lambda s: s.nothing(), {"nothing": {"nothing"}}),
        (lambda s: s.Cache(), {"Cache.__init__": {"objects"}}),
        (lambda s: s.Cache().put(1.0), {"Cache.__init__": {"objects"}, "Cache.put": {"tensors"}}),
        (lambda s: s.Cache().half, {"Cache.__init__": {"objects"}, "Cache.half": {"values"}}),
        (lambda s: s.Cache.twice(2), {"Cache.twice": {"values"}}),
        (lambda s: s.TABLE["inner"](2), {"inner": {"values"}}),
        (lambda s: s.TABLE["lambda"](2), {"<lambda>": {"values"}}),
        (lambda s: s.maker(1)(2), {"maker": {"other"}, "maker.<locals>.made": {"values"}}),
        (lambda s: s.kept(1), {"kept": {"values"}}),
        (lambda s: list(map(s.inner, [1])), {"inner": {"values"}}),
        (lambda s: s.AT_IMPORT, {}),
    ],
)
def test_what_a_test_calls_is_noted_with_what_it_gave(
    subject: Open, act: Callable[[Any], Any], calls: dict[str, set[str]]
) -> None:
    module, boundary = subject("")
    assert calls_of(boundary, lambda: act(module)) == calls


def test_only_what_crosses_the_boundary_is_falsified(subject: Open) -> None:
    module, boundary = subject(VALUES)
    with boundary.scope("a test"):
        assert module.outer(1) == 5  # 4, and 1 more; a falsified `inner` would give 7


def test_calls_while_no_test_runs_are_counted_and_left_alone(subject: Open) -> None:
    module, boundary = subject(VALUES)
    assert (module.inner(1), boundary.num_outside) == (2, 1)


def test_what_the_subject_calls_while_a_test_imports_it_is_its_own_affair(
    subject: Open, tmp_path: Path
) -> None:
    (tmp_path / "a_subject_too.py").write_text("import a_subject\nMADE = a_subject.inner(1)\n")
    _, boundary = subject(VALUES)
    try:
        with boundary.scope("a test") as scope:
            made = importlib.import_module("a_subject_too").MADE
    finally:
        sys.modules.pop("a_subject_too", None)
    assert (made, scope.calls) == (2, {})


def test_what_a_call_wrote_is_falsified_and_nothing_else(subject: Open) -> None:
    module, boundary = subject(TENSORS)
    out = torch.zeros(4)
    with boundary.scope("a test"):
        given = module.add(1, out)
    assert given is out and (out[:2] != 1).all() and out[2:].tolist() == [0, 0]


def test_what_a_call_wrote_into_its_own_object_is_falsified(subject: Open) -> None:
    module, boundary = subject(TENSORS)
    with boundary.scope("a test"):
        cache = module.Cache()
        cache.put(1.0)
    assert cache.rows[1] != 1 and cache.rows[0] == 0


def test_what_a_constructor_set_is_falsified_when_asked(subject: Open) -> None:
    module, boundary = subject(OBJECTS)
    with boundary.scope("a test"):
        assert module.Cache().size != 4


def test_an_error_is_withheld_when_asked(subject: Open) -> None:
    module, boundary = subject(ERRORS)
    with boundary.scope("a test"):
        assert module.refuse(1) is None


def test_an_error_that_comes_out_of_the_subject_is_kept(subject: Open) -> None:
    module, boundary = subject(TENSORS)
    with boundary.scope("a test"), pytest.raises(ValueError, match="no") as caught:
        module.refuse(1)
    assert boundary.escaped == [caught.value]


def test_the_same_calls_are_falsified_alike_in_every_run(subject: Open) -> None:
    module, boundary = subject(TENSORS)
    found = []
    for _ in range(2):
        with boundary.scope("a test"):
            found.append(module.inner(torch.ones(3)))
    assert torch.equal(*found)


def test_a_watched_function_shows_the_signature_that_it_had(subject: Open) -> None:
    module, _ = subject("")
    assert str(inspect.signature(module.outer)) == "(x, *, scale=2)"
