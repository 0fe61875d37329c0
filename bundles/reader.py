"""Reading a bundle: nothing is believed that its digests do not cover."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from bundles.contents import (
    Bundle,
    EvidenceFile,
    check_consistency,
    parse_ordered_evidence,
    parse_record,
    parse_single_files,
)
from bundles.error import BundleError
from bundles.files import digest_bytes, digest_file, find_empty_folders, list_files, read_file
from bundles.json_text import render_pretty_json
from bundles.layout import (
    DERIVED,
    EVIDENCE_FOLDER,
    MANIFEST_JSON,
    RAW_FOLDER,
    SHA256SUMS,
    SINGLE_FILES,
    UNFINISHED_SUFFIX,
    BundleManifest,
    FileDigest,
    check_relative_path,
    content_digest,
    is_attestation_path,
    is_bundle_path,
    render_sha256sums,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartialBundle:
    """What a run left that did not finish: evidence without a judgement."""

    evidence: tuple[EvidenceFile, ...]
    message: str
    """Says that the run did not finish and what is there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Folder:
    """A bundle folder's bytes, read once: what is hashed is what is parsed."""

    data: dict[str, bytes]
    """By path; raw files are left on disk."""
    digests: dict[str, FileDigest]
    """By path, the attestations left out."""
    attestations: dict[str, bytes]
    """By path: signed statements, which no list of digests names."""
    empty_folders: tuple[str, ...] = ()
    """Nor does any list name a folder."""


def read_bundle(folder: Path) -> Bundle:
    """The bundle in `folder`, when every digest holds and every file parses.

    Raises:
        BundleError: the first thing that is wrong, and how many more files are.
    """
    loaded = load_folder(folder)
    problems = find_digest_problems(loaded)
    if problems:
        first, more = problems[0], len(problems) - 1
        message = first.problem + (
            f" {more} more of its files {'differ' if more > 1 else 'differs'}." if more else ""
        )
        raise BundleError(first.slug, first.where, message, first.advice)
    return parse_folder(loaded)


def read_partial(folder: Path) -> PartialBundle:
    """The evidence of a run that did not finish.

    Raises:
        BundleError: the folder is sealed, or its evidence cannot be read.
    """
    files = list_files(folder)
    if SHA256SUMS in files:
        raise BundleError("bundle-sealed", "", f"{folder} is a finished bundle.", "Read it as one.")
    evidence = parse_ordered_evidence({p: read_file(files[p], p) for p in _finished_evidence(files)})
    message = f"The run did not finish: {len(evidence)} evidence records are kept, nothing was judged."
    return PartialBundle(evidence=evidence, message=message)


def load_folder(folder: Path) -> Folder:
    """Bytes and digests of a sealed folder.

    Raises:
        BundleError: the folder is not there, holds links, or was never sealed.
    """
    files = list_files(folder)
    if SHA256SUMS not in files and MANIFEST_JSON not in files:
        kept = len(_finished_evidence(files))
        message = f"It is not sealed: the run did not finish. {kept} evidence records, no judgement."
        advice = (
            "Run `fasttrack validate` again; the evidence that is there can be read, but decides nothing."
        )
        raise BundleError("bundle-unsealed", "", message, advice)
    empty_folders = find_empty_folders(folder, files)
    attestations = {path: read_file(file, path) for path, file in files.items() if is_attestation_path(path)}
    files = {path: file for path, file in files.items() if path not in attestations}
    in_memory = [path for path in files if not path.startswith(f"{RAW_FOLDER}/")]
    data = {path: read_file(files[path], path) for path in in_memory}
    digests = {
        path: digest_bytes(data[path]) if path in data else digest_file(file, path)
        for path, file in files.items()
    }
    return Folder(data=data, digests=digests, attestations=attestations, empty_folders=empty_folders)


