"""The bundle described for tools that know nothing of fasttrack: RO-Crate 1.2 metadata.

A function of the bundle alone, so that it is rebuilt and compared like the report. Source: the RO-Crate specification
1.2, root data entity, data entities, and provenance of entities.
"""

from __future__ import annotations

from typing import Any

from bundles.contents import Bundle
from bundles.json_text import render_pretty_json
from bundles.layout import (
    CHANGE,
    JUDGEMENT,
    MANIFEST_JSON,
    POLICY,
    REPORT,
    RO_CRATE,
    SHA256SUMS,
    SUBJECT_MANIFEST,
)
from harness.model.evidence import EnvironmentEvidence

SPECIFICATION = "https://w3id.org/ro/crate/1.2"
UNDATED = "1970-01-01"
"""Date of a bundle without evidence."""
_MEDIA_TYPES = {
    "json": "application/json",
    "toml": "application/toml",
    "html": "text/html",
    "txt": "text/plain",
    "log": "text/plain",
}
_SAYS = {
    SUBJECT_MANIFEST: "What the change declares of itself",
    POLICY: "What the change is held to",
    CHANGE: "Which commits are compared",
    JUDGEMENT: "Findings and verdict",
    REPORT: "Report for a reviewer",
    MANIFEST_JSON: "Size and sha256 of every file",
    SHA256SUMS: "Digests for sha256sum -c",
}

Entity = dict[str, Any]


def render_ro_crate(bundle: Bundle) -> bytes:
    """`ro-crate-metadata.json` of the bundle."""
    times = sorted(record.recorded_at for record in bundle.records)
    files = _files(bundle)
    head, software = f"urn:git:commit:{bundle.change.head}", "#fasttrack"
    graph: list[Entity] = [
        {
            "@id": RO_CRATE,
            "@type": "CreativeWork",
            "conformsTo": {"@id": SPECIFICATION},
            "about": {"@id": "./"},
        },
        {
            "@id": "./",
            "@type": "Dataset",
            "name": f"Evidence for {bundle.manifest.change.id} at {bundle.change.head[:12]}",
            "description": f"{bundle.manifest.change.title}. Verdict: {bundle.judgement.verdict}. "
            f"{bundle.judgement.reason}",
            "datePublished": times[-1] if times else UNDATED,
            "license": {"@id": "#licence"},
            "identifier": f"sha256:{bundle.content_sha256}",
            "mainEntity": {"@id": REPORT},
            "about": {"@id": head},
            "hasPart": [{"@id": file["@id"]} for file in files],
            "mentions": {"@id": "#run"},
        },
        {
            "@id": "#licence",
            "@type": "CreativeWork",
            "name": "Not stated",
            "description": "A bundle states no licence; ask who made it.",
        },
        {
            "@id": head,
            # SoftwareSourceCode is a script to the specification, and has to be a file of the crate.
            "@type": "CreativeWork",
            "name": bundle.change.head_subject or bundle.change.head,
            "version": bundle.change.head,
        },
        {
            "@id": software,
            # SoftwareApplication has to have an address on the web.
            "@type": "CreativeWork",
            "name": "fasttrack",
            "version": bundle.judgement.harness_version,
        },
        _run(bundle, times, head, software),
        *files,
    ]
    return render_pretty_json({"@context": f"{SPECIFICATION}/context", "@graph": graph})


def _run(bundle: Bundle, times: list[str], head: str, software: str) -> Entity:
    run: Entity = {
        "@id": "#run",
        "@type": "CreateAction",
        "name": "Collection and judgement of the evidence",
        "instrument": {"@id": software},
        "object": [{"@id": head}, {"@id": SUBJECT_MANIFEST}, {"@id": POLICY}],
        "result": {"@id": "./"},
    }
    machines = sorted(
        {f"{r.cpu}, {r.num_cores} cores, {', '.join(r.gpus) or 'no GPU'}" for r in _machines(bundle)}
    )
    if machines:
        run["description"] = f"On {'; '.join(machines)}"
    return run | ({"startTime": times[0], "endTime": times[-1]} if times else {})


def _machines(bundle: Bundle) -> list[EnvironmentEvidence]:
    return [record for record in bundle.records if isinstance(record, EnvironmentEvidence)]


def _files(bundle: Bundle) -> list[Entity]:
    """Every file but this one: the three that follow from the others are named without size and digest."""
    records = {file.path: file.record for file in bundle.evidence}
    entities = []
    for path in sorted({*bundle.contents, REPORT, MANIFEST_JSON, SHA256SUMS}):
        entity: Entity = {"@id": path, "@type": "File", "name": path}
        if media_type := _MEDIA_TYPES.get(path.rpartition(".")[2]):
            entity["encodingFormat"] = media_type
        if path in records:
            entity["description"] = f"{records[path].kind}, {records[path].tier} tier"
            entity["dateCreated"] = records[path].recorded_at
        elif path in _SAYS:
            entity["description"] = _SAYS[path]
        if path in bundle.contents:
            entity["contentSize"] = str(bundle.contents[path].size)
            entity["sha256"] = bundle.contents[path].sha256
        entities.append(entity)
    return entities
