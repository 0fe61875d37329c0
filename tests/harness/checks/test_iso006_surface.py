"""Laws of ISO006: a setting that drifts is told by name and line; the switch's absence is evaluated, not guessed."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from harness.checks.isolation.iso006_surface import Surface
from harness.facts.python_effects.names import search_names
from harness.facts.python_effects.program import Program, read_program
from harness.facts.python_source.tree import SourceTree
from harness.facts.surface.read import SurfaceFiles, looked_up, read_surface, set_by_tests
from harness.model.change import Change
from harness.model.check import CheckContext
from harness.model.evidence import SurfaceEvidence, evidence_set
from harness.model.finding import Finding
from harness.model.judgement import worst
from harness.model.manifest import SwitchSection
from harness.model.policy import Policy
from harness.model.words import Outcome, Tier
from tests.harness.checks.evidence_builder import MANIFEST
from tests.harness.checks.surface_examples import AGREEING, DRIFTS, SWITCHES, Case

POLICY = Policy(schema_version=1, version="made", required={Tier.STATIC: ("ISO006",)})
CHANGE = Change(base="b" * 40, merge_base="b" * 40, head="c" * 40, head_subject="x")
OUTCOMES = {
    "off": Outcome.PASS,
    "on": Outcome.FAIL,
    "raises": Outcome.FAIL,
    "unknown": Outcome.INCONCLUSIVE,
}


def run(
    case: Case, *, with_engine: bool = True, before: str = "", switch: SwitchSection = MANIFEST.switch
) -> list[Finding]:
    files = SurfaceFiles(
        code=program("own/code.py", case.code),
        before=program("own/code.py", before),
        tests={"tests/test_own.py": case.test.encode()} if case.test else {},
        documents={"docs/own.md": case.document.encode()},
    )
    surface = read_surface(files, switch, commands=("vllm", "own"))
    record = SurfaceEvidence(
        tier=Tier.STATIC,
        recorded_at="2026-11-29T00:00:00Z",
        commit="c" * 40,
        code=surface.code,
        tests=surface.tests,
        documents=surface.documents,
        num_documents=bool(case.document),
        switch=surface.switch,
        fields_read=surface.fields_read,
        fields_are_read_whole=surface.fields_are_read_whole,
        searched=("vllm 0.33.0",) if with_engine else (),
        searches=search_names(looked_up(surface), case.engine) if with_engine else (),
    )
    return findings_of(record, switch=switch)


def program(path: str, source: str) -> Program:
    tree = SourceTree({path: source.encode()} if source else {})
    return read_program(tree, tree.files, owned=tree.files)


def findings_of(*records: SurfaceEvidence, switch: SwitchSection = MANIFEST.switch) -> list[Finding]:
    manifest = MANIFEST.model_copy(update={"switch": switch})
    context = CheckContext(change=CHANGE, manifest=manifest, policy=POLICY, evidence=evidence_set(records))
    return list(Surface().run(context))


def about(findings: Sequence[Finding], word: str) -> list[Finding]:
    return [finding for finding in findings if finding.subject.endswith(word)]


@pytest.mark.parametrize("name", SWITCHES)
def test_what_holds_without_the_switch_is_said_as_the_code_has_it(name: str) -> None:
    absent, code = SWITCHES[name]
    switch = MANIFEST.switch.model_copy(update={"reads": ("own.code:enabled",)})
    found = about(run(Case(code=code), switch=switch), "switch backend")
    assert worst([finding.outcome for finding in found]) is OUTCOMES[absent]


@pytest.mark.parametrize("name", DRIFTS)
def test_a_setting_that_drifts_fails_by_name_file_and_line(name: str) -> None:
    setting, case = DRIFTS[name]
    found = [f for f in about(run(case), f" {setting}") if not f.subject.startswith("switch ")]
    assert [(f.outcome, bool(f.location and f.location.line), bool(f.advice)) for f in found] == [
        (Outcome.FAIL, True, True)
    ]


@pytest.mark.parametrize("name", AGREEING)
def test_settings_that_agree_pass(name: str) -> None:
    assert [f"{f.outcome}: {f.message}" for f in run(AGREEING[name]) if not f.outcome.lets_through] == []


FLAG = SwitchSection(kind="flag", key="--own-fast", on="true", off="false", reads=("own.code:f",))


@pytest.mark.parametrize("key", ["--own-fast", "own-fast", "own_fast"])
@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("action='store_true'", Outcome.PASS),
        ("action='store_true', default=True", Outcome.FAIL),
        ("action='store_false'", Outcome.FAIL),
        ("default=default_of(x)", Outcome.INCONCLUSIVE),
    ],
)
def test_a_flag_is_judged_by_its_default_however_the_manifest_spells_it(
    key: str, given: str, expected: Outcome
) -> None:
    code = f"def add(p, x):\n    p.add_argument('--own-fast', {given})\n"
    case = Case(code=code, document="Pass `--own-fast`.\n")
    found = about(run(case, switch=FLAG.model_copy(update={"key": key})), f"switch {key}")
    assert worst([finding.outcome for finding in found]) is expected


def test_a_switch_that_no_line_reads_is_not_shown_to_be_off() -> None:
    (found,) = about(run(Case(code="x = 1\n")), "switch backend")
    assert found.outcome is Outcome.INCONCLUSIVE


def test_without_the_engines_source_a_strange_variable_in_a_test_stays_open() -> None:
    _, case = DRIFTS["test that sets a variable nothing reads"]
    (found,) = about(run(case, with_engine=False), "OWN_FASTPATH")
    assert found.outcome is Outcome.INCONCLUSIVE


FLAG_IN_A_DOCUMENT = 'Run `vllm serve m --own-depth 2 --additional-config \'{"backend": "fast"}\'`.\n'


def test_source_that_shows_no_flags_does_not_say_that_a_flag_is_unknown() -> None:
    case = Case(document=FLAG_IN_A_DOCUMENT, engine={"vllm/cli.py": b"def main(): ...\n"})
    assert [f.outcome for f in about(run(case), "--own-depth")] == [Outcome.INCONCLUSIVE]


def test_without_an_engine_a_change_that_declares_no_flag_documents_the_engines() -> None:
    assert about(run(Case(document=FLAG_IN_A_DOCUMENT), with_engine=False), "--own-depth") == []


def test_where_no_document_is_at_hand_nothing_is_said_to_be_undocumented() -> None:
    (found,) = [f for f in run(Case(document="")) if "key of" in f.subject]
    assert found.outcome is Outcome.INCONCLUSIVE


def test_what_a_hook_read_at_the_base_already_is_not_the_changes_setting() -> None:
    code = READ_OLD + 'def f(c):\n    return c.additional_config.get("backend", "auto")\n'
    assert not about(run(Case(code=code), before=READ_OLD), "OLD_SETTING_X")


READ_OLD = 'import os\nX = os.environ.get("OLD_SETTING_X")\n'


def test_without_a_record_nothing_is_judged() -> None:
    (finding,) = findings_of()
    assert finding.outcome is Outcome.NOT_RUN


def test_other_tests_or_commands_are_read_anew() -> None:
    def sets(text: str, command: str) -> list[str]:
        files = frozenset({("tests/test_own.py", text.encode())})
        return [use.name for use in set_by_tests(files, frozenset({command}))]

    text = 'import os, subprocess\nos.environ["OWN_A"] = "1"\nsubprocess.run(["own", "--b", "1"])\n'
    assert sets(text, "own") == sets(text, "own") and "OWN_A" in sets(text, "own")
    assert sets(text.replace("OWN_A", "OWN_B"), "own") != sets(text, "own") != sets(text, "other")
