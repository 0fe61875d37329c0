"""Whole changes as commits, by the functions of `validate`: each planted breach is told for what it is, no twin is."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from harness.app.inward import collect_inward_evidence
from harness.app.reaching import engine_source, read_outside
from harness.app.validate import read_question, static_question
from harness.checks.registry import all_checks
from harness.model.check import CheckContext
from harness.model.evidence import evidence_set
from harness.model.finding import Finding
from harness.options import ChangeOptions
from tests.harness.app.planted_changes import BASE, BREACHES, CHECKS, TWINS, Files
from tests.harness.facts.conftest import ScratchRepository


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> ScratchRepository:
    """The repository that every change starts from."""
    repository = ScratchRepository(tmp_path_factory.mktemp("planted") / "repository")
    repository.commit(dict(BASE))
    return repository


def open_findings(engine: ScratchRepository, files: Files) -> Sequence[Finding]:
    """What the checks of the text do not let through of a change."""
    engine.git("checkout", "--quiet", "-B", "change", "main")
    engine.commit(dict(files))
    question = read_question(ChangeOptions(repo=engine.folder, base="main"))
    static = static_question(question)
    with static.kept():
        records = (
            question.changed_files,
            *read_outside(static, engine_source(static)),
            *collect_inward_evidence(static),
        )
    context = CheckContext(
        change=question.change,
        manifest=question.manifest,
        policy=question.policy,
        evidence=evidence_set(records),
    )
    checks = [check for check in all_checks() if check.id in CHECKS]
    return [f for check in checks for f in check.run(context) if not f.outcome.lets_through]


@pytest.mark.parametrize("name", BREACHES)
def test_a_planted_breach_is_told_by_its_check_for_what_it_is(engine: ScratchRepository, name: str) -> None:
    planted = BREACHES[name]
    found = open_findings(engine, planted.files)
    assert [f for f in found if f.check == planted.check and planted.says in f.message], found


@pytest.mark.parametrize("name", TWINS)
def test_an_innocent_change_passes(engine: ScratchRepository, name: str) -> None:
    assert open_findings(engine, TWINS[name]) == []


def test_the_sets_hold_twenty_of_a_kind_and_each_check_is_asked() -> None:
    assert len(BREACHES) >= 20 <= len(TWINS) and {b.check for b in BREACHES.values()} == set(CHECKS)
