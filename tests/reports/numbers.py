"""Walks every text of a page that comes from its bundle and holds it against the value at the place that it names."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from reports.shown import format_number, format_together, visible
from tests.reports.pages import Element, Values
from tests.reports.tallies import compute

ROOT = Path(__file__).resolve().parents[2]
NUMBER = re.compile(r"-?[\d.,]*\d(?:e-?\d+)?")


def is_shown_as(value: Any, text: str, is_part: bool) -> bool:
    """Whether `text` is a rendering of `value`."""
    if isinstance(value, bool):
        return text == ("yes" if value else "no")
    if isinstance(value, int):
        return text == f"{value:,}"
    if isinstance(value, float):
        return bool(NUMBER.fullmatch(text)) and _is_near(float(text.replace(",", "")), value)
    if not isinstance(value, str):
        return False
    shown = re.sub(r"`([^`\n]+)`", r"\1", visible(value, multiline=True))
    wanted = {shown, visible(value), visible(value, multiline=True)}
    return any(text.removesuffix("…").rstrip() in w for w in wanted) if is_part else text in wanted


def _is_near(shown: float, value: float) -> bool:
    """Within half of the third significant digit."""
    return math.isclose(shown, value, rel_tol=5.1e-3, abs_tol=0)


class PageWalk:
    """One page beside its bundle."""

    def __init__(self, page: Element, folder: Path) -> None:
        self._page, self._folder, self._values = page, folder, Values(folder)
        self._manifest = self._values.at("fasttrack.toml#")
        self._wording = wording()

    def problems(self) -> Iterator[str]:
        """What the page says and the bundle does not, at the place named; digits without a place."""
        checks: dict[str, Callable[[Element, str], bool]] = {
            "data-ref": self._is_value,
            "data-key-of": self._is_key,
            "data-count-of": self._is_count,
            "data-length-of": lambda e, ref: e.text == f"{len(self._values.at(ref)):,}",
            "data-tally": self._is_tally,
            "data-numbers-of": self._is_figure,
            "data-excerpt-of": self._is_excerpt,
            "data-command": lambda e, ref: e.text == visible(shlex.join(self._values.at(ref))),
            "data-id-of": lambda e, path: path.endswith(f"-{e.text}.json"),
            "data-path": lambda e, path: e.text == path and (self._folder / path).is_file(),
            "data-items-of": self._is_number_of_items,
            "data-fixed": self._is_wording,
        }
        for element in self._page.walk():
            for attribute, check in checks.items():
                if attribute in element.attributes and not check(element, element.attributes[attribute]):
                    yield f"{attribute}={element.attributes[attribute][:80]}: {element.text[:80]!r}"
        for element in next(e for e in self._page.walk() if e.tag == "body").walk():
            own = "".join(c for c in element.children if isinstance(c, str))
            if re.search(r"\d", own) and not self._has_place(element, checks):
                yield f"digits without a place: {own[:80]!r}"

    @staticmethod
    def _has_place(element: Element, attributes: Iterable[str]) -> bool:
        """Wording counts for its own element only; the other annotations are held against all that is below them."""
        above = (
            a for e in element.ancestors() for a in attributes if a in e.attributes and a != "data-fixed"
        )
        return "data-fixed" in element.attributes or any(above)

    def _is_value(self, element: Element, ref: str) -> bool:
        if ref.startswith("/"):
            around = next(e for e in element.ancestors() if "data-at" in e.attributes)
            ref = around.attributes["data-at"] + ref
        return is_shown_as(self._values.at(ref), element.text, "data-part" in element.attributes)

    def _is_key(self, element: Element, ref: str) -> bool:
        self._values.at(ref)
        key = unquote(ref.rpartition("/")[2]).replace("~1", "/").replace("~0", "~")
        return element.text == visible(key)

    def _is_count(self, element: Element, refs: str) -> bool:
        named = refs.split()
        for ref in named:
            self._values.at(ref)
        return element.text == f"{len(set(named)):,}" and len(named) == len(set(named))

    def _is_tally(self, element: Element, rule: str) -> bool:
        values = [self._values.at(ref) for ref in element.attributes["data-from"].split()]
        wanted = compute(rule, values, self._manifest)
        return element.text == format_number(wanted)

    def _is_figure(self, element: Element, ref: str) -> bool:
        m = self._values.at(ref)
        texts = format_together([m[key] for key in ("estimate", "ci_low", "ci_high", "margin")])
        said = element.text.strip().removeprefix(visible(m["name"]))
        return set(NUMBER.findall(said)) == {text for text in texts if text}

    def _is_excerpt(self, element: Element, path: str) -> bool:
        whole = visible((self._folder / path).read_text("utf-8"), multiline=True)
        return whole.startswith(element.text) and bool(element.text or not whole)

    def _is_number_of_items(self, element: Element, anchor: str) -> bool:
        holder = next(e for e in self._page.walk() if e.attributes.get("id") == anchor)
        items = [
            e
            for e in holder.walk()
            if e.tag == "li" or (e.tag == "tr" and e.parent and e.parent.tag == "tbody")
        ]
        return element.text == f"{len(items):,}"

    def _is_wording(self, element: Element, _: str) -> bool:
        """Only words that stand in the report's own source may hold digits without a place."""
        own = [c for c in element.children if isinstance(c, str)] or [""]
        return all(not re.search(r"\d", text) or " ".join(text.split()) in self._wording for text in own)


@cache
def wording() -> str:
    """All text of the report's source, the exit codes, and the examples' and checks' own lines."""
    files = [*(ROOT / "reports").rglob("*.py"), *(ROOT / "reports/templates").iterdir()]
    files += [*(ROOT / "harness/checks").rglob("*.py"), ROOT / "harness/model/words.py"]
    files += [ROOT / "tests" / name for name in ("bundles/examples.py", "reports/pages.py")]
    text = " ".join(file.read_text("utf-8") for file in files)
    return " ".join(re.sub(r'"\s*\n\s*"', "", text).split())
