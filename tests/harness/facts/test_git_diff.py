"""Laws of the diff: what git shows of a change is what evidence holds, whatever the names and kinds of file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.facts.git import Repository
from harness.facts.git_diff import parse_diff
from harness.facts.python_source.hunks import parse_spans
from harness.model.change import ChangedFile
from harness.model.errors import EvidenceError
from harness.model.path_text import escape_path, unescape_path

if TYPE_CHECKING:
    from conftest import ScratchRepository


def changed(scratch: ScratchRepository, base: str | None = "main") -> dict[str, ChangedFile]:
    _, diff = Repository(scratch.folder).change(base)
    return {file.path: file for file in diff.files}


def cpu_seconds() -> float:
    """Of this process and of the git processes that it waited for: the load of the machine does not count."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def test_added_and_deleted_lines_are_counted_by_file(scratch: ScratchRepository) -> None:
    scratch.commit({"a.py": "1\n2\n3\n", "gone.py": "x\n"})
    scratch.branch()
    (scratch.folder / "gone.py").unlink()
    scratch.commit({"a.py": "1\ntwo\n3\n4\n", "new.py": "n\n"})
    seen = {p: (f.status, f.added_lines, f.deleted_lines) for p, f in changed(scratch).items()}
    assert seen == {"a.py": ("modified", 2, 1), "gone.py": ("deleted", 0, 1), "new.py": ("added", 1, 0)}


def test_1700_edited_renames_stay_renames(scratch: ScratchRepository) -> None:
    body = "".join(f"line {i}\n" for i in range(30))
    scratch.commit({f"old/f{i}.py": f"# file {i}\n{body}" for i in range(1700)})
    scratch.branch()
    scratch.git("mv", "old", "new")
    scratch.commit({f"new/f{i}.py": f"# file {i}\n{body}# moved\n" for i in range(0, 1700, 10)})
    files = changed(scratch)
    assert len(files) == 1700
    assert {(f.status, f.old_path) for f in files.values()} == {
        ("renamed", f"old/f{i}.py") for i in range(1700)
    }


def test_a_copy_of_a_changed_file_is_a_copy(scratch: ScratchRepository) -> None:
    body = "".join(f"line {i}\n" for i in range(30))
    scratch.commit({"a.py": body})
    scratch.branch()
    scratch.commit({"a.py": body + "more\n", "b.py": body})
    assert (changed(scratch)["b.py"].status, changed(scratch)["b.py"].old_path) == ("copied", "a.py")


def test_a_name_that_is_no_utf8_is_escaped_and_can_be_had_back(scratch: ScratchRepository) -> None:
    scratch.branch()
    name = b"caf\xe9 \\xe9\n.py"
    with open(os.path.join(os.fsencode(scratch.folder), name), "wb") as file:  # noqa: PTH118, PTH123
        file.write(b"x\n")
    scratch.commit()
    (path,) = changed(scratch)
    assert path == "caf\\xe9 \\\\xe9\n.py"
    assert unescape_path(path) == name


@settings(deadline=None)
@given(st.binary(max_size=40))
def test_escaping_a_name_loses_nothing(name: bytes) -> None:
    assert unescape_path(escape_path(name)) == name


@settings(deadline=None)
@given(st.binary(max_size=12), st.binary(max_size=12))
def test_two_names_never_share_one_text(left: bytes, right: bytes) -> None:
    assert (escape_path(left) == escape_path(right)) == (left == right)


def test_a_mode_only_change_has_no_lines(scratch: ScratchRepository) -> None:
    scratch.commit({"run.sh": "x\n"})
    scratch.branch()
    (scratch.folder / "run.sh").chmod(0o755)
    scratch.commit()
    file = changed(scratch)["run.sh"]
    assert (file.status, file.old_mode, file.new_mode) == ("modified", "100644", "100755")
    assert (file.added_lines, file.deleted_lines, file.is_binary) == (0, 0, False)


def test_crlf_and_a_missing_newline_at_the_end_are_line_changes(scratch: ScratchRepository) -> None:
    scratch.commit({"crlf.txt": "a\nb\n", "end.txt": "a\nb\n"})
    scratch.branch()
    scratch.commit({"crlf.txt": "a\r\nb\r\n", "end.txt": "a\nb"})
    seen = {p: (f.added_lines, f.deleted_lines) for p, f in changed(scratch).items()}
    assert seen == {"crlf.txt": (2, 2), "end.txt": (1, 1)}


