"""What steps hand over and write: scripted runs beside their twin, refusals, captured graphs, base beside head."""

from __future__ import annotations

from collections.abc import Sequence

from bundles.contents import Bundle
from harness.model.evidence import (
    CapturedPointersEvidence,
    DefaultOffEvidence,
    HandoverEvidence,
    ProbeEvidence,
)
from harness.model.ledger import Path, path_of
from harness.model.manifest import Manifest
from harness.model.probe import HandoverStep, ProbeStep, Write
from reports.checks import CheckCard
from reports.drills.pivot import missing_check
from reports.drills.placed import Placed, placed
from reports.drills.tables import Cell, Drill, Missing, Table, code_cell, number_cell, table_of, text_cell

PROBE_CHECKS = ("ISO008", "SCO004", "ISO011", "SCO006")
HANDOVER_CHECK, GRAPH_CHECK, OFF_CHECK = "COR006", "ISO009", "ISO007"
COMPARED = {
    "answers": "Answers",
    "modules": "Modules",
    "ops": "Operators",
    "custom_ops": "vLLM's own",
    "registries": "Registered classes",
    "replaced": "Replaced functions",
    "kv_cache": "Cache properties",
    "torch_settings": "Torch settings",
    "interpreter": "Process settings",
}
"""What a process says of itself, and the head of its column."""


def view_state(bundle: Bundle, cards: Sequence[CheckCard]) -> Drill:
    """Tables for each kind of record that is there, and why each other one is not."""
    parts: list[Table | Missing] = []
    probes = placed(bundle, ProbeEvidence)
    for probe in probes:
        parts += [_scripts(probe, bundle.manifest), _writes(probe), _refusals(probe)]
    if not probes:
        parts.append(missing_check(cards, PROBE_CHECKS, "What each scripted step wrote"))
    handovers = placed(bundle, HandoverEvidence)
    parts += [_handover(handover) for handover in handovers]
    if not handovers:
        parts.append(missing_check(cards, (HANDOVER_CHECK,), "States at each hand-over between the paths"))
    graphs = placed(bundle, CapturedPointersEvidence)
    parts += [_graphs(record) for record in graphs]
    if not graphs:
        parts.append(missing_check(cards, (GRAPH_CHECK,), "Addresses in captured graphs"))
    off = placed(bundle, DefaultOffEvidence)
    parts.append(
        _default_off(off) if off else missing_check(cards, (OFF_CHECK,), "Base and head, switch off")
    )
    return Drill(
        anchor="state",
        title="State and hand-over",
        question="What it leaves behind",
        checks=(*PROBE_CHECKS, HANDOVER_CHECK, GRAPH_CHECK, OFF_CHECK),
        parts=tuple(parts),
    )


def _scripts(probe: Placed[ProbeEvidence], manifest: Manifest) -> Table:
    """A row a script; `like=N` in a rule means: of the engine and script of step N; `of=slice`: by its dispatch."""
    targets = manifest.at(probe.record.tier).dispatch.targets
    whose = "" if targets == manifest.dispatch.targets else " of=slice"
    groups: dict[tuple[str, str], list[tuple[int, ProbeStep]]] = {}
    for place, step in enumerate(probe.record.steps):
        groups.setdefault((step.engine, step.scenario), []).append((place, step))
    rows = []
    for steps in groups.values():
        first, step = steps[0]
        fast = sum(path_of(s.row, targets) is Path.SPECIALIZED for _, s in steps)
        rows.append(
            (
                code_cell(probe.text(step.engine, "steps", first, "engine")),
                code_cell(probe.text(step.scenario, "steps", first, "scenario")),
                number_cell(probe.tally(len(steps), f"script-steps like={first}", "steps")),
                number_cell(probe.tally(fast, f"script-steps-specialized like={first}{whose}", "steps")),
                number_cell(
                    probe.tally(sum(len(s.writes) for _, s in steps), f"script-writes like={first}", "steps")
                ),
            )
        )
    head = ("Engine", "Script", "Steps", "Specialised", "Places written")
    return table_of("Scripted runs of the candidate", head, rows)


