"""Names that are looked for in the engine's files: once each, and as if in one heap with other files."""

from __future__ import annotations

import pytest

from harness.facts.engine_source import EngineSource
from harness.facts.python_effects import names
from harness.facts.python_effects.names import search_both, search_engine, search_names
from harness.model.effects import NameSearch

ENGINE = {
    "vllm/a.py": b'TABLE = {"fast": 1}\nif x == "fast": pass\n',
    "vllm/b.py": b'os.getenv("VLLM_FAST")\nf"VLLM_{name}"\n' + b'y = "fast"\n' * 30,
}
NAMES = frozenset(("fast", "VLLM_FAST", "slow"))


@pytest.mark.parametrize(
    "others",
    [
        {},
        {"a/c.py": b'"fast": 2\nZ = "VLLM_"\n', "z.py": b'{"fast": 3}\n'},
        {"vllm/a.py": b'"slow"\n', "z.py": b'"fast"\n'},
    ],
    ids=["none", "of other paths", "in the place of an engine's"],
)
def test_both_are_searched_as_if_in_one_heap(others: dict[str, bytes]) -> None:
    found = search_both(NAMES, EngineSource(names=("made",), files=ENGINE), others)
    assert found == search_names(NAMES, {**ENGINE, **others}) and any(search.found for search in found)


def places(searches: tuple[NameSearch, ...]) -> dict[str, list[str]]:
    return {search.name: [found.place for found in search.found] for search in searches}


def test_only_a_name_in_capitals_is_found_where_code_computes_names() -> None:
    found = places(search_names({"VLLM_FAST", "vllm_fast"}, {"a.py": b'f"VLLM_{name}"\n'}))
    assert found == {"VLLM_FAST": ["a.py:1"], "vllm_fast": []}


@pytest.mark.parametrize(
    ("line", "completes"),
    [
        ('f"VLLM_{name}"', True),
        ('"VLLM_%s" % name', True),
        ('"VLLM_{}".format(name)', True),
        ('os.getenv("VLLM_" + name)', True),
        ('PREFIX = "VLLM_"', True),
        ('Settings(env_prefix="VLLM_")', True),
        ('name.startswith("VLLM_")', False),
        ('prefixes = ("VLLM_", "CUDA_")', False),
        ('prefix == "VLLM_"', False),
        ('prefix != "VLLM_"', False),
    ],
)
def test_the_beginning_of_a_name_is_found_where_code_completes_it_and_not_where_names_are_compared(
    line: str, completes: bool
) -> None:
    (search,) = search_names({"VLLM_FAST"}, {"a.py": line.encode()})
    assert bool(search.found) is completes


def test_an_engine_is_looked_through_once_and_another_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    searched: list[object] = []

    def counted(wanted: frozenset[str], files: dict[str, bytes]) -> tuple[NameSearch, ...]:
        searched.append(files)
        return search_names(wanted, files)

    monkeypatch.setattr(names, "search_names", counted)
    first, other = (EngineSource(names=("made",), files=files) for files in (ENGINE, {"b.py": b'"fast"'}))
    assert search_engine(NAMES, first) is search_engine(NAMES, first)
    assert search_engine(NAMES, other) != search_engine(NAMES, first)
    assert searched == [ENGINE, {"b.py": b'"fast"'}]
