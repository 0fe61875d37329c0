"""Laws of packed bundles: the same bytes for the same bundle, and no archive reaches outside or takes the machine."""

from __future__ import annotations

import gzip
import io
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from bundles import archive, files
from bundles.archive import opened, pack, unpack
from bundles.error import BundleError
from bundles.files import list_files
from bundles.verify import verify_bundle
from tests.bundles.examples import decide_example, evidence_to_reject, plain_report, write_bundle
from tests.bundles.folders import copy_of


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("bundle") / "b"
    write_bundle(place, evidence_to_reject(), plain_report)
    return place


@pytest.fixture
def packed(folder: Path, tmp_path: Path) -> Path:
    pack(folder, tmp_path / "b.tar.gz")
    return tmp_path / "b.tar.gz"


def contents(folder: Path) -> dict[str, bytes]:
    return {path: file.read_bytes() for path, file in list_files(folder).items()}


def make_archive(path: Path, *members: tuple[tarfile.TarInfo, bytes]) -> Path:
    with tarfile.open(path, "w:gz") as tar:
        for member, data in members:
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return path


def plain(name: str, data: bytes = b"{}") -> tuple[tarfile.TarInfo, bytes]:
    return tarfile.TarInfo(name), data


def special(name: str, kind: bytes, target: str = "") -> tuple[tarfile.TarInfo, bytes]:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, target
    return member, b""


def slug_of(act: Callable[[], object]) -> str:
    with pytest.raises(BundleError) as caught:
        act()
    return caught.value.slug


def test_an_archive_holds_what_the_folder_holds(folder: Path, packed: Path, tmp_path: Path) -> None:
    unpack(packed, tmp_path / "out")
    assert contents(tmp_path / "out") == contents(folder)


def test_packing_twice_gives_the_same_bytes(folder: Path, packed: Path, tmp_path: Path) -> None:
    pack(copy_of(folder, tmp_path), tmp_path / "again.tar.gz")
    assert (tmp_path / "again.tar.gz").read_bytes() == packed.read_bytes()


def test_a_packed_bundle_verifies(packed: Path) -> None:
    with opened(packed) as place:
        assert verify_bundle(place, decide_example, plain_report).intact


def test_a_folder_is_opened_where_it_lies(folder: Path) -> None:
    with opened(folder) as place:
        assert place == folder


@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 0.99])
def test_a_truncated_archive_is_refused(packed: Path, tmp_path: Path, share: float) -> None:
    data = packed.read_bytes()
    cut = tmp_path / "cut.tar.gz"
    cut.write_bytes(data[: int(len(data) * share)])
    assert slug_of(lambda: unpack(cut, tmp_path / "out")) == "bundle-bad-archive"


@pytest.mark.parametrize(
    "name", ["../out.json", "/etc/passwd", "a/../../b", "a//b", "./a", ".hidden", "ä", "a\\b", ""]
)
def test_a_path_that_a_bundle_may_not_hold_is_refused(tmp_path: Path, name: str) -> None:
    hostile = make_archive(tmp_path / "h.tar.gz", plain(name))
    assert slug_of(lambda: unpack(hostile, tmp_path / "in" / "side")) == "bundle-bad-path"


@pytest.mark.parametrize("name", ["../out.json", "a/../../b"])
def test_nothing_is_written_outside_the_folder(tmp_path: Path, name: str) -> None:
    hostile = make_archive(tmp_path / "h.tar.gz", plain(name))
    slug_of(lambda: unpack(hostile, tmp_path / "in" / "side"))
    assert [p for p in tmp_path.rglob("*") if p.is_file()] == [hostile]


@pytest.mark.parametrize(
    "kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE, tarfile.DIRTYPE]
)
def test_anything_but_a_plain_file_is_refused(tmp_path: Path, kind: bytes) -> None:
    hostile = make_archive(tmp_path / "h.tar.gz", special("evidence", kind, "/etc"))
    assert slug_of(lambda: unpack(hostile, tmp_path / "out")) == "bundle-link"