def test_a_binary_file_has_no_line_counts(scratch: ScratchRepository) -> None:
    scratch.branch()
    scratch.commit({"k.so": b"\x7fELF\0\0"})
    assert (changed(scratch)["k.so"].is_binary, changed(scratch)["k.so"].added_lines) == (True, None)


def test_a_git_lfs_pointer_is_told_from_a_text_that_speaks_of_one(scratch: ScratchRepository) -> None:
    scratch.branch()
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:" + "a" * 64 + "\nsize 12345\n"
    scratch.commit({"weights.bin": pointer, "notes.md": f"A pointer reads:\n{pointer}", "empty": ""})
    assert {p: f.is_lfs_pointer for p, f in changed(scratch).items()} == {
        "weights.bin": True,
        "notes.md": False,
        "empty": False,
    }


def test_an_octopus_merge_is_judged_against_the_merge_base(scratch: ScratchRepository) -> None:
    for name in ("one", "two"):
        scratch.git("switch", "--quiet", "--create", name, "main")
        scratch.commit({f"{name}.py": "x\n"})
    scratch.git("switch", "--quiet", "--create", "feature", "main")
    scratch.commit({"mine.py": "x\n"})
    scratch.git("merge", "--quiet", "--no-edit", "one", "two")
    assert set(changed(scratch)) == {"mine.py", "one.py", "two.py"}


def test_a_patch_of_one_file_has_its_hunks_whatever_attributes_say(scratch: ScratchRepository) -> None:
    scratch.commit({"a.py": "1\n2\n3\n", ".gitattributes": "*.py -diff\n"})
    scratch.branch()
    head = scratch.commit({"a.py": "1\ntwo\n3\n4\n"})
    patch = Repository(scratch.folder).patch(scratch.git("rev-parse", "main"), head, "a.py")
    assert [(s.base_line, s.num_base, s.head_line, s.num_head) for s in parse_spans(patch)] == [
        (2, 1, 2, 1),
        (3, 0, 4, 1),
    ]


@pytest.mark.parametrize("where", [".gitattributes", ".git/info/attributes"])
def test_attributes_cannot_hide_lines_as_binary(scratch: ScratchRepository, where: str) -> None:
    scratch.branch()
    scratch.commit({"a.py": "1\n2\n", where: "*.py binary\n*.py -diff\n"})
    assert (changed(scratch)["a.py"].is_binary, changed(scratch)["a.py"].added_lines) == (False, 2)


def test_the_repositorys_configuration_cannot_change_the_diff(scratch: ScratchRepository) -> None:
    scratch.commit({"old.py": "".join(f"{i}\n" for i in range(20))})
    scratch.branch()
    scratch.git("mv", "old.py", "new.py")
    scratch.commit()
    for setting in (
        "diff.renames=false",
        "diff.external=false",
        "core.bigFileThreshold=1",
        "diff.noprefix=true",
    ):
        scratch.git("config", *setting.split("="))
    assert changed(scratch)["new.py"].status == "renamed"
    assert changed(scratch)["new.py"].added_lines == 0


