"""Files of a bundle folder on disk: regular files only, never through a link."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Collection
from pathlib import Path, PurePosixPath

from bundles.error import BundleError
from bundles.layout import RAW_FOLDER, UNFINISHED_SUFFIX, FileDigest, check_relative_path

_CHUNK_BYTES = 1 << 20
MAX_FILES = 20_000
MAX_TOTAL_BYTES = 1 << 30
"""Of all files of a bundle together: far above any real one, and bearable for whoever reads a hostile one."""
MAX_PARSED_BYTES = 1 << 28
"""Of all files that are read into memory, where they take several times as much; raw files are not."""


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
    seen = Seen()
    for parent, folders, names in os.walk(folder, onerror=_refuse_unreadable):
        for name in [*folders, *names]:
            path = Path(parent, name)
            relative = path.relative_to(folder).as_posix()
            status = path.lstat()
            if stat.S_ISDIR(status.st_mode):
                seen.add(relative, 0)
            elif stat.S_ISREG(status.st_mode):
                seen.add(relative, status.st_size)
                found[relative] = path
            else:
                what = "a symbolic link" if stat.S_ISLNK(status.st_mode) else "not a regular file"
                advice = "A bundle holds plain files only: copy it again."
                raise BundleError("bundle-link", "", f"{relative!r} is {what}.", advice)
    return dict(sorted(found.items()))


def find_empty_folders(folder: Path, files: Collection[str]) -> tuple[str, ...]:
    """The folders below `folder` that hold none of the files: no list of digests names a folder."""
    holding = {str(parent) for path in files for parent in PurePosixPath(path).parents}
    found = [
        Path(parent, name).relative_to(folder).as_posix()
        for parent, folders, _ in os.walk(folder, onerror=_refuse_unreadable)
        for name in folders
    ]
    return tuple(sorted(set(found) - holding))


class Seen:
    """The names and sizes that a bundle has shown so far; it refuses the first that is too much."""

    def __init__(self) -> None:
        self._names: set[str] = set()
        self._num_bytes = self._num_parsed = 0

    def add(self, path: str, num_bytes: int) -> None:
        """One more file, or a folder of no bytes.

        Raises:
            BundleError: a name that a bundle may not hold, or holds already, or that a file system may take for
                another; too many of them, or too large ones.
        """
        name = check_relative_path(path).lower()
        if name in self._names:
            message = "the name occurs twice; upper and lower case are one to some file systems."
            raise BundleError("bundle-name-twice", path, message)
        self._names.add(name)
        self._num_bytes += num_bytes
        self._num_parsed += 0 if path.startswith(f"{RAW_FOLDER}/") else num_bytes
        check_limits(len(self._names), self._num_bytes)
        if self._num_parsed > MAX_PARSED_BYTES:
            message = f"more than {MAX_PARSED_BYTES >> 20} MiB besides raw files."
            raise BundleError("bundle-too-large", "", message)


def check_limits(num_files: int, num_bytes: int) -> None:
    """Nothing, while a bundle may be so large.

    Raises:
        BundleError: it may not.
    """
    if num_files > MAX_FILES:
        raise BundleError("bundle-too-many-files", "", f"more than {MAX_FILES} files and folders.")
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
