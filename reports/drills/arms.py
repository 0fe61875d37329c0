"""The servers that were compared, how they differ, and where taken-over evidence comes from."""

from __future__ import annotations

from collections.abc import Sequence

from bundles.contents import Bundle
from harness.model.evidence import ArmEvidence, SourceEvidence
from reports.checks import CheckCard
from reports.drills.pivot import missing_check
from reports.drills.placed import Placed, placed
from reports.drills.tables import (
    Cell,
    Drill,
    Missing,
    Table,
    code_cell,
    joined,
    number_cell,
    table_of,
    text_cell,
)
from reports.shown import Piece


def view_arms(bundle: Bundle, cards: Sequence[CheckCard]) -> Drill:
    """A row a server, and a row a bundle from which evidence was taken over."""
    arms, sources = placed(bundle, ArmEvidence), placed(bundle, SourceEvidence)
    parts: list[Table | Missing] = [
        _servers(arms) if arms else missing_check(cards, ("COR005",), "Servers of the arms")
    ]
    if sources:
        parts.append(_sources(sources))
    return Drill(
        anchor="arms",
        title="Arms and sources",
        question="What was compared with what",
        checks=("COR005",),
        parts=tuple(parts),
    )


def _servers(arms: Sequence[Placed[ArmEvidence]]) -> Table:
    head = (
        "Arm", "Tier", "Asked for", "Served", "Ready after, s", "Modules of the subject", "Functions traced",
        "Not traced", "Why its ledger does not count",
    )  # fmt: skip
    rows = [_server(arm) for arm in arms]
    return table_of("Servers of the arms, and what was asked of each", head, rows)


def _server(arm: Placed[ArmEvidence]) -> tuple[Cell, ...]:
    record = arm.record
    asked: list[Piece] = []
    for key, value in record.additional_config.items():
        asked += ["; "] if asked else []
        asked += [arm.key(key, "additional_config", key), " = ", arm.text(value, "additional_config", key)]
    proof = record.proof
    ended = arm.said(record.failure, "failure") or ("to the end" if record.started else "no")
    return (
        text_cell(arm.text(record.arm, "arm")),
        text_cell(arm.text(record.tier, "tier")),
        code_cell(*(asked or ["nothing"])),
        text_cell(ended),
        number_cell(arm.known(record.ready_s, "ready_s")),
        number_cell(arm.length(record.modules, "modules")),
        number_cell(arm.length(proof.wrapped, "proof", "wrapped") if proof else None),
        number_cell(arm.length(proof.missing, "proof", "missing") if proof else None),
        text_cell(
            *joined([arm.text(p, "ledger_problems", i) for i, p in enumerate(record.ledger_problems)], "; ")
        ),
    )


def _sources(sources: Sequence[Placed[SourceEvidence]]) -> Table:
    rows = [
        (
            code_cell(source.text(source.record.content_sha256, "content_sha256")),
            code_cell(*joined([source.text(s, "signers", i) for i, s in enumerate(source.record.signers)])),
            number_cell(source.length(source.record.evidence, "evidence")),
        )
        for source in sources
    ]
    head = ("Bundle", "Signed by the keys", "Records taken over")
    return table_of(
        "Bundles from which evidence was taken over; without a key, nobody stands for it", head, rows
    )
