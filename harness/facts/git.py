"""What git says about a change: commits, the diff between them, and the files of a commit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from os import fsdecode
from pathlib import Path

from harness.facts.git_command import GitCommand
from harness.facts.git_diff import LINK_MODE, parse_diff
from harness.facts.git_export import export_files
from harness.facts.git_objects import GitObjects, incomplete
from harness.facts.python_source.names import files_of_modules
from harness.model.change import EMPTY_TREE, Change, ChangedFile
from harness.model.errors import ConfigurationError
from harness.model.globs import glob_problem, matching_glob
from harness.model.path_text import unescape_path

EMPTY_BASE = "empty"
"""The base that judges a head as wholly new."""
_DEFAULT_BRANCHES = ("origin/HEAD", "origin/main", "origin/master", "main", "master")
_RENAME_LIMIT = 2500
"""Sources and targets up to which inexact renames are looked for: about 3 s; above it they are new files."""
_DIFF = (
    "diff-tree -r -z --raw --numstat --no-abbrev --no-ext-diff --no-textconv --no-color --diff-algorithm=myers"
    f" -M -C -l{_RENAME_LIMIT}"
)
_PATCH = (
    "diff-tree -r -p --unified=0 --text --no-renames --no-ext-diff --no-textconv --no-color"
    " --diff-algorithm=myers"
)
_MAX_SUBJECT_LENGTH = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Diff:
    """The judged part of a diff, and how many changed files lie outside it."""

    files: tuple[ChangedFile, ...]
    num_not_judged: int


class Repository:
    """A git repository, or a folder in one, that is only read."""

    def __init__(self, path: Path) -> None:
        if not path.is_dir():
            raise ConfigurationError("no-repository", f"{path} is not a folder.", "Point --repo at a clone.")
        self._git = GitCommand(path)
        self._objects = GitObjects(self._git)
        if self._git.run("rev-parse", "--git-dir", ok=range(256)).code != 0:
            raise ConfigurationError(
                "no-repository", f"{path} is not in a git repository.", "Point --repo at a clone."
            )
        object_format = self._git.run("rev-parse", "--show-object-format").line
        if object_format != "sha1":
            raise ConfigurationError(
                "object-format", f"The repository names objects by {object_format}; only sha1 is supported."
            )

    @property
    def top(self) -> Path:
        """The top folder of the working tree, links resolved."""
        return Path(self._git.run("rev-parse", "--show-toplevel").line).resolve()

    def resolve(self, revision: str) -> str:
        """The commit, as 40 hex digits, that a branch, tag or other revision means."""
        if not revision or "\0" in revision:
            raise ConfigurationError("unknown-revision", "A revision is empty or holds a NUL byte.")
        answer = self._git.run(
            "rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}", ok=range(256)
        )
        if answer.code != 0:
            advice = "Name a branch, tag or commit that `git rev-parse` knows."
            if self._is_shallow():
                advice += " This clone is shallow: `git fetch --unshallow` brings the rest."
            raise ConfigurationError("unknown-revision", f'"{revision}" is not a commit here.', advice)
        return answer.line

    def change(
        self, base: str | None = None, head: str = "HEAD", limited_to: Sequence[str] = ()
    ) -> tuple[Change, Diff]:
        """The commits that are compared and the files that differ.

        Args:
            base: a revision; `"empty"` judges the head as wholly new; None means the default branch or, where
                the head is part of it, the head's first parent.
            head: the revision to be judged.
            limited_to: globs; a file counts when its path, or the one that it was renamed from, matches.

        Raises:
            ConfigurationError: unknown revisions, no common history, nothing to judge.
        """
        for glob in limited_to:
            if problem := glob_problem(glob):
                raise ConfigurationError("bad-glob", f"--paths: {problem}.")
        head_commit = self.resolve(head)
        base_commit, merge_base = self._base(base, head_commit)
        entries = self._diff_entries(merge_base, head_commit)
        uncommitted = self._count_uncommitted()
        if not entries:
            raise ConfigurationError(
                "empty-diff",
                f"Nothing differs between {merge_base[:12]} and {head_commit[:12]};"
                f" {uncommitted} files are changed and not committed.",
                "Commit the change, or name another --base or --head.",
            )
        judged = tuple(f for f in entries if _is_within(f, limited_to))
        if not judged:
            raise ConfigurationError(
                "empty-diff",
                f"None of the {len(entries)} changed files matches --paths {' '.join(limited_to)}.",
                "Globs are anchored at the repository root; quote them, so that the shell leaves them alone.",
            )
        change = Change(
            base=base_commit,
            merge_base=merge_base,
            head=head_commit,
            head_subject=self._subject(head_commit),
            limited_to=tuple(limited_to),
            uncommitted_files=uncommitted,
        )
        judged = self._with_rivals(judged, head_commit)
        return change, Diff(files=judged, num_not_judged=len(entries) - len(judged))

    def read(self, commit: str, path: str) -> bytes | None:
        """The bytes of one file of a commit; None when there is no regular file of that name."""
        entries = self._objects.tree(commit, unescape_path(path))
        regular = [entry for entry in entries if entry.is_regular and entry.path == path]
        return self._objects.blobs([regular[0].object_id])[regular[0].object_id] if regular else None

    def paths(self, commit: str) -> tuple[str, ...]:
        """The path of every entry of a commit, escaped; of the empty tree, none."""
        return () if commit == EMPTY_TREE else tuple(entry.path for entry in self._objects.tree(commit))

    def contents(self, commit: str, wanted: Callable[[str], bool]) -> dict[str, bytes]:
        """The bytes of every regular file of a commit whose path is wanted; of the empty tree, nothing."""
        if commit == EMPTY_TREE:
            return {}
        entries = [entry for entry in self._objects.tree(commit) if entry.is_regular and wanted(entry.path)]
        blobs = self._objects.blobs([entry.object_id for entry in entries])
        return {entry.path: blobs[entry.object_id] for entry in entries}

    @contextmanager
    def kept(self, commits: Iterable[str], wanted: Callable[[str], bool]) -> Iterator[None]:
        """While it lasts, objects are read once each; the wanted files of the commits at its start, in one go."""
        with self._objects.kept():
            trees = [self._objects.tree(commit) for commit in commits if commit != EMPTY_TREE]
            self._objects.blobs([e.object_id for t in trees for e in t if e.is_regular and wanted(e.path)])
            yield

    def patch(self, base: str, head: str, path: str) -> bytes:
        """What differs in one file, as hunks without context; empty when nothing does.

        What the repository's attributes call binary is text here.
        """
        with self._git.objects_only() as git:
            arguments = (*_PATCH.split(), base, head, "--", fsdecode(unescape_path(path)))
            return git.run(*arguments).out

    def export(self, commit: str, globs: Iterable[str], folder: Path) -> dict[str, str]:
        """Writes the files of a commit that match `globs` into a new or empty folder.

        See `harness.facts.git_export.export_files`.

        Returns:
            Path to sha256 of each file written.
        """
        wanted = tuple(globs)
        entries = [entry for entry in self._objects.tree(commit) if matching_glob(entry.path, wanted)]
        blobs = self._objects.blobs([entry.object_id for entry in entries if not entry.is_submodule])
        return export_files(entries, blobs, folder)

    def _base(self, base: str | None, head: str) -> tuple[str, str]:
        if base == EMPTY_BASE:
            return EMPTY_TREE, EMPTY_TREE
        if base is not None:
            commit = self.resolve(base)
            return commit, self._merge_base(commit, head)
        for name in _DEFAULT_BRANCHES:
            answer = self._git.run("rev-parse", "--verify", "--quiet", f"{name}^{{commit}}", ok=range(256))
            if answer.code == 0:
                break
        else:
            raise ConfigurationError(
                "no-base",
                f"None of {', '.join(_DEFAULT_BRANCHES)} exists to compare with.",
                "Name what the change is to be compared with by --base.",
            )
        merge_base = self._merge_base(answer.line, head)
        if merge_base != head:
            return answer.line, merge_base
        parent = self._first_parent(head)
        return parent, parent

    def _merge_base(self, base: str, head: str) -> str:
        answer = self._git.run("merge-base", base, head, ok=(0, 1))
        if answer.code == 0:
            return answer.line
        if self._is_shallow():
            raise incomplete(f"The merge base of {base[:12]} and {head[:12]} is not in this shallow clone.")
        raise ConfigurationError(
            "no-merge-base",
            f"{base[:12]} and {head[:12]} have no common history.",
            f"Name another --base; `--base {EMPTY_BASE}` judges the head as wholly new.",
        )

    def _first_parent(self, head: str) -> str:
        header = self._commit(head).split(b"\n\n", 1)[0]
        parents = [
            line.split(b" ")[1].decode() for line in header.split(b"\n") if line.startswith(b"parent ")
        ]
        if not parents:
            raise ConfigurationError(
                "no-base",
                f"{head[:12]} is the first commit: there is nothing before it to compare with.",
                f"`--base {EMPTY_BASE}` judges it as wholly new.",
            )
        if self._git.run("cat-file", "-e", parents[0], ok=range(256)).code != 0:
            raise incomplete(f"The parent of {head[:12]} is not in this clone.")
        return parents[0]

    def _diff_entries(self, merge_base: str, head: str) -> tuple[ChangedFile, ...]:
        with self._git.objects_only() as git:
            output = git.run(*_DIFF.split(), merge_base, head).out
        entries = parse_diff(output)
        links = [e.new_object for e in entries if e.new_mode == LINK_MODE]
        targets = self._objects.blobs(links)
        pointers = self._objects.lfs_pointers([e.new_object for e in entries if e.new_mode.startswith("100")])
        return tuple(
            e.changed_file(
                targets.get(e.new_object) if e.new_mode == LINK_MODE else None,
                is_lfs_pointer=e.new_object in pointers,
            )
            for e in entries
        )

    def _with_rivals(self, files: tuple[ChangedFile, ...], head: str) -> tuple[ChangedFile, ...]:
        """The files, each with the other files of the same module."""
        modules = files_of_modules(self.paths(head))
        shared = {path: found for found in modules.values() if len(found) > 1 for path in found}
        return tuple(
            f.model_copy(update={"rivals": tuple(p for p in shared[f.path] if p != f.path)})
            if f.path in shared and f.status != "deleted"
            else f
            for f in files
        )

    def _commit(self, commit: str) -> bytes:
        return self._git.run("cat-file", "commit", commit).out

    def _subject(self, commit: str) -> str:
        message = self._commit(commit).partition(b"\n\n")[2].decode("utf-8", errors="backslashreplace")
        return message.strip().split("\n", 1)[0][:_MAX_SUBJECT_LENGTH]

    def _count_uncommitted(self) -> int:
        if self._git.run("rev-parse", "--is-inside-work-tree", ok=range(256)).line != "true":
            return 0
        answer = self._git.run(
            *("status", "--porcelain=v1", "-z", "--untracked-files=all", "--no-renames"),
            "--ignore-submodules=dirty",
            user_config=True,
        )
        return answer.out.count(b"\0")

    def _is_shallow(self) -> bool:
        return self._git.run("rev-parse", "--is-shallow-repository").line == "true"


def _is_within(file: ChangedFile, globs: Sequence[str]) -> bool:
    if not globs:
        return True
    sources = [file.old_path] if file.status == "renamed" and file.old_path is not None else []
    return any(matching_glob(path, globs) for path in (file.path, *sources))