def parse_folder(folder: Folder) -> Bundle:
    """What the files say, whether or not their digests hold.

    Raises:
        BundleError: a file is missing or does not parse, or the files contradict each other.
    """
    for path in SINGLE_FILES:
        if path not in folder.data:
            raise _missing(path)
    contents = {
        path: d for path, d in folder.digests.items() if path not in (*DERIVED, MANIFEST_JSON, SHA256SUMS)
    }
    evidence = {path: data for path, data in folder.data.items() if path.startswith(f"{EVIDENCE_FOLDER}/")}
    bundle = Bundle(
        **parse_single_files(folder.data),
        evidence=parse_ordered_evidence(evidence),
        contents=contents,
        content_sha256=content_digest(contents),
    )
    check_consistency(bundle)
    return bundle


def find_digest_problems(folder: Folder) -> list[BundleError]:
    """Every way in which files, `manifest.json` and `sha256sums.txt` disagree; empty when they agree."""
    missing = [path for path in (MANIFEST_JSON, SHA256SUMS) if path not in folder.data]
    if missing:
        return [_missing(path) for path in missing]
    try:
        manifest = parse_record(BundleManifest, folder.data[MANIFEST_JSON], MANIFEST_JSON)
        for path in manifest.files:
            check_relative_path(path)
    except BundleError as error:
        return [error]
    extra_folders = [
        BundleError(
            "bundle-extra-folder", path, "a folder without files is no part of a bundle.", "Remove it."
        )
        for path in folder.empty_folders
    ]
    return [*(_compare_files(folder, manifest) or _compare_lists(folder, manifest)), *extra_folders]


def _finished_evidence(paths: Iterable[str]) -> list[str]:
    return [p for p in paths if p.startswith(f"{EVIDENCE_FOLDER}/") and not p.endswith(UNFINISHED_SUFFIX)]


def _missing(path: str) -> BundleError:
    return BundleError("bundle-missing-file", path, "the file is missing.")


def _compare_files(folder: Folder, manifest: BundleManifest) -> list[BundleError]:
    listed = manifest.files
    present = {path: d for path, d in folder.digests.items() if path not in (MANIFEST_JSON, SHA256SUMS)}
    problems = []
    for path in sorted({*present, *listed}):
        if path not in present:
            problems.append(_missing(path))
        elif path not in listed or not is_bundle_path(path):
            former = [p for p in listed if p not in present and listed[p] == present[path]]
            slug = "bundle-renamed-file" if former else "bundle-extra-file"
            message = f"it is {former[0]} under another name." if former else "not a file of this bundle."
            problems.append(BundleError(slug, path, message, "Remove it, or get the bundle again."))
        elif present[path] != listed[path]:
            was, now = listed[path], present[path]
            message = (
                f"the file was altered: {now.size} bytes with sha256 {now.sha256},"
                f" listed are {was.size} bytes with sha256 {was.sha256}."
            )
            problems.append(BundleError("bundle-altered-file", path, message))
    return problems


def _compare_lists(folder: Folder, manifest: BundleManifest) -> list[BundleError]:
    sums = {path: digest.sha256 for path, digest in manifest.files.items()}
    sums[MANIFEST_JSON] = folder.digests[MANIFEST_JSON].sha256
    if folder.data[MANIFEST_JSON] != render_pretty_json(manifest):
        message = "it was not written by fasttrack: its content is right, its bytes are not."
        return [BundleError("file-not-canonical", MANIFEST_JSON, message)]
    if folder.data[SHA256SUMS] != render_sha256sums(sums):
        message = "it does not list what manifest.json lists: one of the two was altered."
        return [BundleError("bundle-altered-file", SHA256SUMS, message)]
    contents = {path: digest for path, digest in manifest.files.items() if path not in DERIVED}
    if manifest.content_sha256 != content_digest(contents):
        message = "content_sha256 is not the digest of the files that are listed."
        return [BundleError("bundle-altered-file", MANIFEST_JSON, message)]
    return []
