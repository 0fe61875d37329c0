"""Whatever the text: no crash, and no pass for what was not read in full."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness.audit.audit import audit_kernels
from harness.audit.decide import AuditResult, Decision
from harness.audit.ptx import read_ptx
from harness.audit.roles import parse_options
from harness.audit.sass import read_sass
from tests.harness.audit.fixture_cases import (
    CASES,
    CLEAN,
    FOLDER,
    Case,
    audit_text,
    decisions,
    findings_on,
    rules_with,
)

QUICK = settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
cases = st.sampled_from(CASES)
WORDS = (
    "griddepcontrol.wait;", "ret;", "{", "}", ";", "@%p1", "bra $L;", "ld.global.f32 %f1, [%rd4];", "frob.b32 %r1;",
    "call (", ".reg .b32 %r<4>;", "\x00", "é", '"', "/*", "0x", "[", "]", "brx.idx %r1, x;", ".func f() { ret; }",
)  # fmt: skip


def statements(text: str) -> list[int]:
    """Lines of a fixture's entry that hold one whole plain instruction."""
    lines = text.split("\n")
    start = next(i for i, line in enumerate(lines) if ".visible .entry" in line)
    body = re.compile(r"^    (?!\.|\$|\{|\}|//)[^{}]*;$")
    return [i for i, line in enumerate(lines) if i > start and body.match(line) and "%rd<" not in line]


@QUICK
@given(case=cases, data=st.data())
def test_no_mutation_makes_the_audit_raise(case: Case, data: st.DataObject) -> None:
    text = case.text
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(text)))
        end = min(len(text), start + data.draw(st.integers(0, 12)))
        text = text[:start] + data.draw(st.sampled_from(WORDS)) + text[end:]
    assert findings_on(text, case.options) is not None


@QUICK
@given(text=st.text(max_size=300))
def test_no_text_makes_the_reader_raise(text: str) -> None:
    assert (
        audit_text(".version 8.0\n.target sm_90a\n.visible .entry k(.param .u64 x)\n{\n" + text) is not None
    )


@QUICK
@given(case=cases, data=st.data())
def test_a_truncated_text_never_passes(case: Case, data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, case.text.rstrip().rindex("}")))
    found = read_ptx(case.text[:cut], "made.ptx")
    results = audit_text(case.text[:cut], case.options)
    assert Decision.PROVEN not in {r.decision for r in results} and (results or not found.kernels)


@QUICK
@given(case=cases, data=st.data())
def test_an_unknown_opcode_never_passes(case: Case, data: st.DataObject) -> None:
    lines = case.text.split("\n")
    place = data.draw(st.sampled_from(statements(case.text)))
    lines.insert(place, "    frobnicate.sync.b32 %r1, %r2;")
    results = audit_text("\n".join(lines), case.options)
    assert not rules_with(results, Decision.PROVEN)


@pytest.mark.parametrize("change", [("8.7", "10.0"), ("8.7", "99.1"), ("8.7", "x.y"), (".version 8.7\n", "")])
@pytest.mark.parametrize("case", CLEAN[:6], ids=lambda c: c.name)
def test_a_version_that_is_not_known_is_undecided_with_the_line(case: Case, change: tuple[str, str]) -> None:
    results = audit_text(case.text.replace(*change, 1), case.options)
    assert {r.decision for r in results} == {Decision.UNDECIDED} and all("line " in r.reason for r in results)


def test_a_misspelt_wait_is_no_wait_and_no_pass() -> None:
    case = next(c for c in CLEAN if c.name == "hoisted_load_clean")
    results = audit_text(case.text.replace("griddepcontrol.wait", "griddepcontrol.wiat"), case.options)
    assert not {r.decision for r in results} & {Decision.PROVEN, Decision.NOT_APPLICABLE}


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_without_its_waits_no_kernel_has_its_reads_proven(case: Case) -> None:
    text = re.sub(r"^.*griddepcontrol\.wait;\n", "", case.text, flags=re.MULTILINE)
    results = audit_text(text, parse_options({"launch": "pdl"}))
    proven = [r for r in results if r.rule == "PDL003" and r.decision is Decision.PROVEN]
    reads = [r for r in results if r.rule == "PDL001" and r.decision is Decision.PROVEN]
    has_reads = (
        re.search(r"\b(ld\.(global|f32)|cp\.async\.(ca|cg|bulk\.(?!global|commit|wait))|tex\.)", text)
        is not None
    )
    assert not proven and not (reads and has_reads)


