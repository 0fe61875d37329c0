"""The change under judgement, as git tells it."""

from __future__ import annotations

from typing import Literal

from harness.model.record import Record

FileStatus = Literal["added", "modified", "deleted", "renamed", "copied", "type_changed"]
EMPTY_TREE = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"
"""git's name for the tree without files: the base of a change that is judged as wholly new."""


class ChangedFile(Record):
    """One entry of the diff. Paths are repository-relative; bytes that are not UTF-8 are backslash-escaped."""

    path: str
    status: FileStatus
    old_path: str | None = None
    """Where a renamed or copied file came from."""
    old_mode: str
    """Six octal digits as git writes them; "000000" where the file did not exist."""
    new_mode: str
    added_lines: int | None
    """None for binary files, submodules and links."""
    deleted_lines: int | None
    is_binary: bool
    is_lfs_pointer: bool = False
    """Whether the head holds a Git LFS pointer: the content itself lies outside the repository."""
    link_target: str | None = None
    """Where a symbolic link points at the head, as committed and escaped like a path; None for other files."""
    rivals: tuple[str, ...] = ()
    """Other files of the head that Python may import under the name of this module."""


class Change(Record):
    """Which commits are compared; `merge_base` is what the head is judged against."""

    base: str
    """The revision as asked for, resolved to 40 hex digits."""
    merge_base: str
    head: str
    head_subject: str
    """First line of the head's commit message: untrusted text."""
    limited_to: tuple[str, ...] = ()
    """Globs from `--paths`; empty when the whole diff is judged."""
    uncommitted_files: int = 0
    """Files changed in the working tree and not committed: they are not judged."""

    @property
    def held_by(self) -> str:
        """The commit that says what the change is held to: a change must not bring that itself.

        The merge base, or the head where that is judged as wholly new.
        """
        return self.head if self.merge_base == EMPTY_TREE else self.merge_base
