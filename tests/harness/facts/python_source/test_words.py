"""Laws of names: whoever else uses one is found, indexed or not; who only imports from a folder of that name is not."""

from __future__ import annotations

import pytest

from harness.facts.python_source.tree import SourceTree
from harness.facts.python_source.words import outside_of

FILES = {
    "a/inside.py": b"x.fast = 1\n",
    "b/comment.py": b"# fast\nfaster = 1\n",
    "b/folder.py": b"from b.fast import other\n",
    "c/user.py": b"y = 1\nreturn_(y.fast)\n",
    "d/later.py": b"z.fast = 2\n",
}


@pytest.mark.parametrize("indexed", [frozenset({"fast", "faster", "absent"}), frozenset[str]()])
@pytest.mark.parametrize(
    ("name", "user"), [("fast", "c/user.py:2"), ("faster", "b/comment.py:2"), ("absent", "")]
)
def test_the_first_use_outside_is_found_whether_the_name_was_indexed_or_not(
    name: str, user: str, indexed: frozenset[str]
) -> None:
    head = SourceTree(FILES)
    _, outside = outside_of(SourceTree({}), head, lambda _: False, lambda p: p.startswith("a/"), indexed)
    assert outside.user(name) == user


def test_a_file_that_is_inside_on_one_side_alone_counts_on_the_other() -> None:
    tree = SourceTree(FILES)
    base, head = outside_of(tree, tree, lambda _: False, lambda p: p.startswith("a/"), frozenset({"fast"}))
    assert (base.user("fast"), head.user("fast")) == ("a/inside.py:1", "c/user.py:2")
