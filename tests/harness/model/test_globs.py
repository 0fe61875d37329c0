"""Laws of globs, held against git's own reading of them and against brute force."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.model.globs import glob_problem, globs_overlap, literal_parts, matching_glob

_NAMES = st.text("ab.", min_size=1, max_size=3).filter(lambda name: name not in (".", ".."))
_PATHS = st.lists(_NAMES, min_size=1, max_size=4).map("/".join)
_PARTS = st.one_of(
    st.just("**"),
    st.text("ab.*?", min_size=1, max_size=3).filter(lambda part: part not in (".", "..", "**", "***")),
)
_GLOBS = st.lists(_PARTS, min_size=1, max_size=4).map("/".join)


@pytest.mark.parametrize(
    ("glob", "path", "expected"),
    [
        ("own/**", "own/a.py", True),
        ("own/**", "own/b/c/a.py", True),
        ("own/**", "own", False),
        ("own/**", "own_evil/a.py", False),
        ("own/**", "x/own/a.py", False),
        ("own/**", "Own/a.py", False),
        ("own/*.py", "own/a.py", True),
        ("own/*.py", "own/b/a.py", False),
        ("own/", "own/b/a.py", True),
        ("own", "own/a.py", False),
        ("**/a.py", "a.py", True),
        ("**/a.py", "x/y/a.py", True),
        ("a/**/b", "a/b", True),
        ("a/**/b", "a/x/y/b", True),
        ("a/**/b", "a/xb", False),
        ("README.md", "docs/README.md", False),
        ("a?c", "abc", True),
        ("a?c", "a/c", False),
        ("*", "a/b", False),
        ("**", "a/b", True),
        ("a.py", "axpy", False),
        ("own/*", "own/new\nline", True),
        ("own/*", "own/", False),
        ("X", "Y", False),
    ],
)
def test_a_glob_is_anchored_and_only_two_stars_cross_folders(glob: str, path: str, expected: bool) -> None:
    assert (matching_glob(path, [glob]) == glob) is expected


@settings(deadline=None)
@given(_PATHS)
def test_a_path_matches_itself_and_nothing_else_of_its_length(path: str) -> None:
    assert matching_glob(path, [path])
    assert not matching_glob(path + "a", [path])
    assert not matching_glob("a" + path, [path])


@settings(deadline=None)
@given(_GLOBS, _PATHS, _NAMES)
def test_everything_below_a_folder_that_matches_is_below_its_glob(glob: str, folder: str, name: str) -> None:
    if not glob.endswith("**") and matching_glob(folder, [glob]):
        assert matching_glob(f"{folder}/{name}", [f"{glob}/**"])


@settings(max_examples=400, deadline=None)
@given(_GLOBS, _GLOBS, _PATHS)
def test_globs_with_a_common_path_overlap(left: str, right: str, path: str) -> None:
    if matching_glob(path, [left]) and matching_glob(path, [right]):
        assert globs_overlap(left, right)


@settings(deadline=None)
@given(_GLOBS, _PATHS)
def test_a_path_overlaps_exactly_the_globs_that_match_it(glob: str, path: str) -> None:
    assert globs_overlap(glob, path) == (matching_glob(path, [glob]) is not None)


@settings(deadline=None)
@given(_GLOBS, _GLOBS)
def test_overlap_does_not_depend_on_the_order(left: str, right: str) -> None:
    assert globs_overlap(left, right) == globs_overlap(right, left)


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        ("own/**", "own/core/**", True),
        ("own/**", "core/**", False),
        ("own/*.py", "own/*.toml", False),
        ("own/a*", "own/*b", True),
        ("**/x", "own/**", True),
        ("a/*/c", "a/b/*", True),
        ("a/**", "a", False),
        ("a/**/b", "a/b", True),
    ],
)
def test_overlap_is_told_for_the_usual_shapes(left: str, right: str, expected: bool) -> None:
    assert globs_overlap(left, right) is expected


@settings(max_examples=150, deadline=None)
@given(st.text("a*?", min_size=1, max_size=4), st.text("a*?", min_size=1, max_size=4))
def test_overlap_of_names_is_what_trying_all_names_finds(left: str, right: str) -> None:
    if glob_problem(left) or glob_problem(right) or "**" in (left, right):
        return
    names = ["a" * n for n in range(1, 9)]
    tried = any(matching_glob(n, [left]) and matching_glob(n, [right]) for n in names)
    assert globs_overlap(left, right) is tried


@pytest.mark.parametrize("glob", ["", "/", "/own", "own//a", "./a", "a/../b", "[ab]", "{a,b}", "!a", "a\\b"])
def test_a_glob_of_another_language_is_named(glob: str) -> None:
    assert glob_problem(glob)


@settings(deadline=None)
@given(_GLOBS)
def test_every_glob_of_the_language_is_accepted(glob: str) -> None:
    assert glob_problem(glob) is None


def test_a_folder_may_be_named_with_a_slash_behind_it() -> None:
    assert glob_problem("own/") is None


@pytest.mark.parametrize("glob", ["vllm/models/kimi_*/x", "vllm/models/kimi_?/x"])
def test_the_literal_start_of_a_glob_ends_at_its_first_wildcard(glob: str) -> None:
    assert literal_parts(glob) == ("vllm", "models")


def test_anchored_globs_read_as_git_reads_them(tmp_path: Path) -> None:
    paths = ["a", "a/b", "a/b/c", "ab/c", "b/a/c", "a/x.py", "a/b/x.py", "x.py"]
    subprocess.run(["git", "init", "--quiet", str(tmp_path)], check=True)
    for glob in ["a/*", "a/**", "**/x.py", "a/**/x.py", "a*/c", "?/b"]:
        (tmp_path / ".gitignore").write_text(f"/{glob}\n")
        for path in paths:
            matched = matching_glob(path, [glob]) is not None
            folders = ["/".join(path.split("/")[:n]) for n in range(1, path.count("/") + 1)]
            covered = matched or any(matching_glob(folder, [glob]) for folder in folders)
            done = subprocess.run(
                ["git", "check-ignore", "--no-index", "-q", path], cwd=tmp_path, check=False
            )
            assert (done.returncode == 0) is covered, (glob, path)
