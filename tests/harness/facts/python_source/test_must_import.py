"""What surely ran once some files were imported."""

from __future__ import annotations

import pytest

from harness.facts.python_source.must_import import conftests, must_import
from harness.facts.python_source.tree import SourceTree

FILES = {
    "conftest.py": b"",
    "p/__init__.py": b"",
    "p/a.py": b"import p.q.b\n",
    "p/q/__init__.py": b"from p.q import c\n",
    "p/q/b.py": b"from . import name\n",
    "p/q/c.py": b"",
    "p/q/name.py": b"",
    "p/lazy.py": b"",
    "p/unclear.py": b"",
}


def ran(source: bytes, **more: bytes) -> set[str]:
    files = FILES | {"t/test_x.py": source} | {f"p/{name}.py": text for name, text in more.items()}
    return set(must_import(SourceTree(files), ["t/test_x.py"]))


def test_imports_are_followed_through_modules_and_the_packages_around_them() -> None:
    whole = {
        "t/test_x.py",
        "p/__init__.py",
        "p/a.py",
        "p/q/__init__.py",
        "p/q/b.py",
        "p/q/c.py",
        "p/q/name.py",
    }
    assert ran(b"from p.a import anything\n") == whole


@pytest.mark.parametrize(
    "source",
    [
        b"def f():\n    import p.lazy\n",
        b"try:\n    import p.lazy\nexcept ImportError:\n    pass\n",
        b"import sys\nif sys.argv:\n    import p.lazy\n",
        b"from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import p.lazy\n",
        b"import importlib\nimportlib.import_module('p.lazy')\n",
        b"'p.lazy'\nx = 'p.lazy'\n",
    ],
)
def test_an_import_that_need_not_run_is_not_asked_for(source: bytes) -> None:
    assert ran(source) == {"t/test_x.py"}


def test_a_name_that_a_module_may_have_itself_is_no_module_for_sure() -> None:
    assert "p/q/name.py" in ran(b"from p.q import name\n")


@pytest.mark.parametrize(
    "package",
    [b"name = 1\n", b"def name(): ...\n", b"from os import path as name\n", b"from os import *\n",
     b"def __getattr__(x): ...\n", b"globals()['name'] = 1\n", b"name: ("],
)  # fmt: skip
def test_a_package_that_may_have_the_name_need_not_import_the_module(package: bytes) -> None:
    files = FILES | {"p/q/__init__.py": package, "t/test_x.py": b"from p.q import name\n"}
    assert "p/q/name.py" not in must_import(SourceTree(files), ["t/test_x.py"])


def test_files_that_do_not_parse_or_are_not_there_end_the_way() -> None:
    assert ran(b"import p.broken\n", broken=b"import (\n") == {"t/test_x.py", "p/__init__.py", "p/broken.py"}
    assert must_import(SourceTree(FILES), ["gone.py"]) == set()


def test_modules_that_import_each_other_are_taken_once() -> None:
    assert "p/two.py" in ran(b"import p.one\n", one=b"import p.two\n", two=b"import p.one\n")


def test_every_conftest_above_a_test_is_named_from_the_top_down() -> None:
    tree = SourceTree(FILES | {"t/u/conftest.py": b"", "v/conftest.py": b""})
    assert list(conftests(tree, "t/u/test_x.py")) == ["conftest.py", "t/u/conftest.py"]
