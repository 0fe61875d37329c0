"""Writing a bundle: evidence the moment it is made, everything else when the judgement is there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from bundles.contents import (
    Bundle,
    check_consistency,
    parse_evidence,
    parse_ordered_evidence,
    parse_single_files,
)
from bundles.error import BundleError
from bundles.files import digest_bytes, digest_file, list_files, read_file, write_atomic
from bundles.json_text import render_evidence_json, render_pretty_json
from bundles.layout import (
    ATTESTATION_FOLDER,
    CHANGE,
    EVIDENCE_FOLDER,
    JUDGEMENT,
    MANIFEST_JSON,
    POLICY,
    RAW_FOLDER,
    REPORT,
    RO_CRATE,
    SHA256SUMS,
    SINGLE_FILES,
    SUBJECT_MANIFEST,
    UNFINISHED_SUFFIX,
    BundleManifest,
    check_relative_path,
    content_digest,
    evidence_path,
    is_attestation_path,
    is_bundle_path,
    render_sha256sums,
)
from bundles.machine_names import this_machine
from bundles.ro_crate import render_ro_crate
from bundles.scrub import Scrubber, names_machine
from harness.model.errors import ConfigurationError
from harness.model.evidence import AnyEvidence
from harness.model.judgement import Judgement

RenderReport = Callable[[Bundle], str]
"""Bundle to HTML; injected, since bundles know nothing of reports."""


def require_outside(out: Path) -> None:
    """Nothing, when `out` lies in no sealed bundle.

    Raises:
        ConfigurationError: it does, and writing it would break the bundle.
    """
    if any((p / MANIFEST_JSON).is_file() and (p / SHA256SUMS).is_file() for p in out.resolve().parents):
        raise ConfigurationError(
            "out-in-bundle", f"{out} lies in a bundle.", "Name another place with --out."
        )


class EvidenceStore:
    """An append-only folder of evidence: what `add` has returned survives a crash or an interrupt.

    Args:
        folder: Made where it is missing.
        replace: Whether an earlier bundle is removed.
        kept: The records that the folder holds already, all of them and in order, where it is taken up again.
        scrubber: Knows what names this machine, its user or a secret; by default all that is known of it here. A
            record that was not scrubbed is refused.

    Raises:
        ConfigurationError: the folder lies in a bundle, holds something already and `replace` is off, or holds files of
            others.
    """

    def __init__(
        self,
        folder: Path,
        *,
        replace: bool = False,
        kept: Sequence[AnyEvidence] | None = None,
        scrubber: Scrubber | None = None,
    ) -> None:
        require_outside(folder)
        if folder.exists() and not folder.is_dir():
            raise ConfigurationError(
                "out-not-a-folder", f"{folder} is a file.", "Give another place with --out."
            )
        if replace and folder.is_dir():
            remove_bundle(folder)
        if kept is None and folder.is_dir() and any(folder.iterdir()):
            raise ConfigurationError(
                "out-not-empty",
                f"{folder} is not empty.",
                "Give a new folder with --out, or remove this one.",
            )
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self._scrubber = scrubber or this_machine()
        self._records: dict[str, AnyEvidence] = {record.id: record for record in kept or ()}

    @property
    def records(self) -> tuple[AnyEvidence, ...]:
        """What was added, in order."""
        return tuple(self._records.values())

    def add(self, record: AnyEvidence) -> str:
        """The record's id, once the record is on disk. A record that is there already keeps its place.

        Raises:
            BundleError: it holds what must not travel, or cannot be read back.
        """
        evidence_id = record.id
        if evidence_id not in self._records:
            path = evidence_path(len(self._records), evidence_id)
            if self._scrubber.record(record) is not record:
                raise names_machine(path)
            data = render_evidence_json(record)
            # What cannot be read back must not be taken for kept.
            parse_evidence(data, path)
            write_atomic(self.folder / path, data)
            self._records[evidence_id] = record
        return evidence_id

    def add_raw(self, name: str, data: bytes) -> str:
        """Path in the bundle of a further file, for instance a server's log, once it is on disk."""
        write_atomic(self.raw_path(name), data)
        return f"{RAW_FOLDER}/{name}"

    def raw_path(self, name: str) -> Path:
        """Where a process may write a raw file by itself; sealing scrubs and takes what lies there."""
        if name.endswith(UNFINISHED_SUFFIX):
            message = f"{name!r} looks like a file that is still being written."
            raise BundleError("bundle-bad-path", "", message, f"Give it a name without {UNFINISHED_SUFFIX}.")
        if self._scrubber.text(name) != name:
            raise names_machine(RAW_FOLDER)
        path = self.folder / check_relative_path(f"{RAW_FOLDER}/{name}")
        path.parent.mkdir(parents=True, exist_ok=True)
        return path


