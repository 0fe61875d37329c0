"""Files of a bundle folder on disk: regular files only, never through a link."""

from __future__ import annotations

import hashlib
import os
import stat
from pathlib import Path

from bundles.error import BundleError
from bundles.layout import UNFINISHED_SUFFIX, FileDigest, check_relative_path

_CHUNK_BYTES = 1 << 20
MAX_FILES = 20_000
MAX_TOTAL_BYTES = 1 << 30
"""Of all files of a bundle together: far above any real one, and bearable for whoever reads a hostile one."""


def list_files(folder: Path) -> dict[str, Path]:
    """Every file below `folder` by its relative POSIX path, sorted.

    Raises:
        BundleError: no such folder; a symbolic link, a special file, a name that a bundle may not hold, too many files
            or too large ones.
    """
    if not folder.is_dir():
        advice = "Give the folder that `fasttrack validate --out` wrote."
        raise BundleError("bundle-not-found", "", f"{folder} is not a folder.", advice)
    found: dict[str, Path] = {}
    total = 0
    for parent, folders, names in os.walk(folder, onerror=_refuse_unreadable):
        for name in [*folders, *names]:
            path = Path(parent, name)
            relative = path.relative_to(folder).as_posix()
            mode = path.lstat().st_mode
            if stat.S_ISDIR(mode):
                continue
            if not stat.S_ISREG(mode):
                what = "a symbolic link" if stat.S_ISLNK(mode) else "not a regular file"
                advice = "A bundle holds plain files only: copy it again."
                raise BundleError("bundle-link", "", f"{relative!r} is {what}.", advice)
            found[check_relative_path(relative)] = path
            total += path.lstat().st_size
            check_limits(len(found), total)
    return dict(sorted(found.items()))


def check_limits(num_files: int, num_bytes: int) -> None:
    """Nothing, while a bundle may be so large.

    Raises:
        BundleError: it may not.
    """
    if num_files > MAX_FILES:
        raise BundleError("bundle-too-many-files", "", f"more than {MAX_FILES} files.")
    if num_bytes > MAX_TOTAL_BYTES:
        raise BundleError("bundle-too-large", "", f"more than {MAX_TOTAL_BYTES >> 20} MiB.")


def read_file(path: Path, name: str) -> bytes:
    """The bytes of a regular file; a symbolic link is refused even when it came up since the folder was listed.

    Raises:
        BundleError: the file cannot be read.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb") as file:
            return file.read()
    except OSError as error:
        raise unreadable(name, error) from error


def digest_file(path: Path, name: str) -> FileDigest:
    """Size and sha256 of a file, read piece by piece.

    Raises:
        BundleError: the file cannot be read.
    """
    digest, size = hashlib.sha256(), 0
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb") as file:
            while chunk := file.read(_CHUNK_BYTES):
                digest.update(chunk)
                size += len(chunk)
    except OSError as error:
        raise unreadable(name, error) from error
    return FileDigest(sha256=digest.hexdigest(), size=size)


def digest_bytes(data: bytes) -> FileDigest:
    """Size and sha256 of bytes in memory."""
    return FileDigest(sha256=hashlib.sha256(data).hexdigest(), size=len(data))


def write_atomic(path: Path, data: bytes) -> None:
    """`path` holds all of `data` or what it held before, also after a crash or an interrupt."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(path.name + UNFINISHED_SUFFIX)
    try:
        with unfinished.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


def unreadable(name: str, error: OSError) -> BundleError:
    """The typed form of an operating system's refusal."""
    return BundleError("bundle-unreadable", name, f"{error.strerror}.", "Check the folder's permissions.")


def _refuse_unreadable(error: OSError) -> None:
    raise unreadable(str(error.filename), error) from error
