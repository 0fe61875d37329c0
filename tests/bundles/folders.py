"""What an attacker can do to a bundle folder, for the tests."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from bundles.files import digest_file, list_files
from bundles.json_text import render_pretty_json
from bundles.layout import DERIVED, MANIFEST_JSON, SHA256SUMS, FileDigest, content_digest, render_sha256sums


def copy_of(folder: Path, place: Path) -> Path:
    """A fresh copy of a bundle."""
    copy = place / "copy"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(folder, copy)
    return copy


def rehash(folder: Path) -> None:
    """Write both lists of digests anew, so that they cover whatever the files hold now."""
    files = {
        path: file for path, file in list_files(folder).items() if path not in (MANIFEST_JSON, SHA256SUMS)
    }
    digests: dict[str, FileDigest] = {path: digest_file(file, path) for path, file in files.items()}
    manifest = json.loads((folder / MANIFEST_JSON).read_bytes())
    manifest["files"] = {path: digest.model_dump() for path, digest in digests.items()}
    manifest["content_sha256"] = content_digest({p: d for p, d in digests.items() if p not in DERIVED})
    (folder / MANIFEST_JSON).write_bytes(render_pretty_json(manifest))
    sums = {path: digest.sha256 for path, digest in digests.items()}
    sums[MANIFEST_JSON] = digest_file(folder / MANIFEST_JSON, MANIFEST_JSON).sha256
    (folder / SHA256SUMS).write_bytes(render_sha256sums(sums))


def edit(folder: Path, path: str, old: str, new: str) -> None:
    """Replace text that must be there."""
    text = (folder / path).read_text("utf-8")
    assert old in text
    (folder / path).write_text(text.replace(old, new, 1), "utf-8")


def first_evidence(folder: Path, kind: str) -> str:
    """Path in the bundle of the first record of a kind."""
    return next(p for p in list_files(folder) if p.startswith("evidence/") and f"-{kind}-" in p)
