"""Laws of the drill-downs: what is not there is said with its reason, and never looks like a pass."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from bundles.contents import Bundle, EvidenceFile
from harness.model.evidence import (
    AnyEvidence,
    ArmEvidence,
    CapturedPointersEvidence,
    ChangedFilesEvidence,
    CoverageEvidence,
    HandoverEvidence,
    ImportsEvidence,
    KernelAuditEvidence,
    LedgerEvidence,
    ProbeEvidence,
    TimingEvidence,
)
from harness.model.judgement import Judgement
from harness.model.step_kernels import StepKernels
from harness.model.words import Arm, Outcome
from reports.drills import view_drills
from reports.drills.figures import MAX_POINTS, distribution, scatter
from reports.drills.pivot import heat_of, split_name
from reports.drills.tables import MAX_ROWS, Drill, Figure, Missing, Table
from reports.drills.timing import quantile
from reports.findings import view_measurement
from reports.html import render_html
from reports.shown import plain
from reports.view import build_view
from tests.reports.pages import NAMES, read_example
from tests.reports.test_interval import measurement

NUMBERS = st.floats(-1e9, 1e9)


def drills_of(bundle: Bundle) -> dict[str, Drill]:
    view = build_view(bundle, {})
    return {drill.anchor: drill for drill in view_drills(bundle, view.checks)}


def captions(drill: Drill) -> str:
    return "\n".join(part.caption for part in drill.parts if isinstance(part, Table) and part.rows)


def with_records(bundle: Bundle, *records: AnyEvidence) -> Bundle:
    """The bundle with other records in the places of its first ones."""
    files = tuple(
        EvidenceFile(path=file.path, record=record, head="{}")
        for file, record in zip(bundle.evidence, records, strict=False)
    )
    return replace(bundle, evidence=files)


@pytest.mark.parametrize("name", NAMES)
def test_every_drill_down_shows_something_or_says_why_not(examples: dict[str, Path], name: str) -> None:
    for drill in drills_of(read_example(examples[name])).values():
        filled = [p for p in drill.parts if isinstance(p, Figure) or (isinstance(p, Table) and p.rows)]
        reasons = [p for p in drill.parts if isinstance(p, Missing)]
        assert filled or reasons
        assert all(p.outcome is not Outcome.PASS and plain(p.reason).strip() for p in reasons)


def test_without_evidence_every_drill_down_is_missing(examples: dict[str, Path]) -> None:
    for drill in drills_of(read_example(examples["silent"])).values():
        assert all(isinstance(part, Missing) for part in drill.parts)


@pytest.mark.parametrize(
    ("anchor", "words"),
    [
        ("numerics", "by the batch that made them"),
        ("served", "Decode steps of the candidate arm"),
        ("state", "a twin that never took the path"),
        ("state", "Captured graphs"),
        ("timing", "Ratios and levels as judged"),
        ("kernels", "with the instructions that show it"),
        ("code", "no coverage record holds"),
        ("arms", "evidence was taken over"),
    ],
)
def test_a_record_of_each_kind_becomes_rows(examples: dict[str, Path], anchor: str, words: str) -> None:
    assert words in captions(drills_of(read_example(examples["drills"]))[anchor])


def test_the_path_that_shows_a_fault_is_given_in_order(examples: dict[str, Path]) -> None:
    tables = [p for p in drills_of(read_example(examples["drills"]))["kernels"].parts if isinstance(p, Table)]
    row, *_ = next(t for t in tables if "instructions" in t.caption).rows
    assert row[0].outcome is Outcome.FAIL
    assert plain(row[-1].pieces) == "ld.global.b32 %r1, [%rd4];\ngriddepcontrol.wait;"


def test_kernels_with_a_fault_come_first(examples: dict[str, Path]) -> None:
    tables = [p for p in drills_of(read_example(examples["drills"]))["kernels"].parts if isinstance(p, Table)]
    rules = next(t for t in tables if "each rule says" in t.caption)
    assert plain(rules.rows[0][0].pieces) == "decode_14"


def test_a_kernel_source_that_no_entry_point_imports_is_said_to_be_unknown(examples: dict[str, Path]) -> None:
    tables = [p for p in drills_of(read_example(examples["drills"]))["kernels"].parts if isinstance(p, Table)]
    sources = {plain(row[0].pieces): plain(row[-1].pieces) for row in tables[0].rows}
    assert sources["subject/kernel.py"] == "yes"
    assert sources["subject/other.cu"].startswith("no")


def test_records_without_rows_are_shown_to_be_empty(examples: dict[str, Path]) -> None:
    empty = {
        LedgerEvidence: {"rows": ()},
        ProbeEvidence: {"steps": (), "refusals": ()},
        HandoverEvidence: {"steps": ()},
        TimingEvidence: {"blocks": ()},
        CoverageEvidence: {"files": ()},
        ChangedFilesEvidence: {"files": ()},
        ImportsEvidence: {"outward": ()},
        KernelAuditEvidence: {"kernels": ()},
        CapturedPointersEvidence: {"graphs": ()},
    }
    bundle = read_example(examples["drills"])
    files = tuple(
        replace(file, record=file.record.model_copy(update=empty.get(type(file.record), {})))
        for file in bundle.evidence
    )
    findings = tuple(f.model_copy(update={"evidence": ()}) for f in bundle.judgement.findings)
    judgement = bundle.judgement.model_copy(update={"findings": findings})
    html = render_html(build_view(replace(bundle, evidence=files, judgement=judgement), {}))
    assert html.count('<p class="none">None.</p>') >= 8


def marked(value: Any) -> Any:
    """A record or a part of one with a mark that would turn the text behind it around, in every text."""
    if isinstance(value, BaseModel):
        fields = {name: marked(getattr(value, name)) for name in type(value).model_fields if name != "kind"}
        return value.model_copy(update=fields)
    if isinstance(value, tuple):
        return tuple(marked(element) for element in value)
    if isinstance(value, dict):
        return {key: marked(element) for key, element in value.items()}
    return value + "\u202e" if type(value) is str else value


def test_no_text_of_any_record_turns_the_page_around(examples: dict[str, Path]) -> None:
    bundle = read_example(examples["drills"])
    files = tuple(replace(file, record=marked(file.record)) for file in bundle.evidence)
    findings = tuple(f.model_copy(update={"evidence": ()}) for f in bundle.judgement.findings)
    judgement = bundle.judgement.model_copy(update={"findings": findings})
    html = render_html(build_view(replace(bundle, evidence=files, judgement=judgement), {}))
    assert "\\u202e" in html and "\u202e" not in html


def test_one_arm_alone_is_no_comparison(examples: dict[str, Path]) -> None:
    bundle = read_example(examples["drills"])
    ledger = next(r for r in bundle.records if isinstance(r, LedgerEvidence) and r.arm is Arm.BASELINE)
    drills = drills_of(replace(with_records(bundle, ledger), judgement=silent(bundle)))
    assert "baseline arm" in captions(drills["served"])
    assert "candidate" not in captions(drills["served"])
    assert not captions(drills["timing"])


def silent(bundle: Bundle) -> Judgement:
    """The judgement without findings."""
    checks = tuple(c.model_copy(update={"num_findings": 0}) for c in bundle.judgement.checks)
    return bundle.judgement.model_copy(update={"findings": (), "checks": checks})


def test_a_long_table_says_of_how_many_its_rows_are_the_first(examples: dict[str, Path]) -> None:
    bundle = read_example(examples["drills"])
    imports = next(r for r in bundle.records if isinstance(r, ImportsEvidence))
    many = imports.model_copy(update={"outward": imports.outward * 100})
    drill = drills_of(replace(with_records(bundle, many), judgement=silent(bundle)))["code"]
    table = next(p for p in drill.parts if isinstance(p, Table) and p.rows)
    assert len(table.rows) == MAX_ROWS
    assert table.is_cut and table.whole is not None and table.whole.text == "1,400"


def test_a_table_without_one_number_for_its_whole_still_says_that_it_is_cut(
    examples: dict[str, Path],
) -> None:
    bundle = read_example(examples["drills"])
    arm = next(r for r in bundle.records if isinstance(r, ArmEvidence))
    many = with_records(replace(bundle, evidence=bundle.evidence * 9), *(arm,) * (MAX_ROWS + 1))
    html = render_html(build_view(replace(many, judgement=silent(bundle)), {}))
    assert html.count("Further rows are left out here; the records hold all.") == 1


@given(st.floats(0, 1e6), st.floats(0, 1e6), st.floats(1e-9, 1e6))
def test_a_number_that_uses_up_more_of_its_limit_is_never_shaded_less(
    a: float, b: float, margin: float
) -> None:
    low, high = (heat_of(view_measurement(measurement(v, margin=margin), "x")) for v in sorted((a, b)))
    assert low is not None and high is not None and low <= high


def test_what_lies_beyond_its_limit_is_shaded_most_and_what_has_none_not_at_all() -> None:
    heats = [
        heat_of(view_measurement(measurement(v, margin=m), "x"))
        for v, m in ((2.0, 1.0), (1.0, 0.0), (0.0, 0.0))
    ]
    assert heats == [4, 4, 0]
    assert heat_of(view_measurement(measurement(2.0), "x")) is None


@pytest.mark.parametrize(
    ("name", "split"),
    [
        ("mean KL, batch 1", ("mean KL", "batch 1")),
        ("top_k, expected breaches", ("expected breaches", "top_k")),
        ("mean KL", ("mean KL", "")),
        ("mean KLs, batch 1", None),
    ],
)
def test_a_measurements_name_is_split_into_quantity_and_subject(
    name: str, split: tuple[str, str] | None
) -> None:
    assert split_name(name, ("mean KL", "expected breaches")) == split


@given(st.lists(st.tuples(NUMBERS, NUMBERS), min_size=1, max_size=20), st.booleans())
def test_marks_keep_the_order_of_their_numbers_and_stay_on_the_axes(
    points: list[tuple[float, float]], lines: bool
) -> None:
    (series,) = scatter({Arm.CANDIDATE: points}, from_zero=False, lines=lines)
    for (x, y), (x_place, y_place) in zip(points, series.points, strict=True):
        assert 0 <= x_place <= 100 and 0 <= y_place <= 100
        for (other_x, other_y), (other_x_place, other_y_place) in zip(points, series.points, strict=True):
            assert x > other_x or x_place <= other_x_place
            assert y > other_y or y_place >= other_y_place


def test_an_axis_that_no_number_can_span_is_still_drawn() -> None:
    (series,) = scatter({Arm.BASELINE: [(0.0, 1.7e308), (1.0, -1.7e308)]}, from_zero=False, lines=True)
    assert all(0 <= place <= 100 for point in series.points for place in point)


def test_a_distribution_of_many_values_is_thinned_and_keeps_its_ends() -> None:
    (series,) = distribution({Arm.BASELINE: [float(i) for i in range(100_000)]})
    assert series.path.count("L") <= 2 * MAX_POINTS
    assert series.path.startswith("M0 100L") and series.path.endswith("100 0")


@given(st.lists(NUMBERS, min_size=1), st.integers(0, 100))
def test_a_quantile_is_a_value_that_was_seen(values: list[float], percent: int) -> None:
    assert quantile(values, percent) in values


def test_each_timed_cell_stands_beside_the_machine_that_timed_it(examples: dict[str, Path]) -> None:
    bundle = read_example(examples["drills"])
    parts = drills_of(bundle)["timing"].parts
    (table,) = [p for p in parts if isinstance(p, Table) and "Where each cell" in p.caption]
    machines = [plain(cell.pieces) for row in table.rows for cell in row[3:4]]
    assert machines == [r.hardware or "not named" for r in bundle.records if isinstance(r, TimingEvidence)]


def test_the_clocks_of_a_timed_gpu_are_shown_and_what_it_does_not_tell_is_said(
    examples: dict[str, Path],
) -> None:
    parts = drills_of(read_example(examples["drills"]))["timing"].parts
    (table,) = [p for p in parts if isinstance(p, Table) and "The GPU at both ends" in p.caption]
    rows = [[plain(cell.pieces) for cell in row] for row in table.rows]
    assert {row[0].split("/")[2] for row in rows} == {"baseline-candidate"}
    assert all(row[4:6] == ["not told", "not told"] for row in rows)
    assert {row[-1] for row in rows} == {"nothing told", "sw_power_cap"}


def test_what_the_gpu_was_busy_for_is_a_table_of_its_own_and_no_times_of_profiled_blocks_are_drawn(
    examples: dict[str, Path],
) -> None:
    bundle = read_example(examples["drills"])
    seen = StepKernels(num_steps=12, busy_us=700, num_kernels=90)
    files = []
    for file in bundle.evidence:
        record = file.record
        if isinstance(record, TimingEvidence) and record.batch == 8:
            blocks = tuple(block.model_copy(update={"profile": seen}) for block in record.blocks)
            record = record.model_copy(update={"cell": f"profile/{record.compares[1]}", "blocks": blocks})
        files.append(replace(file, record=record))
    parts = drills_of(replace(bundle, evidence=tuple(files), judgement=silent(bundle)))["timing"].parts
    (table,) = [p for p in parts if isinstance(p, Table) and "What the GPU did" in p.caption]
    rows = [[plain(cell.pieces) for cell in row] for row in table.rows]
    assert [row[1:] for row in rows] == [
        [arm, "700", "90.0", "12"] for arm in ("baseline", "baseline again", "baseline", "candidate")
    ]
    drawn = [plain(p.caption) for p in parts if isinstance(p, Figure)]
    told = [
        plain(row[0].pieces)
        for p in parts
        if isinstance(p, Table) and "client saw" in p.caption
        for row in p.rows
    ]
    assert drawn and told and not any("profile" in text for text in (*drawn, *told))


def test_without_a_record_of_clocks_that_is_said(examples: dict[str, Path]) -> None:
    bundle = read_example(examples["drills"])
    calm = {"gpu_before": None, "gpu_after": None}
    files = []
    for file in bundle.evidence:
        record = file.record
        if isinstance(record, TimingEvidence):
            blocks = tuple(block.model_copy(update=calm) for block in record.blocks)
            record = record.model_copy(update={"blocks": blocks})
        files.append(replace(file, record=record))
    parts = drills_of(replace(bundle, evidence=tuple(files), judgement=silent(bundle)))["timing"].parts
    assert "Clocks and temperature during timing" in {p.what for p in parts if isinstance(p, Missing)}
