"""Laws of the export: what an arm imports is, byte for byte, what the commit holds, and nothing else."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from harness.facts.git import Repository
from harness.facts.git_export import TreeEntry, export_files
from harness.model.errors import ConfigurationError

if TYPE_CHECKING:
    from conftest import ScratchRepository


def export(scratch: ScratchRepository, folder: Path, *globs: str) -> dict[str, str]:
    repository = Repository(scratch.folder)
    return repository.export(repository.resolve("HEAD"), globs, folder)


def test_files_are_written_as_committed_with_their_digest(scratch: ScratchRepository, tmp_path: Path) -> None:
    scratch.commit({"own/a.py": "one\r\n", "own/sub/b.bin": b"\0\xff", "other.py": "x\n"})
    scratch.write({"own/a.py": "not committed\n"})
    written = export(scratch, tmp_path / "out", "own/**")
    assert (tmp_path / "out/own/a.py").read_bytes() == b"one\r\n"
    assert (tmp_path / "out/own/sub/b.bin").read_bytes() == b"\0\xff"
    assert written == {
        "own/a.py": hashlib.sha256(b"one\r\n").hexdigest(),
        "own/sub/b.bin": hashlib.sha256(b"\0\xff").hexdigest(),
    }
    assert not (tmp_path / "out/other.py").exists()


def test_filters_and_line_ending_settings_do_not_touch_the_bytes(
    scratch: ScratchRepository, tmp_path: Path
) -> None:
    scratch.commit(
        {
            "a.py": "x\n",
            ".gitattributes": "*.py filter=shout text eol=crlf\n*.txt export-ignore\n",
            "n.txt": "n",
        }
    )
    scratch.git("config", "filter.shout.smudge", "tr x X")
    scratch.git("config", "core.autocrlf", "true")
    written = export(scratch, tmp_path / "out", "**")
    assert (tmp_path / "out/a.py").read_bytes() == b"x\n"
    assert "n.txt" in written


def test_the_executable_bit_is_kept(scratch: ScratchRepository, tmp_path: Path) -> None:
    scratch.write({"run.sh": "x\n"})
    (scratch.folder / "run.sh").chmod(0o755)
    scratch.commit()
    export(scratch, tmp_path / "out", "**")
    assert os.access(tmp_path / "out/run.sh", os.X_OK)
    assert not os.access(tmp_path / "out/README.md", os.X_OK)


def test_a_link_to_an_exported_file_is_a_copy_and_every_other_link_is_left_out(
    scratch: ScratchRepository, tmp_path: Path
) -> None:
    scratch.write({"own/a.py": "x\n"})
    links = {
        "own/sub/good.py": "../a.py",
        "own/out.py": "../README.md",
        "own/abs.py": "/etc/passwd",
        "own/up.py": "../../../etc/passwd",
        "own/dir": "sub",
        "own/chain.py": "sub/good.py",
        "own/back.py": "dir/../a.py",
    }
    for name, target in links.items():
        (scratch.folder / name).parent.mkdir(exist_ok=True)
        (scratch.folder / name).symlink_to(target)
    scratch.commit()
    written = export(scratch, tmp_path / "out", "own/**")
    assert set(written) == {"own/a.py", "own/sub/good.py"}
    assert (tmp_path / "out/own/sub/good.py").read_bytes() == b"x\n"
    assert not any(path.is_symlink() for path in (tmp_path / "out").rglob("*"))


def test_names_that_are_no_utf8_keep_their_bytes_on_disk(scratch: ScratchRepository, tmp_path: Path) -> None:
    name = b"caf\xe9.py"
    with open(os.path.join(os.fsencode(scratch.folder), name), "wb") as file:  # noqa: PTH118, PTH123
        file.write(b"x\n")
    scratch.commit()
    assert "caf\\xe9.py" in export(scratch, tmp_path / "out", "**")
    assert name in os.listdir(os.fsencode(tmp_path / "out"))  # noqa: PTH208


def test_a_submodule_is_left_out(scratch: ScratchRepository, tmp_path: Path) -> None:
    scratch.git("update-index", "--add", "--cacheinfo", f"160000,{scratch.first},sub")
    scratch.git("commit", "--quiet", "-m", "sub")
    assert set(export(scratch, tmp_path / "out", "**")) == {"README.md"}


def test_a_folder_in_use_is_refused(scratch: ScratchRepository, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out/left.py").write_text("old\n")
    with pytest.raises(ConfigurationError, match="in use"):
        export(scratch, tmp_path / "out", "**")


@pytest.mark.parametrize("path", ["../evil", "a/../../evil", "/evil", ".git/hooks/x", "a//b"])
def test_a_tree_whose_names_leave_the_folder_is_refused(tmp_path: Path, path: str) -> None:
    entry = TreeEntry(mode="100644", object_id="1", path=path)
    with pytest.raises(ConfigurationError, match="leaves its folder"):
        export_files([entry], {"1": b"x"}, tmp_path / "out")
    assert not (tmp_path / "evil").exists()


@pytest.mark.parametrize("paths", [("a", "a/b"), ("a/b", "a"), ("a", "a")])
def test_names_that_collide_are_refused(tmp_path: Path, paths: tuple[str, str]) -> None:
    entries = [TreeEntry(mode="100644", object_id="1", path=path) for path in paths]
    with pytest.raises(ConfigurationError, match="collides"):
        export_files(entries, {"1": b"x"}, tmp_path / "out")