def seal(
    folder: Path,
    *,
    manifest_text: str,
    policy_text: str,
    judgement: Judgement,
    render_report: RenderReport,
    scrubber: Scrubber | None = None,
) -> None:
    """Add judgement, report and digests to the evidence in `folder`; the same evidence gives the same bytes.

    A folder is sealed once `sha256sums.txt` is there, which is written last. Raw files are scrubbed before, since
    processes wrote them by themselves; `scrubber` as in `EvidenceStore`.

    Raises:
        BundleError: the evidence cannot be read back, the judgement does not rest on it, or the change names this
            machine.
        ConfigurationError: the folder is sealed already.
    """
    if (folder / SHA256SUMS).exists():
        raise ConfigurationError("bundle-sealed", f"{folder} is sealed.", "Write to a new folder.")
    written = {
        SUBJECT_MANIFEST: manifest_text.encode("utf-8"),
        POLICY: policy_text.encode("utf-8"),
        CHANGE: render_pretty_json(judgement.change),
        JUDGEMENT: render_pretty_json(judgement),
    }
    scrubber = scrubber or this_machine()
    if scrubber.touches(judgement.change.model_dump_json()):
        raise names_machine(CHANGE)
    _scrub_raw_files(folder, scrubber)
    bundle = _gather(folder, written)
    for path, data in written.items():
        write_atomic(folder / path, data)
    report = render_report(bundle).encode("utf-8")
    write_atomic(folder / REPORT, report)
    crate = render_ro_crate(bundle)
    write_atomic(folder / RO_CRATE, crate)
    files = {**bundle.contents, REPORT: digest_bytes(report), RO_CRATE: digest_bytes(crate)}
    manifest = render_pretty_json(
        BundleManifest(
            harness_version=judgement.harness_version,
            change=judgement.change,
            content_sha256=bundle.content_sha256,
            files={path: files[path] for path in sorted(files)},
        )
    )
    write_atomic(folder / MANIFEST_JSON, manifest)
    sums = {path: digest.sha256 for path, digest in files.items()}
    sums[MANIFEST_JSON] = digest_bytes(manifest).sha256
    write_atomic(folder / SHA256SUMS, render_sha256sums(sums))


def remove_bundle(folder: Path) -> None:
    """Delete an earlier bundle, whole or partial, and nothing else.

    Raises:
        ConfigurationError: the folder holds a file that no bundle has; nothing is deleted then.
    """
    if any(folder.iterdir()) and not any(
        (folder / name).exists() for name in (EVIDENCE_FOLDER, MANIFEST_JSON)
    ):
        raise ConfigurationError(
            "out-not-a-bundle",
            f"{folder} is not empty and holds no earlier bundle, so nothing in it was replaced.",
            "Give a new folder with --out.",
        )
    entries = sorted(folder.rglob("*"), reverse=True)
    for entry in entries:
        relative = entry.relative_to(folder).as_posix().removesuffix(UNFINISHED_SUFFIX)
        ours = (
            relative in (MANIFEST_JSON, SHA256SUMS, EVIDENCE_FOLDER, RAW_FOLDER, ATTESTATION_FOLDER)
            or is_bundle_path(relative)
            or is_attestation_path(relative)
        )
        if not ours or entry.is_symlink():
            raise ConfigurationError(
                "out-not-a-bundle",
                f"{folder} holds {relative!r}, which is not part of a bundle, so nothing in it was replaced.",
                "Give a new folder with --out.",
            )
    for entry in entries:
        if entry.is_dir():
            entry.rmdir()
        else:
            entry.unlink()


def _scrub_raw_files(folder: Path, scrubber: Scrubber) -> None:
    for path, file in list_files(folder).items():
        if path.startswith(f"{RAW_FOLDER}/") and not path.endswith(UNFINISHED_SUFFIX):
            text = read_file(file, path).decode("utf-8", "surrogateescape")
            if (scrubbed := scrubber.text(text)) != text:
                write_atomic(file, scrubbed.encode("utf-8", "surrogateescape"))


def _gather(folder: Path, written: dict[str, bytes]) -> Bundle:
    """The bundle that the folder will hold: its evidence and raw files, and what is about to be written."""
    evidence: dict[str, bytes] = {}
    contents = {path: digest_bytes(data) for path, data in written.items()}
    for path, file in list_files(folder).items():
        if path.endswith(UNFINISHED_SUFFIX):
            file.unlink()
        elif path.startswith(f"{EVIDENCE_FOLDER}/"):
            evidence[path] = read_file(file, path)
            contents[path] = digest_bytes(evidence[path])
        elif path.startswith(f"{RAW_FOLDER}/"):
            contents[path] = digest_file(file, path)
        elif path not in (*SINGLE_FILES, MANIFEST_JSON):
            message = f"{folder} holds {path!r}, which is not part of a bundle."
            raise ConfigurationError("out-not-a-bundle", message, "Remove it.")
    contents = dict(sorted(contents.items()))
    bundle = Bundle(
        **parse_single_files(written),
        evidence=parse_ordered_evidence(evidence),
        contents=contents,
        content_sha256=content_digest(contents),
    )
    check_consistency(bundle)
    return bundle