def test_a_name_that_occurs_twice_is_refused(tmp_path: Path) -> None:
    hostile = make_archive(tmp_path / "h.tar.gz", plain("a", b"1"), plain("a", b"2"))
    assert slug_of(lambda: unpack(hostile, tmp_path / "out")) == "bundle-name-twice"


def test_a_file_that_is_a_folder_as_well_is_refused(tmp_path: Path) -> None:
    hostile = make_archive(tmp_path / "h.tar.gz", plain("a"), plain("a/b"))
    assert slug_of(lambda: unpack(hostile, tmp_path / "out")) == "bundle-bad-archive"


def test_an_archive_without_files_is_refused(tmp_path: Path) -> None:
    assert (
        slug_of(lambda: unpack(make_archive(tmp_path / "e.tar.gz"), tmp_path / "out")) == "bundle-bad-archive"
    )


def test_a_decompression_bomb_ends_at_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MAX_TOTAL_BYTES", 1 << 20)
    bomb = make_archive(tmp_path / "b.tar.gz", plain("raw/zeros", bytes(4 << 20)))
    assert slug_of(lambda: unpack(bomb, tmp_path / "out")) == "bundle-too-large"
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("body", "number"), [(b"12 a=bcdefg\n", 2000), (b"9" * 5000 + b" a=b\n", 1)], ids=["many", "long number"]
)
def test_headers_that_tarfile_cannot_read_are_damage_and_no_bug(
    tmp_path: Path, body: bytes, number: int
) -> None:
    header = tarfile.TarInfo("pax")
    header.type = tarfile.XHDTYPE
    hostile = make_archive(tmp_path / "h.tar.gz", *[(header, body)] * number, plain("a"))
    assert slug_of(lambda: unpack(hostile, tmp_path / "out")) == "bundle-bad-archive"


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME])
def test_a_header_that_is_read_into_memory_must_be_small(tmp_path: Path, kind: bytes) -> None:
    info = tarfile.TarInfo("././@LongLink")
    info.type, info.size = kind, 1 << 20
    with gzip.open(tmp_path / "b.tar.gz", "wb") as stream:
        stream.write(info.tobuf() + b"x" * info.size)
    with pytest.raises(BundleError, match="a header of 1048576 bytes"):
        unpack(tmp_path / "b.tar.gz", tmp_path / "out")


def test_an_archive_of_nothing_but_zeros_is_refused(tmp_path: Path) -> None:
    zeros = tmp_path / "b.tar.gz"
    zeros.write_bytes(gzip.compress(bytes(1 << 20)))
    assert slug_of(lambda: unpack(zeros, tmp_path / "out")) == "bundle-bad-archive"


def test_very_many_small_files_end_at_the_limit(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "MAX_FILES", 10)
    many = make_archive(tmp_path / "m.tar.gz", *(plain(f"raw/{i}") for i in range(11)))
    assert slug_of(lambda: unpack(many, tmp_path / "out")) == "bundle-too-many-files"
    monkeypatch.setattr(files, "MAX_FILES", 3)
    assert slug_of(lambda: list_files(folder)) == "bundle-too-many-files"


def test_folders_count_before_they_are_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MAX_FILES", 10)
    deep = make_archive(tmp_path / "d.tar.gz", *(plain(f"raw/a{i}/b/c") for i in range(4)))
    assert slug_of(lambda: unpack(deep, tmp_path / "out")) == "bundle-too-many-files"
    assert len(list((tmp_path / "out").rglob("*"))) <= 10


def test_a_folder_that_is_too_large_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MAX_TOTAL_BYTES", 100)
    assert slug_of(lambda: list_files(folder)) == "bundle-too-large"


def test_a_temporary_folder_does_not_outlive_its_use(packed: Path) -> None:
    with archive.opened(packed) as place:
        pass
    assert not place.exists()