@QUICK
@given(case=cases, data=st.data())
def test_an_unrelated_instruction_changes_no_decision(case: Case, data: st.DataObject) -> None:
    lines = case.text.split("\n")
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.sampled_from(statements("\n".join(lines))))
        extra = data.draw(
            st.sampled_from(["mov.b32 %unrelated, 7;", "add.s32 %unrelated, %unrelated, 1;", "membar.gl;"])
        )
        lines.insert(place, f"    {extra}")
    start = next(i for i, line in enumerate(lines) if line == "{" and ".entry" in "".join(lines[:i]))
    lines.insert(start + 1, "    .reg .b32 %unrelated;")
    assert decisions(audit_text("\n".join(lines), case.options)) == decisions(
        audit_text(case.text, case.options)
    )


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_other_names_for_registers_and_labels_change_no_decision(case: Case) -> None:
    text = re.sub(r"%(rd|rs|r|p|f)(?=[<\d])", r"%q\1_", case.text)
    text = re.sub(r"\$([A-Z]\w*)", r"$L__other_\1", text)
    assert decisions(audit_text(text, case.options)) == decisions(audit_text(case.text, case.options))


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_comments_and_blank_lines_change_no_decision(case: Case) -> None:
    text = case.text.replace(";\n", "; // griddepcontrol.wait;\n\n/* ret; */\t\r\n")
    assert decisions(audit_text(text, case.options)) == decisions(audit_text(case.text, case.options))


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_walking_straight_over_branches_that_decide_nothing_changes_no_decision(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick = decisions(audit_text(case.text, case.options))
    monkeypatch.setattr("harness.audit.walk.Walker._find_joins", lambda _: {})
    assert decisions(audit_text(case.text, case.options)) == quick


LISTINGS = sorted((FOLDER.parent / "sass").glob("*/*.sass"))
PIECES = (
    "@P0 ",
    "@!P3 ",
    "BRA `(.L_x_1) ;",
    "BRA 0x7f_0 ;",
    "EXIT ;",
    "[R2.64]",
    "ACQBULK ;",
    "SHF.R ;",
    "RZ",
    "~",
    "",
)


def audit_listing(text: str) -> list[AuditResult]:
    return audit_kernels(read_sass(text).kernels, parse_options({"launch": "pdl", "roles": {"0": "mailbox"}}))


@QUICK
@given(path=st.sampled_from(LISTINGS), data=st.data())
def test_no_damage_to_machine_code_makes_the_audit_raise(path: Path, data: st.DataObject) -> None:
    lines = path.read_text().split("\n")
    start = next(i for i, line in enumerate(lines) if ".text." in line)
    for _ in range(data.draw(st.integers(1, 5))):
        place = data.draw(st.integers(start, len(lines) - 1))
        column = data.draw(st.integers(0, len(lines[place])))
        piece = data.draw(st.sampled_from(PIECES))
        lines[place] = lines[place][:column] + piece + lines[place][column + data.draw(st.integers(0, 9)) :]
    assert audit_listing("\n".join(lines)) is not None


@QUICK
@given(path=st.sampled_from(LISTINGS), data=st.data())
def test_truncated_machine_code_never_passes(path: Path, data: st.DataObject) -> None:
    text = path.read_text()
    cut = data.draw(st.integers(text.index(".text."), text.rindex("/*") - 1))
    assert Decision.PROVEN not in {r.decision for r in audit_listing(text[:cut])}