def _writes(probe: Placed[ProbeEvidence]) -> Table:
    """A row for each buffer and kind of place; `like=N/M` in a rule means: as write M of step N."""
    groups: dict[tuple[str, str], list[tuple[int, int, Write]]] = {}
    for place, step in enumerate(probe.record.steps):
        for number, write in enumerate(step.writes):
            groups.setdefault((write.buffer, write.place), []).append((place, number, write))
    rows = []
    for found in sorted(groups.values(), key=lambda g: (g[0][2].place == "own slot", g[0][2].buffer)):
        step_place, number, write = found[0]
        like, where = f"like={step_place}/{number}", ("steps", step_place, "writes", number)
        rows.append(
            (
                code_cell(probe.text(write.buffer, *where, "buffer")),
                text_cell(probe.text(write.place, *where, "place")),
                number_cell(probe.tally(len(found), f"writes {like}", "steps")),
                number_cell(
                    probe.tally(sum(w.num_bytes for *_, w in found), f"bytes-written {like}", "steps")
                ),
            )
        )
    caption = "What specialised steps wrote: places outside the own slot first"
    return table_of(caption, ("Buffer", "Place", "Writes", "Bytes that changed"), rows)


def _refusals(probe: Placed[ProbeEvidence]) -> Table:
    rows = [
        (
            code_cell(probe.text(r.engine, "refusals", i, "engine")),
            text_cell(probe.text("yes" if r.within_scope else "no", "refusals", i, "within_scope")),
            text_cell(probe.text(r.message, "refusals", i, "message")),
        )
        for i, r in enumerate(probe.record.refusals)
    ]
    return table_of("What the engines refused", ("Engine", "In the declared scope", "What it said"), rows)


def _handover(handover: Placed[HandoverEvidence]) -> Table:
    groups: dict[tuple[str, str], list[tuple[int, HandoverStep]]] = {}
    for place, step in enumerate(handover.record.steps):
        groups.setdefault((step.engine, step.scenario), []).append((place, step))
    rows = []
    for steps in groups.values():
        first, step = steps[0]
        like = f"like={first}"
        compared = [s for _, s in steps if s.same_work]
        rows.append(
            (
                code_cell(handover.text(step.engine, "steps", first, "engine")),
                code_cell(handover.text(step.scenario, "steps", first, "scenario")),
                number_cell(handover.tally(len(steps), f"script-steps {like}", "steps")),
                number_cell(handover.tally(len(compared), f"compared-steps {like}", "steps")),
                number_cell(
                    handover.tally(sum(s.num_starts for s in compared), f"continuations {like}", "steps")
                ),
                _largest(handover, [(i, s.states.largest) for i, s in steps if s.same_work], "states"),
                _largest(handover, [(i, s.caches.largest) for i, s in steps if s.same_work], "caches"),
                number_cell(
                    handover.tally(
                        sum(bool(s.other_token) for s in compared), f"other-tokens {like}", "steps"
                    )
                ),
            )
        )
    head = (
        "Engine", "Script", "Steps", "With the same work", "Continuations", "Largest state difference",
        "Largest cache difference", "Steps with another token",
    )  # fmt: skip
    caption = (
        "Candidate beside a twin that never took the path: what steps start from, relative to the largest "
        "magnitude in the twin"
    )
    return table_of(caption, head, rows)


def _largest(handover: Placed[HandoverEvidence], found: list[tuple[int, float]], key: str) -> Cell:
    if not found:
        return Cell()
    place, value = max(found, key=lambda pair: pair[1])
    return number_cell(handover.number(value, "steps", place, key, "largest"))


def _graphs(record: Placed[CapturedPointersEvidence]) -> Table:
    keys = (
        "num_kernels",
        "num_addresses",
        "num_replays",
        "num_replays_after_largest",
        "num_replays_after_eager",
    )
    rows = [
        (
            code_cell(record.text(g.name, "graphs", i, "name")),
            *(number_cell(record.number(getattr(g, key), "graphs", i, key)) for key in keys),
        )
        for i, g in enumerate(record.record.graphs)
    ]
    head = ("Graph", "Kernels", "Addresses", "Replays", "after the largest capture", "after an eager step")
    whole = record.length(record.record.graphs, "graphs")
    return table_of("Captured graphs and the addresses in them", head, rows, whole)


def _default_off(records: Sequence[Placed[DefaultOffEvidence]]) -> Table:
    rows = [
        (
            text_cell(record.text(record.record.side, "side")),
            text_cell(record.text(snapshot.model, "snapshots", i, "model")),
            *(number_cell(record.length(getattr(snapshot, key), "snapshots", i, key)) for key in COMPARED),
            number_cell(record.number(snapshot.num_graphs, "snapshots", i, "num_graphs")),
        )
        for record in records
        for i, snapshot in enumerate(record.record.snapshots)
    ]
    head = ("Commit", "Model", *COMPARED.values(), "Graphs")
    caption = "Processes of base and head with the switch unset: how much was compared"
    return table_of(caption, head, rows)
