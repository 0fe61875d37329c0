"""Laws of CODEOWNERS: the last line that matches counts, by the rules that GitHub documents."""

from __future__ import annotations

import pytest

from harness.model.codeowners import CodeOwners


@pytest.mark.parametrize(
    ("pattern", "path", "matches"),
    [
        ("*", "a/b.py", True),
        ("*.js", "a/b.js", True),
        ("*.js", "a/b.jsx", False),
        ("/build/logs/", "build/logs/x/y", True),
        ("/build/logs/", "a/build/logs/x", False),
        ("build/logs/", "a/build/logs/x", False),
        ("docs/*", "docs/a.md", True),
        ("docs/*", "docs/more/a.md", False),
        ("apps/", "a/apps/b", True),
        ("/docs/", "docs/a/b.md", True),
        ("/scripts", "scripts/a/b.sh", True),
        ("/scripts", "scripts", True),
        ("/scripts", "more/scripts", False),
        ("**/logs", "deep/down/logs/x", True),
        ("**/logs", "logs/x", True),
        ("/apps/github", "apps/github/x", True),
        ("a/**/z.py", "a/z.py", True),
        ("a/**/z.py", "a/b/c/z.py", True),
        ("a?.py", "ab.py", True),
        ("a?.py", "a/.py", False),
        ("/A.py", "a.py", False),
        ("with\\ space/", "with space/a", True),
        ("vllm/v1/core", "vllm/v1/core/sched/x.py", True),
    ],
)
def test_a_pattern_matches_as_github_says(pattern: str, path: str, matches: bool) -> None:
    assert CodeOwners(f"{pattern} @owner\n").owners_of(path) == (("@owner",) if matches else ())


def test_the_last_matching_line_counts() -> None:
    assert CodeOwners("* @all\n/a/ @a @org/team\n").owners_of("a/x") == ("@a", "@org/team")


def test_a_line_without_owners_takes_ownership_away() -> None:
    owners = CodeOwners("/apps/ @octocat\n/apps/github\n")
    assert (owners.owners_of("apps/x"), owners.owners_of("apps/github/x")) == (("@octocat",), ())


def test_comments_end_a_line_and_addresses_are_owners() -> None:
    assert CodeOwners("# all\n*.go docs@example.com # mine @no\n").owners_of("a.go") == ("docs@example.com",)


@pytest.mark.parametrize(
    ("line", "path"),
    [("!a @x", "!a"), ("[ab].py @x", "[ab].py"), ("a.py nobody", "a.py"), ("\\#a @x y", "\\#a")],
)
def test_a_line_that_github_does_not_understand_is_skipped(line: str, path: str) -> None:
    assert CodeOwners(f"* @all\n{line}\n").owners_of(path) == ("@all",)


def test_a_file_above_3_mib_gives_no_owners() -> None:
    assert CodeOwners("* @all\n" + "#" * (3 * 2**20)).owners_of("a") == ()
