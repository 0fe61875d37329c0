"""What a bundle says: its files parsed and held together."""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import ValidationError

from bundles.error import BundleError
from bundles.json_text import parse_json
from bundles.layout import (
    CHANGE,
    EVIDENCE_FOLDER,
    JUDGEMENT,
    POLICY,
    SUBJECT_MANIFEST,
    FileDigest,
    parse_evidence_path,
)
from bundles.readings import check_readings
from bundles.stored_form import StoredForm, begin_forms, read_form, refuse_unknown_version
from harness.model.change import Change
from harness.model.evidence import (
    EVIDENCE_ADAPTER,
    AnyEvidence,
    EnvironmentEvidence,
    KernelTestsEvidence,
    SweepEvidence,
)
from harness.model.judgement import Judgement
from harness.model.manifest import Manifest
from harness.model.policy import Policy
from harness.model.record import Record

HEAD_CHARACTERS = 4096
R = TypeVar("R", bound=Record)


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceFile:
    """One evidence record, where it lies, and the first characters of its file."""

    path: str
    record: AnyEvidence
    head: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Bundle:
    """All that a report is made from."""

    manifest_text: str
    policy_text: str
    manifest: Manifest
    policy: Policy
    change: Change
    evidence: tuple[EvidenceFile, ...]
    judgement: Judgement
    contents: Mapping[str, FileDigest]
    """By path, sorted: every file but the derived ones, `manifest.json` and `sha256sums.txt`."""
    content_sha256: str

    @property
    def records(self) -> tuple[AnyEvidence, ...]:
        """The evidence in the order in which it was recorded."""
        return tuple(file.record for file in self.evidence)


def parse_record(model: type[R], data: bytes, path: str) -> R:
    """A record from the bytes of its JSON file.

    Raises:
        BundleError: not strict JSON, an unknown schema version, or not of this type.
    """
    value = parse_json(data, path)
    refuse_unknown_version(value, path)
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise _not_the_type(path, model.__name__, error) from error


def parse_evidence(data: bytes, path: str) -> EvidenceFile:
    """An evidence record whose content is what its file name says, in the bytes in which the writer puts it.

    The name holds for the content as stored: fields that a later version added do not change it.

    Raises:
        BundleError: not strict JSON, an unknown kind or schema version, another content than the id names, or the
            right content in other bytes.
    """
    return _evidence_file(data, path, _typed(data, path), read_form(data, path))


def _typed(data: bytes, path: str) -> AnyEvidence | BundleError:
    """The record, or why the content is none."""
    try:
        return EVIDENCE_ADAPTER.validate_json(data, strict=True)
    except ValidationError as error:
        return _not_the_type(path, "an evidence record", error)


def _evidence_file(
    data: bytes, path: str, record: AnyEvidence | BundleError, form: StoredForm
) -> EvidenceFile:
    """Record and form held against the name of the file."""
    _, evidence_id = parse_evidence_path(path)
    if isinstance(record, BundleError):
        raise record
    content_id = f"{record.kind}-{form.canonical_sha256[:16]}"
    if content_id != evidence_id:
        raise BundleError(
            "evidence-id-mismatch", path, f"the content is that of {content_id}, not of {evidence_id}."
        )
    if not form.is_written:
        message = "the file was not written by fasttrack: its content is right, its bytes are not."
        raise BundleError("file-not-canonical", path, message)
    # Pydantic keeps a cached property beside the fields.
    record.__dict__["id"] = evidence_id
    return EvidenceFile(path=path, record=record, head=head_of(data))


def head_of(data: bytes) -> str:
    """The first characters of a file."""
    return data[: 4 * HEAD_CHARACTERS].decode("utf-8", "ignore")[:HEAD_CHARACTERS]


def parse_ordered_evidence(files: Mapping[str, bytes]) -> tuple[EvidenceFile, ...]:
    """The evidence in recorded order, from the bytes of its files by path.

    Raises:
        BundleError: a record cannot be read, or a place in the order is empty or taken twice.
    """
    ordered = sorted(files, key=lambda path: (parse_evidence_path(path)[0], path))
    for expected, path in enumerate(ordered):
        if parse_evidence_path(path)[0] != expected:
            message = (
                f"a record with index {expected:04d} was expected here; one is missing or numbered twice."
            )
            raise BundleError("evidence-order", path, message)
    finish = begin_forms(files)
    records = {path: _typed(files[path], path) for path in ordered}
    forms = finish()
    return tuple(
        _evidence_file(files[path], path, records[path], forms.get(path) or read_form(files[path], path))
        for path in ordered
    )


