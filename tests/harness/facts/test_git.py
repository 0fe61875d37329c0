"""Laws of commits: what is compared with what, and what is said when nothing can be compared."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from harness.facts.git import Repository
from harness.facts.git_command import GitCommand
from harness.model.change import EMPTY_TREE, Change
from harness.model.errors import ConfigurationError
from harness.model.words import ExitCode

if TYPE_CHECKING:
    from conftest import ScratchRepository


def change(scratch: ScratchRepository, base: str | None = None, head: str = "HEAD") -> Change:
    return Repository(scratch.folder).change(base, head)[0]


def refusal(scratch: ScratchRepository, base: str | None = None, head: str = "HEAD") -> ConfigurationError:
    with pytest.raises(ConfigurationError) as caught:
        change(scratch, base, head)
    assert caught.value.exit_code is ExitCode.USAGE
    return caught.value


def test_without_a_base_the_merge_base_with_the_upstream_default_branch_counts(
    scratch: ScratchRepository, tmp_path: Path
) -> None:
    clone = type(scratch)(tmp_path / "other")
    clone.git("remote", "add", "origin", str(scratch.folder))
    clone.git("fetch", "--quiet", "origin")
    clone.git("remote", "set-head", "origin", "main")
    clone.git("switch", "--quiet", "--create", "feature", "origin/main")
    clone.commit({"a.py": "x\n"})
    assert change(clone).merge_base == scratch.first


def test_on_the_default_branch_the_first_parent_counts(scratch: ScratchRepository) -> None:
    second = scratch.commit({"a.py": "x\n"})
    scratch.commit({"b.py": "x\n"})
    assert change(scratch).merge_base == second


def test_a_merge_on_the_default_branch_is_compared_with_its_first_parent(scratch: ScratchRepository) -> None:
    scratch.branch()
    scratch.commit({"mine.py": "x\n"})
    scratch.git("switch", "--quiet", "main")
    before = scratch.commit({"theirs.py": "x\n"})
    scratch.git("merge", "--quiet", "--no-edit", "--no-ff", "feature")
    _, diff = Repository(scratch.folder).change()
    assert (change(scratch).base, [f.path for f in diff.files]) == (before, ["mine.py"])


def test_the_empty_base_judges_every_file_of_the_head(scratch: ScratchRepository) -> None:
    scratch.commit({"a.py": "x\n"})
    seen, diff = Repository(scratch.folder).change("empty")
    assert seen.merge_base == EMPTY_TREE
    assert {(f.path, f.status) for f in diff.files} == {("README.md", "added"), ("a.py", "added")}


def test_paths_limit_what_is_judged_and_count_the_rest(scratch: ScratchRepository) -> None:
    scratch.branch()
    scratch.commit({"own/a.py": "x\n", "b.py": "x\n", "c.py": "x\n"})
    seen, diff = Repository(scratch.folder).change(limited_to=["own/**"])
    assert (seen.limited_to, [f.path for f in diff.files], diff.num_not_judged) == (
        ("own/**",),
        ["own/a.py"],
        2,
    )


def test_a_file_renamed_out_of_the_limit_is_judged(scratch: ScratchRepository) -> None:
    scratch.commit({"core/a.py": "".join(f"{i}\n" for i in range(20))})
    scratch.branch()
    scratch.git("mv", "core/a.py", "b.py")
    scratch.commit()
    _, diff = Repository(scratch.folder).change(limited_to=["core/**"])
    assert [f.path for f in diff.files] == ["b.py"]


def test_uncommitted_files_are_counted_and_not_judged(scratch: ScratchRepository) -> None:
    scratch.commit({".gitignore": "*.log\n"})
    scratch.branch()
    scratch.commit({"a.py": "x\n"})
    scratch.write({"a.py": "y\n", "new/b.py": "x\n", "new/c.py": "x\n", "ignored.log": "x\n"})
    seen, diff = Repository(scratch.folder).change()
    assert (seen.uncommitted_files, [f.path for f in diff.files]) == (3, ["a.py"])


def test_the_subject_is_the_first_line_of_the_message(scratch: ScratchRepository) -> None:
    scratch.commit({"a.py": "x\n"}, message="First line\n\nbody")
    assert change(scratch).head_subject == "First line"


def test_a_tag_and_a_short_id_resolve_to_their_commit(scratch: ScratchRepository) -> None:
    scratch.git("tag", "--annotate", "v1", "--message", "tag")
    repository = Repository(scratch.folder)
    assert repository.resolve("v1") == repository.resolve(scratch.first[:8]) == scratch.first


@pytest.mark.parametrize(
    "revision", ["nowhere", "", "--help", "-x", "a\0b", "HEAD^{tree}", "HEAD:README.md", "main..main"]
)
def test_an_unknown_revision_is_named(scratch: ScratchRepository, revision: str) -> None:
    assert refusal(scratch, head=revision).slug == "unknown-revision"
    assert refusal(scratch, base=revision).slug == "unknown-revision"


def test_a_folder_outside_git_is_no_repository(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="not in a git repository"):
        Repository(tmp_path)


def test_a_missing_folder_is_no_repository(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="not a folder"):
        Repository(tmp_path / "nowhere")


def test_a_machine_without_git_says_so(scratch: ScratchRepository, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(ConfigurationError, match="git is not installed"):
        Repository(scratch.folder)


def test_a_repository_without_commits_has_no_head(tmp_path: Path, scratch: ScratchRepository) -> None:
    scratch.git("init", "--quiet", str(tmp_path / "new"))
    with pytest.raises(ConfigurationError) as caught:
        Repository(tmp_path / "new").change("empty")
    assert caught.value.slug == "unknown-revision"


def test_an_empty_commit_is_nothing_to_judge(scratch: ScratchRepository) -> None:
    scratch.branch()
    scratch.commit()
    scratch.write({"forgotten.py": "x\n"})
    assert refusal(scratch).slug == "empty-diff"
    assert "1 files are changed and not committed" in refusal(scratch).message


def test_paths_that_match_nothing_are_nothing_to_judge(scratch: ScratchRepository) -> None:
    scratch.commit({"a.py": "x\n"})
    with pytest.raises(ConfigurationError, match="None of the 1 changed files"):
        Repository(scratch.folder).change(limited_to=["b/**"])


def test_a_glob_of_another_language_is_refused(scratch: ScratchRepository) -> None:
    with pytest.raises(ConfigurationError, match="--paths"):
        Repository(scratch.folder).change(limited_to=["[ab].py"])


def test_the_first_commit_has_nothing_before_it(scratch: ScratchRepository) -> None:
    assert "--base empty" in refusal(scratch).advice


def test_a_repository_without_a_default_branch_asks_for_a_base(scratch: ScratchRepository) -> None:
    scratch.commit({"a.py": "x\n"})
    scratch.git("branch", "--move", "main", "trunk")
    assert "--base" in refusal(scratch).advice


def test_histories_without_a_common_commit_are_refused(scratch: ScratchRepository) -> None:
    scratch.git("switch", "--quiet", "--orphan", "other")
    scratch.commit({"a.py": "x\n"})
    assert refusal(scratch, base="main").slug == "no-merge-base"


def shallow_clone(scratch: ScratchRepository, folder: Path, depth: int = 1) -> ScratchRepository:
    scratch.git(
        "clone", "--quiet", "--no-single-branch", f"--depth={depth}", f"file://{scratch.folder}", str(folder)
    )
    clone = object.__new__(type(scratch))
    clone.folder = folder
    return clone


def test_a_shallow_clone_without_the_merge_base_says_how_to_get_it(
    scratch: ScratchRepository, tmp_path: Path
) -> None:
    scratch.branch()
    scratch.commit({"a.py": "x\n"})
    scratch.git("switch", "--quiet", "main")
    scratch.commit({"b.py": "x\n"})
    scratch.git("switch", "--quiet", "feature")
    clone = shallow_clone(scratch, tmp_path / "clone")
    error = refusal(clone, base="origin/main")
    assert error.slug == "incomplete-clone"
    assert "git fetch --unshallow" in error.advice


def test_a_shallow_clone_does_not_take_its_oldest_commit_for_a_first_one(
    scratch: ScratchRepository, tmp_path: Path
) -> None:
    scratch.commit({"a.py": "x\n"})
    assert refusal(shallow_clone(scratch, tmp_path / "clone")).slug == "incomplete-clone"


def test_a_hidden_environment_cannot_point_git_elsewhere(
    scratch: ScratchRepository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = type(scratch)(tmp_path / "other")
    other.commit({"other.py": "x\n"})
    scratch.commit({"a.py": "x\n"})
    monkeypatch.setenv("GIT_DIR", str(other.folder / ".git"))
    monkeypatch.setenv("GIT_WORK_TREE", str(other.folder))
    _, diff = Repository(scratch.folder).change()
    assert [f.path for f in diff.files] == ["a.py"]


def test_a_linked_worktree_and_a_bare_clone_can_be_judged(scratch: ScratchRepository, tmp_path: Path) -> None:
    scratch.branch()
    head = scratch.commit({"a.py": "x\n"})
    scratch.git("worktree", "add", "--quiet", "--detach", str(tmp_path / "tree"))
    scratch.git("clone", "--quiet", "--bare", ".", str(tmp_path / "bare"))
    heads = {Repository(tmp_path / name).change("main")[0].head for name in ("tree", "bare")}
    assert heads == {head}


def test_a_file_is_read_from_the_commit_and_not_from_the_working_tree(scratch: ScratchRepository) -> None:
    scratch.write({"README.md": "changed\n"})
    repository = Repository(scratch.folder)
    assert repository.read(scratch.first, "README.md") == b"read me\n"
    assert repository.read(scratch.first, "nowhere") is None
    assert repository.read(scratch.first, "README.md/x") is None


def test_while_objects_are_kept_git_is_asked_for_each_of_them_once(
    scratch: ScratchRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    head = scratch.commit({"a.py": "x\n", "b.txt": "y\n"})
    repository, asked = Repository(scratch.folder), list[str]()
    plain = GitCommand.run
    monkeypatch.setattr(GitCommand, "run", lambda git, *a, **k: asked.append(a[0]) or plain(git, *a, **k))
    with repository.kept([scratch.first, EMPTY_TREE, head], lambda path: path.endswith(".py")):
        asked.clear()
        found = repository.contents(head, lambda path: path == "a.py")
    assert (found, asked) == ({"a.py": b"x\n"}, [])


def test_what_was_kept_is_gone_afterwards(scratch: ScratchRepository) -> None:
    repository = Repository(scratch.folder)
    head = scratch.commit({"a.py": "x\n"})
    with repository.kept([head], lambda _: True):
        scratch.git("update-ref", "-d", "refs/heads/main")
        scratch.git("reflog", "expire", "--expire=now", "--all")
        scratch.git("gc", "--quiet", "--prune=now")
        assert repository.contents(head, lambda _: True)["a.py"] == b"x\n"
    with pytest.raises(ConfigurationError):
        repository.contents(head, lambda _: True)


RIVALS = [
    ("own/mod/__init__.py", "own/mod.py", True),
    ("own/mod.py", "own/mod/__init__.py", True),
    ("own/mod.py", "own/mod.cpython-311-x86_64-linux-gnu.so", True),
    ("own/mod/__init__.py", "own/mod/__init__.abi3.so", True),
    ("own/mod.py", "own/mod/data.py", False),
    ("own/mod.py", "own/mod.pyi", False),
    ("own/mod.py", "own/mod.test.py", False),
    ("own/mod.py", "other/mod.py", False),
]


@pytest.mark.parametrize(("path", "other", "is_rival"), RIVALS)
def test_the_other_file_of_the_same_module_is_told(
    path: str, other: str, is_rival: bool, scratch: ScratchRepository
) -> None:
    scratch.commit({other: "x = 1\n"})
    scratch.commit({path: "x = 2\n"})
    _, diff = Repository(scratch.folder).change(base="HEAD~1")
    assert [file.rivals for file in diff.files] == [(other,) if is_rival else ()]
