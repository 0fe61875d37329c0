"""Law of the page: no number and no text of the change is shown that is not in the bundle, at the place it names."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from reports.shown import visible
from tests.reports.numbers import ROOT, PageWalk
from tests.reports.pages import NAMES, Element, Values, parse_page
from tests.reports.tallies import RULES

ANNOTATIONS = (
    "data-ref", "data-key-of", "data-count-of", "data-length-of", "data-tally", "data-numbers-of", "data-items-of",
)  # fmt: skip


def page_of(folder: Path) -> Element:
    return parse_page((folder / "report.html").read_text("utf-8"))


@pytest.mark.parametrize("name", NAMES)
def test_every_text_and_number_is_the_bundles_at_the_place_it_names(
    examples: dict[str, Path], name: str
) -> None:
    page = page_of(examples[name])
    assert list(PageWalk(page, examples[name]).problems()) == []
    assert sum("data-ref" in e.attributes for e in page.walk()) > 10


def test_every_kind_of_number_is_walked(examples: dict[str, Path]) -> None:
    kinds = Counter(a for e in page_of(examples["drills"]).walk() for a in e.attributes)
    assert set(ANNOTATIONS) <= set(kinds)
    assert kinds["data-tally"] > 100


def test_every_rule_of_a_computed_number_occurs_and_is_written_down(examples: dict[str, Path]) -> None:
    tallies = [
        e.attributes["data-tally"] for e in page_of(examples["drills"]).walk() if "data-tally" in e.attributes
    ]
    text = (ROOT / "docs" / "output.md").read_text("utf-8")
    assert {rule.split()[0] for rule in tallies} == set(RULES)
    assert all(f"`{name}`" in text for name in RULES)


def test_a_number_of_any_kind_that_is_changed_is_noticed(examples: dict[str, Path]) -> None:
    page = page_of(examples["drills"])
    for annotation in ANNOTATIONS:
        holders = [e for e in page.walk() if annotation in e.attributes and e.text.strip()]
        element = next(
            e for e in holders[len(holders) // 2].walk() if any(isinstance(c, str) for c in e.children)
        )
        element.children.append("7")
    problems = list(PageWalk(page, examples["drills"]).problems())
    assert {text.partition("=")[0] for text in problems} == set(ANNOTATIONS)


def test_a_number_that_is_made_up_is_noticed_whatever_it_claims(examples: dict[str, Path]) -> None:
    page = page_of(examples["drills"])
    main = next(e for e in page.walk() if e.tag == "main")
    claims = ({}, {"data-fixed": ""}, {"data-length-of": "change.json#/limited_to"}, {"class": "num"})
    main.children += [Element("span", attributes, main, ["94.217"]) for attributes in claims]
    assert len(list(PageWalk(page, examples["drills"]).problems())) == len(claims)


@pytest.mark.parametrize("name", NAMES)
def test_the_counts_of_the_map_are_those_of_the_judgement(examples: dict[str, Path], name: str) -> None:
    values = Values(examples[name])
    grid = next(e for e in page_of(examples[name]).walk() if e.attributes.get("class") == "grid")
    marks = [e for e in grid.walk() if e.attributes.get("class", "").startswith("mark ")]
    shown = []
    for mark in marks:
        *_, outcome = mark.attributes["class"].split()
        (refs,) = [e.attributes["data-count-of"] for e in mark.walk() if "data-count-of" in e.attributes]
        assert {values.at(ref)["outcome"] for ref in refs.split()} == {outcome}
        assert {values.at(ref)["required"] for ref in refs.split()} == {
            "advisory" not in mark.attributes["class"]
        }
        shown += refs.split()
    assert sorted(shown) == sorted(
        f"judgement.json#/checks/{i}" for i in range(len(values.at("judgement.json#/checks")))
    )


def test_the_reason_is_the_judgements_own_sentence(examples: dict[str, Path]) -> None:
    for name in NAMES:
        (reason,) = [e for e in page_of(examples[name]).walk() if e.attributes.get("class") == "reason"]
        assert reason.text == visible(Values(examples[name]).at("judgement.json#/reason"))