def parse_toml(model: type[R], data: bytes, path: str) -> tuple[str, R]:
    """Text and record of a TOML file.

    Raises:
        BundleError: not UTF-8, not TOML, or not of this type.
    """
    try:
        text = data.decode("utf-8")
        value = tomllib.loads(text)
        refuse_unknown_version(value, path)
        return text, model.model_validate(value)
    except UnicodeDecodeError as error:
        raise BundleError("evidence-not-utf8", path, f"byte {error.start} is not UTF-8.") from error
    except tomllib.TOMLDecodeError as error:
        raise BundleError("evidence-malformed-toml", path, f"{error}.") from error
    except RecursionError as error:
        raise BundleError("evidence-malformed-toml", path, "nested too deep.") from error
    except ValidationError as error:
        raise _not_the_type(path, model.__name__, error) from error


def parse_single_files(files: Mapping[str, bytes]) -> dict[str, Any]:
    """The four files that a bundle holds once, as keyword arguments of `Bundle`."""
    manifest_text, manifest = parse_toml(Manifest, files[SUBJECT_MANIFEST], SUBJECT_MANIFEST)
    policy_text, policy = parse_toml(Policy, files[POLICY], POLICY)
    return {
        "manifest_text": manifest_text,
        "manifest": manifest,
        "policy_text": policy_text,
        "policy": policy,
        "change": parse_record(Change, files[CHANGE], CHANGE),
        "judgement": parse_record(Judgement, files[JUDGEMENT], JUDGEMENT),
    }


def check_consistency(bundle: Bundle) -> None:
    """Evidence is of the bundle's change, findings rest on it, and summaries count the findings that are there.

    Raises:
        BundleError: with the first contradiction.
    """
    if bundle.change != bundle.judgement.change:
        raise _contradiction(CHANGE, "it is not the change in judgement.json")
    known = {record.id for record in bundle.records}
    if len(known) != len(bundle.evidence):
        raise _contradiction(EVIDENCE_FOLDER, "one record is there twice")
    check_readings(bundle.records, bundle.change)
    _check_machines(bundle.records)
    counts = Counter(finding.check for finding in bundle.judgement.findings)
    for summary in bundle.judgement.checks:
        if summary.num_findings != counts.pop(summary.check, 0):
            raise _contradiction(JUDGEMENT, f"it counts the findings of {summary.check!r} wrongly")
    if counts:
        raise _contradiction(JUDGEMENT, f"it has findings of {min(counts)!r}, which is not among its checks")
    for finding in bundle.judgement.findings:
        for evidence_id in finding.evidence:
            if evidence_id not in known:
                message = (
                    f"a finding of {finding.check!r} rests on {evidence_id!r}, which is not in the bundle."
                )
                raise BundleError("evidence-not-in-bundle", JUDGEMENT, message)


def _check_machines(records: Sequence[AnyEvidence]) -> None:
    """Every machine that a record names is described, and so is the fasttrack that judged."""
    described = {record.machine for record in records if isinstance(record, EnvironmentEvidence)}
    # The kernels' tests and sweeps are recorded elsewhere: their record describes its machine itself.
    elsewhere = (KernelTestsEvidence, SweepEvidence)
    named = {r.hardware for r in records if r.hardware and not isinstance(r, elsewhere)}
    if described and named <= described:
        return
    what = f"what {min(named - described)!r} is" if described else "on what machine and by which fasttrack"
    message = f"no record says {what}{'' if described else ' it was made'}."
    raise BundleError("bundle-unknown-machine", EVIDENCE_FOLDER, message, "Make the bundle again.")


def _contradiction(where: str, message: str) -> BundleError:
    return BundleError("bundle-contradiction", where, f"the bundle contradicts itself: {message}.")


def _not_the_type(path: str, wanted: str, error: ValidationError) -> BundleError:
    fields = [f"{'/'.join(str(part) for part in e['loc']) or '(whole)'}: {e['msg']}" for e in error.errors()]
    shown = "; ".join(fields[:5]) + (f"; and {len(fields) - 5} more" if len(fields) > 5 else "")
    return BundleError("evidence-wrong-type", path, f"not {wanted}: {shown}.")
