"""Trees and blobs of a repository; each is read once where they are asked for again and again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from os import fsdecode

from harness.facts.git_command import GitCommand
from harness.facts.git_export import TreeEntry, parse_tree
from harness.model.errors import ConfigurationError

_LFS_START = b"version https://git-lfs.github.com/spec/"
_LFS_MAX_BYTES = 1024
"""A pointer file is smaller, by the Git LFS specification."""


@dataclass(slots=True)
class _Kept:
    trees: dict[str, tuple[TreeEntry, ...]] = field(default_factory=dict)
    blobs: dict[str, bytes] = field(default_factory=dict)


class GitObjects:
    """The objects of one repository, whatever its configuration and attributes say."""

    def __init__(self, git: GitCommand) -> None:
        self._git = git
        self._kept: _Kept | None = None

    @contextmanager
    def kept(self) -> Iterator[None]:
        """While it lasts, trees and blobs that were read stay in memory."""
        self._kept = _Kept()
        try:
            yield
        finally:
            self._kept = None

    def tree(self, commit: str, path: bytes | None = None) -> tuple[TreeEntry, ...]:
        """Every entry of a commit, or of those the one of a path."""
        known = self._kept.trees if self._kept is not None and path is None else {}
        if commit not in known:
            with self._git.objects_only() as git:
                only = [] if path is None else ["--", fsdecode(path)]
                known[commit] = parse_tree(git.run("ls-tree", "-r", "-z", "--full-tree", commit, *only).out)
        return known[commit]

    def blobs(self, object_ids: Sequence[str]) -> dict[str, bytes]:
        """The bytes of blobs by their names.

        Raises:
            ConfigurationError: an object that the clone does not have.
        """
        known = self._kept.blobs if self._kept is not None else {}
        wanted = [i for i in dict.fromkeys(object_ids) if i not in known]
        if wanted:
            known.update(self._read(wanted))
        return {object_id: known[object_id] for object_id in object_ids}

    def lfs_pointers(self, object_ids: Sequence[str]) -> frozenset[str]:
        """Those of the objects that are Git LFS pointers."""
        wanted = list(dict.fromkeys(object_ids))
        if not wanted:
            return frozenset()
        with self._git.objects_only() as git:
            stdin = "".join(f"{i}\n" for i in wanted).encode()
            lines = git.run("cat-file", "--batch-check=%(objectname) %(objectsize)", stdin=stdin).out
        fields = [line.split(b" ") for line in lines.splitlines()]
        small = [i.decode() for i, size in fields if size.isdigit() and int(size) < _LFS_MAX_BYTES]
        return frozenset(i for i, content in self.blobs(small).items() if content.startswith(_LFS_START))

    def _read(self, wanted: Sequence[str]) -> Iterator[tuple[str, bytes]]:
        with self._git.objects_only() as git:
            stdin = "".join(f"{i}\n" for i in wanted).encode()
            output = git.run("cat-file", "--batch", "--buffer", stdin=stdin).out
        position = 0
        for object_id in wanted:
            end = output.index(b"\n", position)
            fields = output[position:end].split(b" ")
            if fields[-1] == b"missing":
                raise incomplete(f"Object {object_id[:12]} is not in this clone.")
            start, position = end + 1, end + 1 + int(fields[2]) + 1
            yield object_id, output[start : position - 1]


def incomplete(message: str) -> ConfigurationError:
    """The error of a clone without all of the history."""
    return ConfigurationError(
        "incomplete-clone",
        message,
        "Bring the history with `git fetch --unshallow` (in a workflow: checkout with fetch-depth: 0).",
    )
