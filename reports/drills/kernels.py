"""Kernels: what was compiled, what it takes of the machine, what every rule says, and the path that shows it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

from bundles.contents import Bundle
from harness.model.evidence import KernelAuditEvidence, KernelCompilationEvidence, KernelSourcesEvidence
from harness.model.kernel_audit import Decision
from harness.model.words import Outcome
from reports.checks import CheckCard
from reports.drills.pivot import missing_check
from reports.drills.placed import Placed, placed
from reports.drills.tables import (
    MAX_ROWS,
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
from reports.shown import Shown, Tally, pointer

PATH_LINES = 12
"""Instructions of a path that are shown; the record holds all."""
OUTCOMES = {
    Decision.SHOWN: Outcome.FAIL,
    Decision.UNDECIDED: Outcome.INCONCLUSIVE,
    Decision.PROVEN: Outcome.PASS,
    Decision.NOT_APPLICABLE: Outcome.NOT_APPLICABLE,
}
"""Worst first."""
RULE_PREFIXES = ("PDL", "SYN")
_RULE_CHECK = "PDL001"
Audit = Placed[KernelAuditEvidence]


def view_kernels(bundle: Bundle, cards: Sequence[CheckCard]) -> Drill:
    """Sources, compilations, rules, resources, paths, and what was not launched."""
    compilations = placed(bundle, KernelCompilationEvidence)
    audits = placed(bundle, KernelAuditEvidence)
    parts: list[Table | Missing] = [_sources(r, compilations) for r in placed(bundle, KernelSourcesEvidence)]
    if compilations:
        parts.append(_compilations(compilations))
    if any(audit.record.kernels for audit in audits):
        parts += [_rules(audits), _resources(audits), _paths(audits)]
    else:
        parts.append(missing_check(cards, (_RULE_CHECK,), "Kernels and variants, compiled and audited"))
    parts.append(
        Missing(
            what="Variants that a correctness suite launched",
            outcome=Outcome.NOT_RUN,
            reason=("no record of launches is in a bundle yet.",),
        )
    )
    return Drill(
        anchor="kernels",
        title="Kernels",
        question="What was compiled and read",
        checks=tuple(c.id.text for c in cards if c.id.text.startswith(RULE_PREFIXES)),
        parts=tuple(parts),
    )


def _sources(
    record: Placed[KernelSourcesEvidence], compilations: Sequence[Placed[KernelCompilationEvidence]]
) -> Table:
    compiled = {path for c in compilations for path in c.record.subject_files}
    rows = [
        (
            code_cell(record.text(source.path, "files", i, "path")),
            text_cell(record.text(source.form, "files", i, "form")),
            text_cell("yes" if source.path in compiled else "no: nothing is known of its kernels"),
        )
        for i, source in enumerate(record.record.files)
    ]
    whole = record.length(record.record.files, "files")
    head = ("File that holds kernels", "Written in", "Imported by an entry point")
    return table_of("Kernel sources of the change", head, rows, whole)


def _compilations(records: Sequence[Placed[KernelCompilationEvidence]]) -> Table:
    rows = [
        (
            code_cell(r.text(r.record.entry, "entry")),
            text_cell(r.text(r.record.arch, "arch")),
            number_cell(r.length(r.record.variants, "variants")),
            number_cell(r.length(r.record.subject_files, "subject_files")),
            text_cell(r.said(r.record.failure, "failure") or "to its end"),
        )
        for r in records
    ]
    head = ("Entry point", "Architecture", "Variants", "Files of the change", "How far it ran")
    return table_of("Variants that were compiled", head, rows)


def _kernels(audits: Sequence[Audit]) -> Iterator[tuple[Audit, int]]:
    """Each kernel by its place, those with the worst result first."""
    order = list(OUTCOMES)
    found = [
        (min((order.index(r.decision) for r in k.results), default=len(order)), audit, i)
        for audit in audits
        for i, k in enumerate(audit.record.kernels)
    ]
    for _, audit, i in sorted(found, key=lambda row: row[0]):
        yield audit, i


def _name(audit: Audit, i: int) -> tuple[Cell, Cell]:
    kernel = audit.record.kernels[i]
    name = audit.text(kernel.kernel, "kernels", i, "kernel")
    level = audit.text(kernel.level, "kernels", i, "level")
    return code_cell(name), text_cell(level, ", ", audit.text(kernel.arch, "kernels", i, "arch"))


def _rules(audits: Sequence[Audit]) -> Table:
    """A column for each rule; how often each decision was made of the kernel."""
    heads: dict[str, Shown] = {}
    for audit in audits:
        for i, kernel in enumerate(audit.record.kernels):
            for n, result in enumerate(kernel.results):
                if result.rule not in heads:
                    heads[result.rule] = audit.text(result.rule, "kernels", i, "results", n, "rule")
    rules = sorted(heads)
    rows = []
    for audit, i in islice(_kernels(audits), MAX_ROWS + 1):
        results = audit.record.kernels[i].results
        cells = []
        for rule in rules:
            places = [n for n, r in enumerate(results) if r.rule == rule]
            worst = next((d for d in OUTCOMES if any(results[n].decision is d for n in places)), None)
            cells.append(Cell() if worst is None else Cell(outcome=OUTCOMES[worst]))
        rows.append((*_name(audit, i), *cells))
    caption = "What each rule says of each kernel, the worst of its results; kernels with a finding first"
    return table_of(caption, ("Kernel", "Read as", *(heads[rule] for rule in rules)), rows)


def _resources(audits: Sequence[Audit]) -> Table:
    keys = (
        "registers",
        "spill_stores",
        "spill_loads",
        "stack_bytes",
        "static_shared_bytes",
        "threads",
        "ctas_per_sm",
    )
    rows = []
    for audit, i in _kernels(audits):
        resources = audit.record.kernels[i].resources
        if resources is not None:
            where = ("kernels", i, "resources")
            numbers = [number_cell(audit.known(getattr(resources, key), *where, key)) for key in keys]
            limit = text_cell(audit.said(resources.limited_by, *where, "limited_by"))
            rows.append((*_name(audit, i), *numbers, limit))
    head = (
        "Kernel", "Read as", "Registers", "Spill stores", "Spill loads", "Stack, bytes", "Static shared, bytes",
        "Threads", "CTAs an SM", "Limited by",
    )  # fmt: skip
    return table_of("What each kernel takes of the machine, from its machine code", head, rows)


def _paths(audits: Sequence[Audit]) -> Table:
    """Every result that is out of order or undecided, with the instructions that show it."""
    found = [
        (audit, i, n)
        for audit, i in _kernels(audits)
        for n, result in enumerate(audit.record.kernels[i].results)
        if result.decision in (Decision.SHOWN, Decision.UNDECIDED)
    ]
    refs = tuple(pointer(audit.path, "kernels") for audit in audits)
    caption = "Results that are out of order or not decidable, with the instructions that show it, in order"
    return table_of(
        caption,
        ("Rule", "Kernel", "What it says", "Instructions"),
        [_path_row(audit, i, n) for audit, i, n in found[:MAX_ROWS]],
        Tally(value=len(found), rule="open-results", refs=refs),
    )


def _path_row(audit: Audit, i: int, n: int) -> tuple[Cell, ...]:
    result, where = audit.record.kernels[i].results[n], ("kernels", i, "results", n)
    line = audit.known(result.line, *where, "line")
    path = [audit.text(text, *where, "path", j) for j, text in enumerate(result.path[:PATH_LINES])]
    rule = Cell(outcome=OUTCOMES[result.decision], pieces=(" ", audit.text(result.rule, *where, "rule")))
    reason = audit.text(result.reason, *where, "reason")
    says = text_cell(reason) if line is None else text_cell(reason, " Line ", line, " of its text.")
    return rule, _name(audit, i)[0], says, code_cell(*joined(path, "\n"))
