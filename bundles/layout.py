"""The files of a bundle: their names, and the two lists that hold their digests.

`manifest.json` lists every file but itself and `sha256sums.txt`; `sha256sums.txt` lists every file but itself, in
the form that `sha256sum -c` reads. Each is a function of the other, so neither changes alone.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal

from bundles.error import BundleError
from harness.model.change import Change
from harness.model.record import Record, digest_of

MANIFEST_JSON = "manifest.json"
SHA256SUMS = "sha256sums.txt"
SUBJECT_MANIFEST = "fasttrack.toml"
POLICY = "policy.toml"
CHANGE = "change.json"
JUDGEMENT = "judgement.json"
REPORT = "report.html"
RO_CRATE = "ro-crate-metadata.json"
EVIDENCE_FOLDER = "evidence"
RAW_FOLDER = "raw"
ATTESTATION_FOLDER = "attestations"
"""Signed statements about the finished bundle: added later, so that no list of digests names them."""
UNFINISHED_SUFFIX = ".part"
"""Of a file that is being written; never part of a bundle."""

SINGLE_FILES = (SUBJECT_MANIFEST, POLICY, CHANGE, JUDGEMENT, REPORT, RO_CRATE)
DERIVED = (REPORT, RO_CRATE)
"""What is made from the rest, and made again when a bundle is verified."""
_PATH = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*(?:/[A-Za-z0-9_][A-Za-z0-9._-]*)*")
_ATTESTATION_NAME = re.compile(r"attestations/[A-Za-z0-9_-]+\.(?:intoto\.jsonl|sigstore\.json)")
_EVIDENCE_NAME = re.compile(r"evidence/([0-9]{4,})-([a-z_]+-[0-9a-f]{16})\.json")


class FileDigest(Record):
    """Size in bytes and sha256 of one file."""

    sha256: str
    size: int


class BundleManifest(Record):
    """`manifest.json`: what the bundle is about and the digest of each of its files."""

    schema_version: Literal[1] = 1
    kind: Literal["fasttrack.bundle"] = "fasttrack.bundle"
    bundle_version: Literal[1] = 1
    """Of the folder's layout."""
    harness_version: str
    change: Change
    content_sha256: str
    """Names the bundle: the digest over the digests of all that the report is made from."""
    files: dict[str, FileDigest]


def content_digest(contents: Mapping[str, FileDigest]) -> str:
    """The sha256 that names a bundle: over path, size and digest of all but the derived files and the two lists."""
    return digest_of({path: contents[path].model_dump() for path in sorted(contents)})


def evidence_path(index: int, evidence_id: str) -> str:
    """Where the record with this place in the order lies."""
    return f"{EVIDENCE_FOLDER}/{index:04d}-{evidence_id}.json"


def parse_evidence_path(path: str) -> tuple[int, str]:
    """Place in the order and evidence id, as a path states them.

    Raises:
        BundleError: the path is not one that `evidence_path` makes.
    """
    found = _EVIDENCE_NAME.fullmatch(path)
    if found is None or evidence_path(int(found[1]), found[2]) != path:
        advice = "Evidence files are named evidence/<index>-<kind>-<16 hex digits>.json."
        raise BundleError("bundle-bad-path", "", f"{path!r} is not the name of an evidence file.", advice)
    return int(found[1]), found[2]


def check_relative_path(path: str) -> str:
    """`path` itself, when it is relative, POSIX, plain ASCII and stays inside the bundle.

    Raises:
        BundleError: it is absolute, climbs with `..`, or holds any other character.
    """
    if not _PATH.fullmatch(path) or len(path) > 240:
        advice = "Paths are relative, of letters, digits, '.', '_', '-' and forward slashes; no part starts with '.'."
        raise BundleError("bundle-bad-path", "", f"{path!r} is not a path that a bundle may hold.", advice)
    return path


def is_bundle_path(path: str) -> bool:
    """Whether a bundle of this version has a place for the file."""
    if path.startswith(f"{RAW_FOLDER}/"):
        return not path.endswith(UNFINISHED_SUFFIX)
    return path in SINGLE_FILES or _EVIDENCE_NAME.fullmatch(path) is not None


def is_attestation_path(path: str) -> bool:
    """Whether the file is a place for signed statements."""
    return _ATTESTATION_NAME.fullmatch(path) is not None


def render_sha256sums(files: Mapping[str, str]) -> bytes:
    """The text of `sha256sums.txt` for paths and their sha256, sorted by path."""
    return "".join(f"{files[path]}  {path}\n" for path in sorted(files)).encode("ascii")
