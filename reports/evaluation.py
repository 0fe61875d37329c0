"""Answers of an evaluation that the arms score differently, with what was asked and what each arm said."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from bundles.contents import Bundle, EvidenceFile
from bundles.layout import JUDGEMENT
from harness.model.evaluation import SuiteItem
from harness.model.evidence import EvalSetEvidence, SuiteEvidence
from harness.model.finding import Finding, ItemScores
from harness.model.words import Arm
from reports.shown import Shown, clip, format_number, pointer, visible

TEXT_CHARACTERS, FEWEST_CHARACTERS = 600, 80
TOTAL_CHARACTERS = 200_000
"""Over all texts of all items: with many of them each is cut shorter, so that the page stays small."""
TEXTS_PER_ITEM = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """One text about an item, and whose it is."""

    label: str
    text: Shown


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemView:
    """One item."""

    ref: str
    """The whole entry of the finding."""
    item: Shown
    baseline: Shown
    candidate: Shown
    baseline_again: Shown
    said: tuple[Said, ...]
    """Question, reference answer, and the arms' answers, as far as the evidence has them."""


class ItemShelf:
    """Finds the texts about a finding's items in the evidence that the finding rests on."""

    def __init__(self, bundle: Bundle) -> None:
        self._files: Mapping[str, EvidenceFile] = {file.record.id: file for file in bundle.evidence}
        num_items = sum(len(finding.items) for finding in bundle.judgement.findings)
        fair_share = TOTAL_CHARACTERS // max(TEXTS_PER_ITEM * num_items, 1)
        self._limit = max(FEWEST_CHARACTERS, min(TEXT_CHARACTERS, fair_share))

    def view_items(self, finding: Finding, index: int) -> tuple[ItemView, ...]:
        """The items of the finding at a place of the judgement."""
        files = [self._files[name] for name in finding.evidence]
        return tuple(
            self._view_item(item, pointer(JUDGEMENT, "findings", index, "items", place), files)
            for place, item in enumerate(finding.items)
        )

    def _view_item(self, item: ItemScores, ref: str, files: Iterable[EvidenceFile]) -> ItemView:
        def score(key: str, value: float) -> Shown:
            return Shown(text=format_number(value), ref=f"{ref}/{key}")

        return ItemView(
            ref=ref,
            item=Shown(text=visible(item.item), ref=f"{ref}/item"),
            baseline=score("baseline", item.baseline),
            candidate=score("candidate", item.candidate),
            baseline_again=score("baseline_again", item.baseline_again),
            said=tuple(self._said(item.item, list(files))),
        )

    def _said(self, item: str, files: list[EvidenceFile]) -> Iterable[Said]:
        answers = {arm: found for arm in Arm if (found := _find_answer(files, arm, item)) is not None}
        row = next((answer.row for _, _, answer in answers.values() if answer.row), "")
        for file in files:
            if isinstance(file.record, EvalSetEvidence) and row:
                yield from self._asked(file.path, file.record, row)
        for arm in (Arm.BASELINE, Arm.CANDIDATE):
            if arm in answers:
                path, place, answer = answers[arm]
                shown = self._text(answer.text, path, "items", place, "text")
                yield Said(label=f"{arm.value}'s answer", text=shown)

    def _asked(self, path: str, record: EvalSetEvidence, name: str) -> Iterable[Said]:
        for place, row in enumerate(record.rows):
            if row.row == name:
                last = len(row.messages) - 1
                where = ("rows", place, "messages", last, "content")
                yield Said(label="question", text=self._text(row.messages[last].content, path, *where))
                yield Said(
                    label="reference answer", text=self._text(row.answer, path, "rows", place, "answer")
                )

    def _text(self, text: str, path: str, *place: str | int) -> Shown:
        return clip(Shown(text=visible(text, multiline=True), ref=pointer(path, *place)), self._limit)


def _find_answer(files: Iterable[EvidenceFile], arm: Arm, item: str) -> tuple[str, int, SuiteItem] | None:
    """Path of the record, place in it and the answer; a candidate that was made wrong on purpose does not count."""
    for file in files:
        record = file.record
        if isinstance(record, SuiteEvidence) and record.arm is arm and not record.perturbation:
            for place, answer in enumerate(record.items):
                if answer.item == item:
                    return file.path, place, answer
    return None