def test_the_users_configuration_cannot_change_the_diff(
    scratch: ScratchRepository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "attributes").write_text("*.py binary\n")
    (tmp_path / ".gitconfig").write_text(f"[core]\n\tattributesFile = {tmp_path}/attributes\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    scratch.branch()
    scratch.commit({"a.py": "1\n2\n"})
    assert (changed(scratch)["a.py"].is_binary, changed(scratch)["a.py"].added_lines) == (False, 2)


def test_a_graft_cannot_move_the_merge_base_past_a_commit(scratch: ScratchRepository) -> None:
    scratch.branch()
    hidden = scratch.commit({"hidden.py": "x\n"})
    scratch.commit({"shown.py": "x\n"})
    scratch.git("switch", "--quiet", "main")
    tip = scratch.commit({"theirs.py": "x\n"})
    scratch.git("switch", "--quiet", "feature")
    scratch.git("replace", "--graft", tip, hidden)
    assert set(changed(scratch)) == {"hidden.py", "shown.py"}


def test_a_replaced_object_is_not_believed(scratch: ScratchRepository) -> None:
    scratch.branch()
    bad = scratch.commit({"bad.py": "x\n"})
    good = scratch.git("commit-tree", f"{scratch.first}^{{tree}}", "-p", scratch.first, "-m", "good")
    scratch.git("replace", bad, good)
    assert set(changed(scratch)) == {"bad.py"}


def test_a_link_tells_its_target_and_has_no_lines(scratch: ScratchRepository) -> None:
    scratch.branch()
    (scratch.folder / "link").symlink_to("../out\\side")
    scratch.commit()
    file = changed(scratch)["link"]
    assert (file.new_mode, file.link_target, file.added_lines) == ("120000", "../out\\\\side", None)


def test_a_file_that_becomes_a_link_changed_its_type(scratch: ScratchRepository) -> None:
    scratch.commit({"a.py": "x\n"})
    scratch.branch()
    (scratch.folder / "a.py").unlink()
    (scratch.folder / "a.py").symlink_to("README.md")
    scratch.commit()
    file = changed(scratch)["a.py"]
    assert (file.status, file.link_target, file.added_lines) == ("type_changed", "README.md", None)


def test_a_submodule_is_an_entry_without_lines(scratch: ScratchRepository) -> None:
    scratch.branch()
    scratch.git("update-index", "--add", "--cacheinfo", f"160000,{scratch.first},sub")
    scratch.git("commit", "--quiet", "-m", "sub")
    file = changed(scratch)["sub"]
    assert (file.new_mode, file.added_lines, file.is_binary) == ("160000", None, False)


def test_a_merge_commit_is_judged_against_the_merge_base(scratch: ScratchRepository) -> None:
    scratch.branch()
    scratch.commit({"mine.py": "x\n"})
    scratch.git("switch", "--quiet", "main")
    scratch.commit({"theirs.py": "x\n"})
    scratch.git("switch", "--quiet", "feature")
    scratch.git("merge", "--quiet", "--no-edit", "main")
    assert set(changed(scratch)) == {"mine.py"}


def test_commits_on_the_base_after_the_fork_do_not_count(scratch: ScratchRepository) -> None:
    scratch.branch()
    scratch.commit({"mine.py": "x\n"})
    scratch.git("switch", "--quiet", "main")
    scratch.commit({"theirs.py": "x\n"})
    scratch.git("switch", "--quiet", "feature")
    assert set(changed(scratch)) == {"mine.py"}


def test_a_diff_of_5000_files_takes_at_most_5_cpu_seconds(scratch: ScratchRepository) -> None:
    scratch.branch()
    scratch.commit({f"d{i % 50}/f{i}.py": f"{i}\n" for i in range(5000)})
    start = cpu_seconds()
    assert len(changed(scratch)) == 5000
    assert cpu_seconds() - start < 5


@pytest.mark.parametrize(
    "output",
    [
        b":100644 100644 a b M\0",
        b"nonsense\0",
        b":1 2 a b Q\0x\0",
        b"1\t2\ta.py",
        b":100644 100644 a b M\0x\0",
        b"\0",
    ],
)
def test_what_is_no_diff_output_is_refused(output: bytes) -> None:
    with pytest.raises(EvidenceError):
        parse_diff(output)


def test_names_that_look_like_git_records_are_names(scratch: ScratchRepository) -> None:
    scratch.branch()
    scratch.commit({":100644 100644 a b M": "x\n", "1\t2\tname": "x\ny\n"})
    files = changed(scratch)
    assert {p: f.added_lines for p, f in files.items()} == {":100644 100644 a b M": 1, "1\t2\tname": 2}


def test_the_repository_is_left_alone(scratch: ScratchRepository) -> None:
    scratch.branch()
    scratch.commit({"a.py": "x\n"})
    before = {p: p.stat().st_mtime_ns for p in (scratch.folder / ".git").rglob("*") if p.is_file()}
    changed(scratch)
    assert {p: p.stat().st_mtime_ns for p in (scratch.folder / ".git").rglob("*") if p.is_file()} == before
