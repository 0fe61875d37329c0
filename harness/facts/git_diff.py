"""Reads `git diff-tree -r -z --raw --numstat`."""

from __future__ import annotations

from dataclasses import dataclass, replace

from harness.model.change import ChangedFile, FileStatus
from harness.model.errors import EvidenceError
from harness.model.path_text import escape_path

LINK_MODE = "120000"
SUBMODULE_MODE = "160000"
_STATUS: dict[str, FileStatus] = {
    "A": "added",
    "M": "modified",
    "D": "deleted",
    "R": "renamed",
    "C": "copied",
    "T": "type_changed",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class DiffEntry:
    """One changed file with the object that it became."""

    name: bytes
    old_name: bytes | None
    status: FileStatus
    old_mode: str
    new_mode: str
    new_object: str
    same_content: bool
    counts: tuple[int, int] | None = None
    """Added and deleted lines; None for binary files."""

    def changed_file(self, link_target: bytes | None, *, is_lfs_pointer: bool = False) -> ChangedFile:
        """The entry as evidence."""
        kinds = {self.new_mode, self.old_mode if self.status != "added" else self.new_mode}
        is_special = bool(kinds & {LINK_MODE, SUBMODULE_MODE})
        counts = None if is_special else self.counts
        return ChangedFile(
            path=escape_path(self.name),
            status=self.status,
            old_path=None if self.old_name is None else escape_path(self.old_name),
            old_mode=self.old_mode,
            new_mode=self.new_mode,
            added_lines=None if counts is None else counts[0],
            deleted_lines=None if counts is None else counts[1],
            is_binary=not is_special and self.counts is None,
            is_lfs_pointer=is_lfs_pointer,
            link_target=None if link_target is None else escape_path(link_target),
        )


def parse_diff(output: bytes) -> tuple[DiffEntry, ...]:
    """The entries of a diff in git's order; raises `EvidenceError` on anything that is not such an output."""
    if output and not output.endswith(b"\0"):
        raise EvidenceError("git-diff", "git's diff output ends in the middle of a record.")
    tokens = output.split(b"\0")[:-1]
    entries: list[DiffEntry] = []
    counts: dict[bytes, tuple[int, int] | None] = {}
    position = 0
    try:
        while position < len(tokens):
            if tokens[position].startswith(b":"):
                entry, position = _parse_raw(tokens, position)
                entries.append(entry)
            else:
                name, numbers, position = _parse_numstat(tokens, position)
                counts[name] = numbers
    except (IndexError, ValueError, KeyError) as error:
        raise EvidenceError("git-diff", "git's diff output is not in the expected format.") from error
    return tuple(_with_counts(entry, counts) for entry in entries)


def _parse_raw(tokens: list[bytes], position: int) -> tuple[DiffEntry, int]:
    head = tokens[position][1:].decode("ascii").split(" ")
    old_mode, new_mode, old_object, new_object, letter = head
    status = _STATUS[letter[:1]]
    has_two_names = status in ("renamed", "copied")
    names = tokens[position + 1 : position + (3 if has_two_names else 2)]
    entry = DiffEntry(
        name=names[-1],
        old_name=names[-2] if has_two_names else None,
        status=status,
        old_mode=old_mode,
        new_mode=new_mode,
        new_object=new_object,
        same_content=old_object == new_object,
    )
    return entry, position + 1 + len(names)


def _parse_numstat(tokens: list[bytes], position: int) -> tuple[bytes, tuple[int, int] | None, int]:
    added, deleted, name = tokens[position].split(b"\t", 2)
    numbers = None if added == b"-" else (int(added), int(deleted))
    if name:
        return name, numbers, position + 1
    return tokens[position + 2], numbers, position + 3


def _with_counts(entry: DiffEntry, counts: dict[bytes, tuple[int, int] | None]) -> DiffEntry:
    if entry.name in counts:
        return replace(entry, counts=counts[entry.name])
    if entry.same_content:
        return replace(entry, counts=(0, 0))
    raise EvidenceError("git-diff", f"git counted no lines of {escape_path(entry.name)}.")
