"""Laws of the drill-down into evaluations: what was asked and said, and nothing of the control."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from harness.model.evidence import EvalSetEvidence, SuiteEvidence
from harness.model.words import Arm
from reports.evaluation import FEWEST_CHARACTERS, ItemShelf, ItemView
from tests.reports.pages import read_example


def items_of(folder: Path, check: str) -> tuple[ItemView, ...]:
    bundle = read_example(folder)
    shelf = ItemShelf(bundle)
    (found,) = (
        shelf.view_items(f, i)
        for i, f in enumerate(bundle.judgement.findings)
        if f.check == check and f.items
    )
    return found


def test_each_item_shows_the_question_the_reference_and_both_answers(examples: dict[str, Path]) -> None:
    items = items_of(examples["evaluations"], "COR007")
    labels = {tuple(said.label for said in item.said) for item in items}
    assert labels == {("question", "reference answer", "baseline's answer", "candidate's answer")}


def test_the_texts_are_those_of_the_item(examples: dict[str, Path]) -> None:
    records = read_example(examples["evaluations"]).records
    rows = {r.row: r for e in records if isinstance(e, EvalSetEvidence) for r in e.rows}
    answers = {
        (r.arm, i.item): i.text
        for r in records
        if isinstance(r, SuiteEvidence) and not r.perturbation
        for i in r.items
    }
    for item in items_of(examples["evaluations"], "COR008"):
        row = rows[item.item.text.partition("/")[0]]
        wanted = [
            row.messages[-1].content,
            row.answer,
            answers[Arm.BASELINE, item.item.text],
            answers[Arm.CANDIDATE, item.item.text],
        ]
        assert [said.text.text for said in item.said] == wanted


def test_an_item_that_the_evidence_does_not_hold_shows_its_scores_alone(examples: dict[str, Path]) -> None:
    bundle = read_example(examples["evaluations"])
    finding = next(f for f in bundle.judgement.findings if f.items)
    gone = finding.model_copy(update={"items": (finding.items[0].model_copy(update={"item": "gone"}),)})
    (item,) = ItemShelf(bundle).view_items(gone, 0)
    assert item.said == () and item.candidate.text


def test_many_items_share_the_room(examples: dict[str, Path]) -> None:
    bundle = read_example(examples["hostile"])
    findings = tuple(f.model_copy(update={"items": f.items * 400}) for f in bundle.judgement.findings)
    judgement = bundle.judgement.model_copy(update={"findings": findings})
    crowded = ItemShelf(replace(bundle, judgement=judgement))
    texts = [said.text.text for item in crowded.view_items(findings[0], 0) for said in item.said]
    assert texts and max(map(len, texts)) == FEWEST_CHARACTERS
