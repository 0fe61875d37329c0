"""A performance sweep as one HTML file: every number is that of the sweep's `result.json`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import jinja2

from reports.html import plain_environment
from reports.marks import MARKS
from reports.shown import format_number, format_together, visible

Json = Mapping[str, Any]
_FIRST, _LAST = 6, 94
_WIDTH, _HEIGHT = 480, 220


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A dot of the frontier's figure, in its coordinates, with what a reader who does not see it is told."""

    x: float
    y: float
    arm: str
    is_on_frontier: bool
    text: str


def render_sweep_page(document: Json) -> str:
    """The page of a document as `fasttrack sweep` writes it to `result.json`; the same document, the same bytes."""
    return (
        _environment()
        .get_template("sweep.html.j2")
        .render(
            d=document,
            result=document["result"],
            cells=document["result"]["cells"],
            limits=_limits(document),
            speedups=[_speedup(cell, document["margin"]) for cell in document["result"]["cells"]],
            points=_points(document["frontier"]),
            columns=tuple(dict.fromkeys(name for row in document["speedups"] for name in row)),
            is_rehearsal=any(cell["hardware"] == "simulated" for cell in document["result"]["cells"]),
            width=_WIDTH,
            height=_HEIGHT,
        )
    )


@cache
def _environment() -> jinja2.Environment:
    environment = plain_environment()
    environment.filters["number"] = lambda value: "–" if value is None else format_number(value)
    environment.filters["visible"] = visible
    environment.globals.update(MARKS=MARKS)
    return environment


def _speedup(cell: Json, margin: float) -> dict[str, Any] | None:
    """The baseline's time over the candidate's with its interval, and places on an axis from 0 to 100."""
    ratio = cell["ratio"]
    if ratio is None:
        return None
    estimate, low, high = (1 / ratio[name] for name in ("estimate", "ci_high", "ci_low"))
    bar = 1 / (1 + margin)
    first, last = min(low, bar), max(high, bar)

    def place(value: float) -> float:
        share = (value - first) / (last - first) if last > first else 0.5
        return round(_FIRST + share * (_LAST - _FIRST), 1)

    places = {name: place(v) for name, v in (("e", estimate), ("l", low), ("h", high), ("m", bar))}
    texts = zip(("estimate", "low", "high"), format_together((estimate, low, high)), strict=True)
    return {**dict(texts), "bar": bar, "n": ratio["n"], "at": places}


def _points(rows: Sequence[Json]) -> tuple[Point, ...]:
    """Tokens a second and user to the right, tokens a second and rank upwards, both from 0."""
    if not rows:
        return ()
    right, top = (max(row[name] for row in rows) for name in ("tok_s_per_user", "tok_s_per_rank"))
    return tuple(
        Point(
            x=round(row["tok_s_per_user"] / right * _WIDTH, 1),
            y=round((1 - row["tok_s_per_rank"] / top) * _HEIGHT, 1),
            arm=row["arm"],
            is_on_frontier=row["is_on_frontier"],
            text=f"{row['arm']}, {row['engine']}, batch {row['batch']}: {format_number(row['tok_s'])} tok/s, "
            f"{format_number(row['tok_s_per_user'])} tok/s a user",
        )
        for row in rows
    )


def _limits(document: Json) -> list[str]:
    """What the sweep does not show, in sentences."""
    cells, found = document["result"]["cells"], []
    machines = sorted({c["hardware"] for c in cells if c["hardware"]})
    if "simulated" in machines:
        found.append("Anything about the change: the arms were simulated.")
    elif machines:
        found.append(f"Any other machine than {', '.join(machines)}.")
    unmeasured = [c for c in cells if c["ratio"] is None]
    if unmeasured:
        found.append(f"{len(unmeasured)} of {len(cells)} cells, for which there is no ratio.")
    if not any(c["gpu"] for c in cells):
        found.append("Clocks, power, temperature and throttling of a GPU: no visit sampled one.")
    if any(c["cell"]["prompts"] == "random" for c in cells):
        found.append("Which experts real text chooses: cells named random were asked with random tokens.")
    if any(c["cell"]["published"] for c in cells):
        found.append(
            "Published figures: they stand beside a cell as its makers state them, not measured here."
        )
    if not any(c["kernels"] for c in cells):
        found.append("Where the time goes inside a step: no decode step was profiled.")
    if not any(c["experts"] for c in cells):
        found.append("Which experts the prompts choose: they were not counted.")
    return found
