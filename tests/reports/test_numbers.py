"""Law of the page: no number and no text of the change is shown that is not in the bundle, at the place it names."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from reports.shown import format_together, visible
from tests.reports.pages import NAMES, Element, Values, parse_page

ANNOTATIONS = (
    "data-ref", "data-count-of", "data-length-of", "data-numbers-of", "data-excerpt-of", "data-command",
    "data-id-of", "data-path", "data-items-of", "data-fixed",
)  # fmt: skip


def page_of(folder: Path) -> Element:
    return parse_page((folder / "report.html").read_text("utf-8"))


def body_of(page: Element) -> Element:
    return next(e for e in page.walk() if e.tag == "body")


def annotated(page: Element, attribute: str) -> Iterator[tuple[Element, str]]:
    for element in page.walk():
        if attribute in element.attributes:
            yield element, element.attributes[attribute]


def is_shown_as(value: Any, text: str, is_part: bool) -> bool:
    """Whether `text` is a rendering of `value`."""
    if isinstance(value, bool):
        return text == ("yes" if value else "no")
    if isinstance(value, int):
        return text == f"{value:,}"
    if isinstance(value, float):
        digits = text.replace(",", "")
        return float(digits) == pytest.approx(value, rel=5.1e-3, abs=0)
    assert isinstance(value, str)
    shown = re.sub(r"`([^`\n]+)`", r"\1", visible(value, multiline=True))
    wanted = {shown, visible(value), visible(value, multiline=True)}
    return any(text.removesuffix("…").rstrip() in w for w in wanted) if is_part else text in wanted


@pytest.mark.parametrize("name", NAMES)
def test_every_text_says_what_the_bundle_says_at_its_place(examples: dict[str, Path], name: str) -> None:
    values, count = Values(examples[name]), 0
    for element, ref in annotated(page_of(examples[name]), "data-ref"):
        assert is_shown_as(values.at(ref), element.text, "data-part" in element.attributes), (
            ref,
            element.text,
        )
        count += 1
    assert count > 10


@pytest.mark.parametrize("name", NAMES)
def test_every_count_names_as_many_things_as_it_says(examples: dict[str, Path], name: str) -> None:
    values, page = Values(examples[name]), page_of(examples[name])
    for element, refs in annotated(page, "data-count-of"):
        named = refs.split()
        assert element.text == f"{len(set(named)):,}"
        assert len(named) == len(set(named))
        for ref in named:
            values.at(ref)
    for element, ref in annotated(page, "data-length-of"):
        assert element.text == f"{len(values.at(ref)):,}"
    for element, anchor in annotated(page, "data-items-of"):
        holder = next(e for e in page.walk() if e.attributes.get("id") == anchor)
        rows = [
            e
            for e in holder.walk()
            if e.tag == "li" or (e.tag == "tr" and e.parent and e.parent.tag == "tbody")
        ]
        assert element.text == f"{len(rows):,}"


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


@pytest.mark.parametrize("name", NAMES)
def test_every_figure_says_the_numbers_of_its_measurement(examples: dict[str, Path], name: str) -> None:
    values = Values(examples[name])
    for element, ref in annotated(page_of(examples[name]), "data-numbers-of"):
        m = values.at(ref)
        keys = ("estimate", "ci_low", "ci_high", "margin")
        wanted = {text for text in format_together([m[k] for k in keys]) if text}
        said = element.text.strip().removeprefix(visible(m["name"]))
        assert set(re.findall(r"-?[\d.,]*\d(?:e-?\d+)?", said)) == wanted


@pytest.mark.parametrize("name", NAMES)
def test_every_excerpt_command_and_name_is_that_of_its_file(examples: dict[str, Path], name: str) -> None:
    folder, values, page = examples[name], Values(examples[name]), page_of(examples[name])
    for element, path in annotated(page, "data-excerpt-of"):
        whole = visible((folder / path).read_text("utf-8"), multiline=True)
        assert whole.startswith(element.text)
        assert element.text or not whole
    for element, ref in annotated(page, "data-command"):
        assert element.text == visible(shlex.join(values.at(ref)))
    for element, path in annotated(page, "data-id-of"):
        assert path.endswith(f"-{element.text}.json")
    for element, path in annotated(page, "data-path"):
        assert element.text == path
        assert (folder / path).is_file()


@pytest.mark.parametrize("name", NAMES)
def test_no_digit_is_shown_outside_of_what_names_its_place(examples: dict[str, Path], name: str) -> None:
    for element in body_of(page_of(examples[name])).walk():
        own = "".join(c for c in element.children if isinstance(c, str))
        if re.search(r"\d", own):
            above = [a for e in element.ancestors() for a in ANNOTATIONS if a in e.attributes]
            assert above, own


def test_the_reason_is_the_judgements_own_sentence(examples: dict[str, Path]) -> None:
    for name in NAMES:
        (reason,) = [e for e in page_of(examples[name]).walk() if e.attributes.get("class") == "reason"]
        assert reason.text == visible(Values(examples[name]).at("judgement.json#/reason"))
