"""A bundle that was begun and never sealed: what it is about, and how its evidence is taken up again."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from bundles.contents import parse_ordered_evidence, parse_record, parse_toml
from bundles.files import list_files, read_file, write_atomic
from bundles.json_text import render_pretty_json
from bundles.layout import CHANGE, EVIDENCE_FOLDER, POLICY, SHA256SUMS, SUBJECT_MANIFEST, UNFINISHED_SUFFIX
from bundles.machine_names import this_machine
from bundles.scrub import Scrubber
from harness.model.change import Change
from harness.model.errors import ConfigurationError
from harness.model.evidence import AnyEvidence
from harness.model.manifest import Manifest
from harness.model.policy import Policy


def begin(
    folder: Path, *, manifest_text: str, policy_text: str, change: Change, scrubber: Scrubber | None = None
) -> None:
    """Writes what the bundle is about before any evidence is there.

    Raises:
        ConfigurationError: manifest or policy name a folder or a secret of this machine: they travel as they are.
    """
    names = (scrubber or this_machine()).names
    for name, text in ((SUBJECT_MANIFEST, manifest_text), (POLICY, policy_text)):
        found = [f"<{written}>" for path, written in names.folders.items() if f"{path}/" in text]
        found += [f"<{variable}>" for secret, variable in names.secrets.items() if secret in text]
        if found:
            raise ConfigurationError(
                "configuration-names-machine",
                f"The {'manifest' if name == SUBJECT_MANIFEST else 'policy'} holds {', '.join(found)}.",
                "It becomes part of the bundle: write paths relative to the repository, and no secrets.",
            )
    for name, data in _question(manifest_text, policy_text, change).items():
        write_atomic(folder / name, data)


def reopen(folder: Path, *, manifest_text: str, policy_text: str, change: Change) -> tuple[AnyEvidence, ...]:
    """The evidence of an unsealed bundle, in order.

    Raises:
        ConfigurationError: there is none, it is sealed, or it is about another change, manifest or policy.
        BundleError: a record cannot be read back.
    """
    _require_begun(folder, "Leave --resume out to judge anew.")
    for name, data in _question(manifest_text, policy_text, change).items():
        if (folder / name).read_bytes() != data:
            raise ConfigurationError(
                "resume-other",
                f"{folder} was begun with another {name}, so that its evidence does not concern this run.",
                "Leave --resume out to judge anew.",
            )
    return _read_records(folder)


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """A bundle that was begun and never sealed."""

    manifest_text: str
    policy_text: str
    policy: Policy
    change: Change
    records: tuple[AnyEvidence, ...]
    """In order."""


def read_begun(folder: Path) -> Begun:
    """What an unsealed bundle is about, and its evidence.

    Raises:
        ConfigurationError: there is none, or it is sealed.
        BundleError: a file of it cannot be read back.
    """
    _require_begun(folder, "Name a folder that `validate` began and did not finish.")
    files = {name: read_file(folder / name, name) for name in (SUBJECT_MANIFEST, POLICY, CHANGE)}
    policy_text, policy = parse_toml(Policy, files[POLICY], POLICY)
    return Begun(
        manifest_text=parse_toml(Manifest, files[SUBJECT_MANIFEST], SUBJECT_MANIFEST)[0],
        policy_text=policy_text,
        policy=policy,
        change=parse_record(Change, files[CHANGE], CHANGE),
        records=_read_records(folder),
    )


def _require_begun(folder: Path, advice: str) -> None:
    if (folder / SHA256SUMS).exists():
        raise ConfigurationError("resume-sealed", f"{folder} is a finished bundle.", advice)
    if not (folder / CHANGE).exists():
        raise ConfigurationError("resume-nothing", f"{folder} holds no begun bundle.", advice)


def _read_records(folder: Path) -> tuple[AnyEvidence, ...]:
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
