"""Edits that change no answer, and made changes of the subject that fit it."""

from __future__ import annotations

import ast
import shutil
import subprocess
from pathlib import Path
from random import Random
from typing import Any

import pytest

from harness.app.selftest.catalogue import Case
from harness.app.selftest.clean_cases import EVERY_TEST, make_clean_cases
from harness.app.selftest.innocent import KINDS, Source, applied, edit_innocently, repeat_a_test
from harness.model.errors import ConfigurationError

ROOT = Path(__file__).resolve().parents[4]
TEXT = '''
"""Größe: columns are bytes."""

LIMIT = 3


def scaled(value, *, by, plus):
    """A line of its own."""
    return value * by + plus


def total(values, limit=LIMIT):
    """Sums what is below a limit."""
    first = 1
    second = limit
    taken = [value for value in values if value < second]
    if not taken:
        return (
            scaled(first, by=2, plus=3)
        )
    return sum(taken) + first
'''
CALLS = ([], [1, 2, 3, 4], [9])


def answers(text: bytes) -> list[Any]:
    names: dict[str, Any] = {}
    exec(compile(text, "made", "exec"), names)
    return [names["total"](values) for values in CALLS]


@pytest.mark.parametrize("kind", KINDS)
def test_every_edit_of_a_kind_changes_the_text_and_no_answer(kind: str) -> None:
    edited = [applied(TEXT.encode(), edit) for edit in KINDS[kind](Source(TEXT.encode()))]
    assert edited and all(
        text != TEXT.encode() and answers(text) == answers(TEXT.encode()) for text in edited
    )


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("lines", "def f():\n    a = 1\n    b = a\n    return b\n"),
        ("lines", "def f(x):\n    a = x.pop()\n    b = x.pop()\n    return a, b\n"),
        ("lines", "def f(a):\n    a.b = 1\n    c = a.d\n    return c\n"),
        ("lines", "def f():\n    a = 1\n    a = 2\n    return a\n"),
        ("keywords", "f(a=g(), b=h())\n"),
        ("keywords", "f(a=1, **b)\n"),
        ("rename", "def f(a):\n    a = a + 1\n    return a\n"),
        ("rename", "def f():\n    a = 1\n    return lambda: a\n"),
        ("rename", "def f():\n    a = 1\n    return f'{a}'\n"),
        ("rename", "def f(b=a):\n    a = 1\n    return a\n"),
        ("rename", "def f():\n    global a\n    a = 1\n"),
        ("rename", "def f():\n    a = 1\n    return locals()\n"),
        ("named-result", "def f(a):\n    if a: return a + 1\n"),
    ],
)
def test_what_could_change_an_answer_is_not_edited(kind: str, text: str) -> None:
    assert list(KINDS[kind](Source(text.encode()))) == []


def shapes(text: str) -> list[tuple[int, int]]:
    """How many arguments each function of a file has."""
    code = [compile(text, "made", "exec")]
    for one in code:
        code += [constant for constant in one.co_consts if hasattr(constant, "co_code")]
    return [(one.co_argcount, one.co_kwonlyargcount) for one in code]


def test_every_file_of_the_subject_stays_a_program_with_the_same_functions() -> None:
    files = sorted((ROOT / "specialized_path").rglob("*.py"))
    texts = [file.read_text(encoding="utf-8") for file in files]
    edited = [edit_innocently(text, Random(seed), len(KINDS)) for seed, text in enumerate(texts)]
    assert [shapes(text) for text, _ in edited] == [shapes(text) for text in texts]
    assert {kind for _, kinds in edited for kind in kinds} == set(KINDS)


def test_the_same_seed_makes_the_same_edit_and_another_another() -> None:
    first, again, other = (edit_innocently(TEXT, Random(seed), 2) for seed in (1, 1, 2))
    assert first == again != other


def test_a_test_is_there_once_more_under_a_name_of_its_own() -> None:
    text = "def test_long():\n    assert 1 + 1 == 2\n\n\ndef test_a():\n    assert 1\n"
    names = [
        node.name for node in ast.parse(repeat_a_test(text) or "").body if isinstance(node, ast.FunctionDef)
    ]
    assert names == ["test_long", "test_a", "test_a_again"]


def test_a_file_whose_tests_are_all_decorated_gets_none() -> None:
    assert repeat_a_test("@mark\ndef test_a():\n    assert 1\n") is None


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Case, ...]:
    return make_clean_cases(ROOT, tmp_path_factory.mktemp("made"), 3 * EVERY_TEST, 0)


def test_every_made_change_fits_the_tree(made: tuple[Case, ...]) -> None:
    patches = [str(case.edit) for case in made]
    done = [subprocess.run(["git", "apply", "--check", patch], cwd=ROOT).returncode for patch in patches]
    assert done == [0] * len(made)


def test_made_changes_are_as_many_as_asked_with_tests_among_them(made: tuple[Case, ...]) -> None:
    assert len({case.name for case in made}) == 3 * EVERY_TEST
    assert any("+def test_" in case.edit.read_text() for case in made)


def test_a_manifest_that_names_no_file_to_edit_is_refused(tmp_path: Path) -> None:
    shutil.copyfile(ROOT / "fasttrack.toml", tmp_path / "fasttrack.toml")
    with pytest.raises(ConfigurationError, match="no file"):
        make_clean_cases(tmp_path, tmp_path, 1, 0)
