"""A bundle that was begun and never sealed: what it is about, and how its evidence is taken up again."""

from __future__ import annotations

from pathlib import Path

from bundles.contents import parse_ordered_evidence
from bundles.files import list_files, read_file, write_atomic
from bundles.json_text import render_pretty_json
from bundles.layout import CHANGE, EVIDENCE_FOLDER, POLICY, SHA256SUMS, SUBJECT_MANIFEST, UNFINISHED_SUFFIX
from harness.model.change import Change
from harness.model.errors import ConfigurationError
from harness.model.evidence import AnyEvidence


def begin(folder: Path, *, manifest_text: str, policy_text: str, change: Change) -> None:
    """Writes what the bundle is about before any evidence is there."""
    for name, data in _question(manifest_text, policy_text, change).items():
        write_atomic(folder / name, data)


def reopen(folder: Path, *, manifest_text: str, policy_text: str, change: Change) -> tuple[AnyEvidence, ...]:
    """The evidence of an unsealed bundle, in order.

    Raises:
        ConfigurationError: there is none, it is sealed, or it is about another change, manifest or policy.
        BundleError: a record cannot be read back.
    """
    if (folder / SHA256SUMS).exists():
        raise ConfigurationError(
            "resume-sealed", f"{folder} is a finished bundle.", "Leave --resume out to judge anew."
        )
    if not (folder / CHANGE).exists():
        raise ConfigurationError(
            "resume-nothing", f"{folder} holds no begun bundle.", "Leave --resume out to begin one."
        )
    for name, data in _question(manifest_text, policy_text, change).items():
        if (folder / name).read_bytes() != data:
            raise ConfigurationError(
                "resume-other",
                f"{folder} was begun with another {name}, so that its evidence does not concern this run.",
                "Leave --resume out to judge anew.",
            )
    evidence = {
        path: read_file(file, path)
        for path, file in list_files(folder).items()
        if path.startswith(f"{EVIDENCE_FOLDER}/") and not path.endswith(UNFINISHED_SUFFIX)
    }
    return tuple(file.record for file in parse_ordered_evidence(evidence))


def _question(manifest_text: str, policy_text: str, change: Change) -> dict[str, bytes]:
    return {
        SUBJECT_MANIFEST: manifest_text.encode(),
        POLICY: policy_text.encode(),
        # Last: where it lies, the others do.
        CHANGE: render_pretty_json(change),
    }
