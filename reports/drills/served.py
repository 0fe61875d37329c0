"""Which code served: steps and decode tokens of each arm's ledger, by batch, by kind of step and by reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from bundles.contents import Bundle
from harness.model.evidence import LedgerEvidence
from harness.model.ledger import LedgerRow, Path, path_of
from harness.model.step_kind import kind_of
from harness.model.words import Outcome
from reports.checks import CheckCard
from reports.drills.pivot import missing_check, pivot
from reports.drills.placed import Placed, placed
from reports.drills.tables import Cell, Drill, Missing, Table, code_cell, number_cell, table_of, text_cell
from reports.drills.timing import words

CHECKS = ("COR003",)
Ledger = Placed[LedgerEvidence]
Step = tuple[LedgerRow, Path]
"""A row of a ledger, and which code served it."""
PATH_WORDS = {Path.SPECIALIZED: "specialised", Path.BASELINE: "baseline", Path.CONTRADICTORY: "contradictory"}
UNKNOWN_KIND = "not recorded"


def view_served(bundle: Bundle, cards: Sequence[CheckCard]) -> Drill:
    """Shares as judged, and the ledgers counted."""
    judged = pivot(
        cards,
        CHECKS,
        ("specialised share",),
        "Share of the decode tokens that the specialised path served, as judged",
    )
    parts: list[Table | Missing] = [judged or missing_check(cards, CHECKS, "Shares by suite and batch")]
    ledgers = placed(bundle, LedgerEvidence)
    targets = bundle.manifest.dispatch.targets
    for ledger in ledgers:
        steps = [(row, path_of(row, targets)) for row in ledger.record.rows]
        parts += [_by_batch(ledger, steps), _by_kind(ledger, steps)]
        reasons = _reasons(ledger, steps)
        parts += [] if reasons is None else [reasons]
    if not ledgers:
        parts.append(
            Missing(
                what="Steps by batch, kind and reason",
                outcome=Outcome.NOT_RUN,
                reason=("the bundle holds no ledger of an engine.",),
            )
        )
    return Drill(
        anchor="served",
        title="Which code served",
        question="Did the changed code run",
        checks=CHECKS,
        parts=tuple(parts),
    )


def _by_batch(ledger: Ledger, steps: Sequence[Step]) -> Table:
    """A row for each number of requests in a decode step."""
    groups: dict[int, list[Step]] = {}
    for row, path in steps:
        if row.is_pure_decode:
            groups.setdefault(row.num_reqs, []).append((row, path))
    rows = []
    for batch, found in sorted(groups.items()):
        tokens: Counter[Path] = Counter()
        for row, path in found:
            tokens[path] += sum(r.num_emitted_tokens for r in row.requests)
        where = f"batch={batch}"
        replayed = sum(row.graph_replayed for row, _ in found)
        rows.append(
            (
                number_cell(ledger.tally(batch, f"batch {where}", "rows")),
                number_cell(ledger.tally(len(found), f"decode-steps {where}", "rows")),
                number_cell(ledger.tally(replayed, f"replayed-steps {where}", "rows")),
                *(
                    number_cell(ledger.tally(tokens[path], f"decode-tokens {where} path={path}", "rows"))
                    for path in Path
                ),
            )
        )
    caption = (
        f"Decode steps of the {words(ledger.record.arm)} arm by requests in the step; tokens by the path"
    )
    head = ("Requests", "Steps", "Graph replays", *(f"Tokens, {PATH_WORDS[path]}" for path in Path))
    return table_of(caption, head, rows)


def _by_kind(ledger: Ledger, steps: Sequence[Step]) -> Table:
    counts = Counter((kind_word(row), path) for row, path in steps if row.num_reqs)
    rows = [
        (
            text_cell(kind.replace("_", " ")),
            *(
                number_cell(
                    ledger.tally(
                        counts[kind, path], f"steps kind={kind.replace(' ', '_')} path={path}", "rows"
                    )
                )
                for path in Path
            ),
        )
        for kind in sorted({kind for kind, _ in counts})
    ]
    caption = (
        f"Steps of the {words(ledger.record.arm)} arm by what they computed and the path that served them"
    )
    return table_of(caption, ("Kind of step", *(f"Steps, {PATH_WORDS[path]}" for path in Path)), rows)


def kind_word(row: LedgerRow) -> str:
    """The kind of a step."""
    kind = kind_of(row)
    return UNKNOWN_KIND if kind is None else kind.value


def _reasons(ledger: Ledger, steps: Sequence[Step]) -> Table | None:
    """Why steps were not served specialised, the first step of each reason; None where none gives a reason."""
    found: dict[str, tuple[int, int]] = {}
    counts: Counter[str] = Counter()
    for place, (row, path) in enumerate(steps):
        if path is Path.SPECIALIZED:
            continue
        for number, decision in enumerate(row.decisions):
            if decision.reason:
                found.setdefault(decision.reason, (place, number))
                counts[decision.reason] += 1
    if not found:
        return None
    rows = [_reason_row(ledger, reason, found[reason], counts) for reason, _ in counts.most_common()]
    caption = (
        f"Why steps of the {words(ledger.record.arm)} arm were not served specialised, most frequent first"
    )
    return table_of(caption, ("Reason that the path gave", "Steps"), rows)


def _reason_row(
    ledger: Ledger, reason: str, place: tuple[int, int], counts: Mapping[str, int]
) -> tuple[Cell, ...]:
    row, number = place
    parts = ("rows", row, "decisions", number, "reason")
    rule = f"refusals like={row}/{number}"
    return code_cell(ledger.text(reason, *parts)), number_cell(ledger.tally(counts[reason], rule, "rows"))
