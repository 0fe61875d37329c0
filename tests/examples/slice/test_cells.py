"""The table of contexts and batches in docs/slice.md is what the records that have their options say, row by row."""

import copy
import json
from pathlib import Path

import pytest

from examples.slice.table import cell_rows

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/slice.md").read_text(encoding="utf-8")
RUNS = {
    path.name: json.loads(path.read_text(encoding="utf-8"))
    for path in (ROOT / "examples/slice").glob("h200-*.json")
}
WHOLE = {name: run for name, run in RUNS.items() if "options" in run}
"""Records of runs of several contexts; those before have other tables."""


def cells_of(page):
    """The page's rows of such a table."""
    return [line.strip() for line in page.splitlines() if line.startswith("| TP")]


def wrong(page, runs):
    """Rows that the page has and no run gives, and those that a run gives and the page has not."""
    return set(cells_of(page)) ^ {row for run in runs for row in cell_rows(run)}


def row(batch, context, stock, specialised, kernels=11.5):
    arms = {"stock": (stock, 22.75), "specialised": (specialised, kernels)}
    return {"batch": batch, "context": context} | {
        arm: {"layer_us": times, "layer_kernels": count} for arm, (times, count) in arms.items()
    }


RUN = {
    "options": {"tp": 16},
    "layers": [
        row(1, 1024, [100.0, 101.0, 99.0], [56.0, 55.0, 54.0]),
        row(8, 131072, [200.0, 202.0, 198.0], [130.0, 130.1, 130.2]),
        row(2, 1024, [100.0], [70.0]),
    ],
}
ROWS = [
    "| TP16 | 1,024 | 1 | 100.0 | 55.0 | 0.550 | 0.545 to 0.560 | 0.55, met | 22.75 | 11.5 |",
    "| TP16 | 131,072 | 8 | 200.0 | 130.1 | 0.650 | 0.644 to 0.658 | 0.65, missed | 22.75 | 11.5 |",
    "| TP16 | 1,024 | 2 | 100.0 | 70.0 | 0.700 | 0.700 to 0.700 |  | 22.75 | 11.5 |",
]


def test_a_bar_is_held_against_the_ratio_itself_and_not_against_what_is_printed():
    assert cell_rows(RUN) == ROWS


def test_the_page_has_every_cell_of_its_runs_and_no_other():
    assert wrong(PAGE, WHOLE.values()) == set()


def test_a_page_with_the_rows_of_its_runs_is_in_order():
    assert wrong("\n".join(["# Slice", *ROWS, "end"]), [RUN]) == set()


@pytest.mark.parametrize("place", range(3))
def test_a_cell_that_took_another_time_or_is_left_out_is_seen(place):
    other = copy.deepcopy(RUN)
    times = other["layers"][place]["specialised"]["layer_us"]
    times[:] = [time * 1.01 for time in times]
    page = "\n".join(ROWS)
    assert ROWS[place] in wrong(page, [other])
    assert wrong(page.replace(ROWS[place], ""), [RUN]) == {ROWS[place]}


def test_a_row_of_a_run_that_is_not_there_is_seen():
    assert wrong("\n".join(ROWS), []) == set(ROWS)


def faults_of(run):
    """Cells neither measured nor named as left out, or measured at another length; layers that were not served."""
    options, found = run["options"], set()
    later = options["batches"] if options["long_batches"] is None else options["long_batches"]
    asked = {(context, batch) for context in options["contexts"][1:] for batch in later}
    asked |= {(context, batch) for context in options["contexts"][:1] for batch in options["batches"]}
    parts = {f"layers, batch {batch} of {context}" for context, batch in asked}
    measured = {f"layers, batch {cell['batch']} of {cell['context']}" for cell in run["layers"]}
    found |= parts - measured - set(run.get("left_out", []))
    for cell in run["layers"]:
        most = cell["context"] + cell["batch"] * cell["context"] // 4096 + 12
        bounds = [bound for arm in ("stock", "specialised") for bound in cell[arm]["first_tokens"]]
        if not cell["context"] < min(bounds) <= max(bounds) <= most:
            found.add(f"batch {cell['batch']} had {bounds} tokens")
    for arm, about in run["about"].items():
        serves = arm.startswith("specialised")
        if serves and (about["stock_mlps"] or not about["decisions"].get("pure-decode")):
            found.add(f"{arm} was not served by the path in every layer")
        if not serves and about["decisions"] is not None:
            found.add(f"{arm} was")
    return found


def whole_run(**more):
    """Of one cell, without a fault."""
    cell = row(8, 32768, [100.0], [70.0])
    for arm in ("stock", "specialised"):
        cell[arm]["first_tokens"] = [32773, 32808]
    ours = {"stock_mlps": {}, "decisions": {"pure-decode": 7}}
    return {
        "options": {"contexts": [32768], "batches": [8], "long_batches": [1]},
        "layers": [cell],
        "about": {"stock 5": {"decisions": None}, "specialised 5": ours},
    } | more


def test_the_runs_of_the_page_have_what_they_were_asked_and_were_served_by_the_path():
    assert {name: faults for name, run in WHOLE.items() if (faults := faults_of(run))} == {}


def test_a_cell_that_is_neither_measured_nor_named_as_left_out_is_a_fault():
    options = {"contexts": [32768, 131072], "batches": [8], "long_batches": [1]}
    part = "layers, batch 1 of 131072"
    assert faults_of(whole_run(options=options)) == {part}
    assert faults_of(whole_run(options=options, left_out=[part])) == set()


@pytest.mark.parametrize("tokens", [[32773, 40000], [1028, 32808], [32768, 32808]])
def test_a_cell_whose_requests_had_another_length_is_a_fault(tokens):
    run = whole_run()
    run["layers"][0]["stock"]["first_tokens"] = tokens
    assert len(faults_of(run)) == 1


@pytest.mark.parametrize(
    "ours",
    [
        {"stock_mlps": {"3": "got 200"}, "decisions": {"pure-decode": 7}},
        {"stock_mlps": {}, "decisions": {"prefill": 3}},
    ],
)
def test_a_run_of_which_vllm_served_a_part_is_a_fault(ours):
    assert faults_of(whole_run(about={"specialised 5": ours})) == {
        "specialised 5 was not served by the path in every layer"
    }
