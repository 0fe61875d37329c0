"""Laws of a sweep's page: the result's numbers, hostile text as text, and what it does not show."""

from __future__ import annotations

from typing import Any

from reports.sweep_page import render_sweep_page


def cell(**changed: Any) -> dict[str, Any]:
    return {
        "cell": {"is_required": True, "prompts": "text", "published": None},
        "outcome": "pass",
        "message": "Ratio 0.9",
        "blocks_needed": None,
        "ratio": {"estimate": 0.8, "ci_low": 0.75, "ci_high": 0.85, "n": 5},
        "noise": {"estimate": 1.001},
        "baseline_ms": 10.0,
        "candidate_ms": 8.0,
        "candidate_tok_s": 125.0,
        "ttft_ms": {"p50": 40.0},
        "interactivity_tok_s": {},
        "acceptance_length": None,
        "gpu": {},
        "experts": {},
        "kernels": {},
        "hardware": "a CPU",
        "notes": [],
    } | changed


def page(*cells: dict[str, Any], **changed: Any) -> str:
    frontier = {"arm": "candidate", "engine": "tp1", "batch": 1, "tok_s": 125.0}
    document = {
        "is_overhead": False,
        "plan": {"subject": "c0ffee", "num_blocks": 5, "seed": 0, "load": "client"},
        "code_digest": "d" * 64,
        "recorded_from": "",
        "recorded_to": "",
        "margin": 0.02,
        "names": [f"decode/{i}" for i in range(len(cells))],
        "result": {"sweep": "e" * 64, "verdict": "undecided", "cells": list(cells), "alarms": []},
        "claims": [],
        "frontier": [frontier | {"tok_s_per_user": 125.0, "tok_s_per_rank": 125.0, "is_on_frontier": True}],
        "growth": [],
        "speedups": [],
    }
    return render_sweep_page(document | changed)


def test_a_cells_speed_up_is_the_inverse_of_its_ratio_with_its_bounds_in_order() -> None:
    assert "1.25 [1.18, 1.33]" in page(cell())


def test_a_cell_without_a_ratio_has_no_number_and_is_among_what_is_not_shown() -> None:
    text = page(cell(), cell(ratio=None, noise=None, outcome="not_run", baseline_ms=None, candidate_ms=None))
    assert "1 of 2 cells, for which there is no ratio" in text
    assert "1 of 2 required cells are shown to be no slower" in " ".join(text.split())


def test_what_a_server_said_is_shown_as_text() -> None:
    text = page(cell(message="<script>alert(1)</script>\u202e"))
    assert "<script>" not in text and "&lt;script&gt;" in text and "\u202e" not in text


def test_a_rehearsal_says_that_it_is_one_before_any_number() -> None:
    assert "A rehearsal with simulated arms" in page(cell(hardware="simulated"))


def test_a_page_asks_nothing_of_a_network_and_runs_nothing() -> None:
    text = page(cell())
    assert "default-src 'none'" in text
    assert "http" not in text.replace("http-equiv", "")
