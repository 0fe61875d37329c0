"""Evidence records as a report shows them: what they are, and the first of what they hold."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from dataclasses import dataclass, replace

from bundles.contents import HEAD_CHARACTERS, Bundle, EvidenceFile
from bundles.layout import MANIFEST_JSON
from harness.model.evidence import ArmEvidence, EnvironmentEvidence, KernelCompilationEvidence
from harness.model.words import Tier
from reports.record_facts import Fact, view_facts
from reports.shown import Shown, format_number, pointer, visible

EXCERPT_CHARACTERS, FEWEST_CHARACTERS = 800, 100
TOTAL_EXCERPT_CHARACTERS = 300_000
"""Over all records: with many of them each excerpt shrinks, so that the page stays small."""
LOG_LINES = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Excerpt:
    """The first characters of a file of the bundle."""

    text: str
    path: str
    is_whole: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceEntry:
    """One record."""

    anchor: str
    id: str
    path: str
    kind: str
    tier: Tier
    sha256: Shown
    size: Shown
    recorded_at: Shown
    command: Shown | None
    facts: tuple[Fact, ...]
    excerpt: Excerpt
    log_tail: tuple[Shown, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentView:
    """One machine and its software."""

    facts: tuple[Fact, ...]
    packages: tuple[Fact, ...]


def view_evidence(bundle: Bundle) -> tuple[EvidenceEntry, ...]:
    """An entry for every record, in recorded order."""
    limit = min(EXCERPT_CHARACTERS, TOTAL_EXCERPT_CHARACTERS // max(len(bundle.evidence), 1), HEAD_CHARACTERS)
    return tuple(_view_record(bundle, file, limit) for file in bundle.evidence)


def shrink_excerpts(entries: Iterable[EvidenceEntry]) -> tuple[EvidenceEntry, ...]:
    """The entries with no more of each file than says what it is; the rest of a page keeps its size."""
    return tuple(
        replace(
            entry,
            excerpt=replace(
                entry.excerpt,
                text=entry.excerpt.text[:FEWEST_CHARACTERS],
                is_whole=entry.excerpt.is_whole and len(entry.excerpt.text) <= FEWEST_CHARACTERS,
            ),
        )
        for entry in entries
    )


def evidence_anchor(evidence_id: str) -> str:
    """Where the report shows a record."""
    return f"evidence-{evidence_id}"


def view_environments(bundle: Bundle) -> tuple[EnvironmentView, ...]:
    """Every machine that took part."""
    return tuple(
        _view_environment(f.path, f.record)
        for f in bundle.evidence
        if isinstance(f.record, EnvironmentEvidence)
    )


def _view_record(bundle: Bundle, file: EvidenceFile, limit: int) -> EvidenceEntry:
    record, digest = file.record, bundle.contents[file.path]

    def listed(key: str, text: str) -> Shown:
        return Shown(text=text, ref=pointer(MANIFEST_JSON, "files", file.path, key))

    command = shlex.join(record.command)
    text = file.head[:limit]
    log = record.log_tail if isinstance(record, (ArmEvidence, KernelCompilationEvidence)) else ()
    first = max(len(log) - LOG_LINES, 0)
    return EvidenceEntry(
        anchor=evidence_anchor(record.id),
        id=record.id,
        path=file.path,
        kind=record.kind,
        tier=record.tier,
        sha256=listed("sha256", digest.sha256),
        size=listed("size", format_number(digest.size)),
        recorded_at=Shown(text=visible(record.recorded_at), ref=pointer(file.path, "recorded_at")),
        command=Shown(text=visible(command), ref=pointer(file.path, "command")) if command else None,
        facts=view_facts(file),
        excerpt=Excerpt(
            text=visible(text, multiline=True), path=file.path, is_whole=len(text.encode()) == digest.size
        ),
        log_tail=tuple(
            Shown(text=visible(line), ref=pointer(file.path, "log_tail", first + i))
            for i, line in enumerate(log[first:])
        ),
    )


def _view_environment(path: str, record: EnvironmentEvidence) -> EnvironmentView:
    def show(text: str, *parts: str | int) -> Shown:
        return Shown(text=visible(text), ref=pointer(path, *parts))

    facts = [
        Fact(label="processor", value=show(record.cpu, "cpu")),
        Fact(label="cores", value=show(format_number(record.num_cores), "num_cores")),
        Fact(label="memory (GiB)", value=show(format_number(record.memory_gib), "memory_gib")),
        *(Fact(label="GPU", value=show(gpu, "gpus", i)) for i, gpu in enumerate(record.gpus)),
        *(() if record.gpus else (Fact(label="GPU", value="none"),)),
        *(
            (Fact(label="between GPUs", value=show(record.gpu_topology, "gpu_topology")),)
            if record.gpu_topology
            else ()
        ),
        Fact(label="operating system", value=show(record.os, "os")),
        Fact(label="Python", value=show(record.python, "python")),
        Fact(label="harness source (sha256)", value=show(record.harness_sha256, "harness_sha256")),
        Fact(label="engine's wheel (sha256)", value=show(record.engine_sha256, "engine_sha256"))
        if record.engine_sha256
        else Fact(label="engine", value="none is installed"),
    ]
    return EnvironmentView(
        facts=tuple(facts),
        packages=tuple(
            Fact(
                label=Shown(text=visible(name), ref=pointer(path, "packages", name), is_key=True),
                value=show(version, "packages", name),
            )
            for name, version in sorted(record.packages.items())
        ),
    )
