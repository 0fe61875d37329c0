"""The Python files of a commit, as they are looked through."""

from __future__ import annotations

import pytest

from harness.facts.python_source.tree import SourceTree


@pytest.mark.parametrize(
    ("content", "may"),
    [
        (b"import fast\n", True),
        (b"import fa\n", False),
        (b"# coding: utf-7\nimport +AGYAYQBzAHQ-\n", True),
        (b"#!/bin/python\r\n# -*- coding: cp037 -*-\n", True),
        (b"# a\n# b\n# coding: utf-7\n", False),
        ("import ｆast\n".encode(), True),
        (b"", False),
    ],
)
def test_a_name_may_stand_where_its_letters_do_or_may_be_written_otherwise(content: bytes, may: bool) -> None:
    tree = SourceTree({"a.py": content})
    assert tree.may_name("a.py", "fast") is may


def test_a_file_that_is_not_there_names_nothing() -> None:
    assert not SourceTree({}).may_name("a.py", "fast")
