"""A bundle as one file: a gzipped tar that is the same for the same bundle, and is unpacked without trust.

What names a bundle are the digests of its files, never those of the archive: another version of zlib may compress
differently.
"""

from __future__ import annotations

import gzip
import tarfile
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedIOBase, BytesIO
from pathlib import Path, PurePosixPath
from typing import BinaryIO, Self

from bundles.error import BundleError
from bundles.files import Seen, check_limits, list_files, read_file, unreadable, write_atomic

SUFFIX = ".tar.gz"
_PIECE_BYTES = 1 << 20
_EXTENSIONS = (
    tarfile.XHDTYPE,
    tarfile.XGLTYPE,
    tarfile.SOLARIS_XHDTYPE,
    tarfile.GNUTYPE_LONGNAME,
    tarfile.GNUTYPE_LONGLINK,
)
_MAX_HEADER_BYTES = 1 << 16
_DAMAGED = (
    *(tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile),
    # What tarfile lets through: a header behind a header costs it a frame, and it reads numbers of any length.
    *(RecursionError, ValueError, ArithmeticError, LookupError),
)


def pack(folder: Path, archive: Path) -> None:
    """Writes every file of `folder` into `archive`: sorted, without times, owners or permissions.

    Raises:
        BundleError: the folder holds what a bundle may not.
    """
    buffer = BytesIO()
    with (
        gzip.GzipFile(filename="", mode="wb", fileobj=buffer, mtime=0) as compressed,
        tarfile.open(fileobj=compressed, mode="w", format=tarfile.USTAR_FORMAT) as tar,
    ):
        for path, file in list_files(folder).items():
            data = read_file(file, path)
            member = tarfile.TarInfo(path)
            member.size = len(data)
            tar.addfile(member, BytesIO(data))
    write_atomic(archive, buffer.getvalue())


@contextmanager
def opened(bundle: Path) -> Iterator[Path]:
    """The bundle's folder: `bundle` itself, or a temporary one where `bundle` is an archive.

    Raises:
        BundleError: the archive is damaged, or holds anything but plain files in their places.
    """
    if not bundle.is_file():
        yield bundle
        return
    with tempfile.TemporaryDirectory(prefix="fasttrack-bundle-") as folder:
        unpack(bundle, Path(folder))
        yield Path(folder)


def unpack(archive: Path, folder: Path) -> None:
    """Writes the files of an archive below `folder`.

    Every member is checked before a byte of it is written, and what is unpacked is counted as it comes, so that an
    archive which claims little and holds much ends at the limit.

    Raises:
        BundleError: truncated or not a gzipped tar; a link, a device, a path that leaves the folder, a name twice, too
            many files, or too much data.
    """
    try:
        with gzip.open(archive) as stream:
            counted = _Counted(stream)
            with tarfile.open(fileobj=counted, mode="r|", bufsize=tarfile.BLOCKSIZE, tarinfo=_Member) as tar:
                _unpack_members(tar, folder)
            # Read block by block, so that nothing behind the end is in a buffer.
            _refuse_rest(counted)
    except _DAMAGED as error:
        message = f"{archive.name} is damaged or not a gzipped tar: {error}."
        raise BundleError("bundle-bad-archive", "", message) from error
    except OSError as error:
        raise unreadable(archive.name, error) from error


class _Member(tarfile.TarInfo):
    """A header; one that goes on behind itself, as for long names, is read into memory whole and must be small."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        """As the base class; raises `tarfile.ReadError` for a long one."""
        member = super().frombuf(buf, encoding, errors)
        if member.type in _EXTENSIONS and member.size > _MAX_HEADER_BYTES:
            raise tarfile.ReadError(f"a header of {member.size} bytes")
        return member


class _Counted(BufferedIOBase):
    """A stream that ends in an error at the limit: a header may claim any size as well."""

    def __init__(self, stream: gzip.GzipFile) -> None:
        super().__init__()
        self._stream = stream
        self._num_bytes = 0

    def read(self, size: int | None = -1, /) -> bytes:
        data = self._stream.read(size)
        self._num_bytes += len(data)
        check_limits(0, self._num_bytes)
        return data


def _unpack_members(tar: tarfile.TarFile, folder: Path) -> None:
    seen = Seen()
    num_files, folders = 0, {PurePosixPath()}
    for member in tar:
        if not member.isreg() or member.issparse():
            message = f"{member.name!r} is not a plain file."
            raise BundleError("bundle-link", "", message, "A bundle holds plain files only: pack it again.")
        seen.add(member.name, member.size)
        num_files += 1
        # A header names its folders without a member of their own.
        folders.update(PurePosixPath(member.name).parents)
        check_limits(num_files + len(folders) - 1, 0)
        target = folder / member.name
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            with target.open("xb") as file:
                _copy(tar, member, file)
        except (FileExistsError, NotADirectoryError, IsADirectoryError) as error:
            raise BundleError(
                "bundle-bad-archive", member.name, "it is a file and a folder at once."
            ) from error
    if not num_files:
        raise BundleError("bundle-bad-archive", "", "the archive holds no file.")


def _copy(tar: tarfile.TarFile, member: tarfile.TarInfo, file: BinaryIO) -> None:
    content = tar.extractfile(member)
    num_bytes = 0
    while content is not None and (piece := content.read(_PIECE_BYTES)):
        num_bytes += file.write(piece)
    if num_bytes != member.size:
        raise BundleError("bundle-bad-archive", member.name, "the archive ends in the middle of it.")


def _refuse_rest(stream: BufferedIOBase) -> None:
    """A tar ends in zeros: anything behind them would travel unseen."""
    while piece := stream.read(_PIECE_BYTES):
        if piece.strip(b"\0"):
            raise BundleError("bundle-bad-archive", "", "there is something behind the archive's end.")
