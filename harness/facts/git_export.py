"""Writes the files of a commit, byte for byte, where an engine imports them."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.facts.git_diff import LINK_MODE, SUBMODULE_MODE
from harness.model.errors import ConfigurationError
from harness.model.path_text import escape_path, unescape_path
from harness.model.paths import is_plain, link_destination


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeEntry:
    """One name in the tree of a commit."""

    mode: str
    object_id: str
    path: str
    """Escaped as in evidence."""

    @property
    def is_regular(self) -> bool:
        """Whether it is a file, not a link or a submodule."""
        return self.mode.startswith("100")

    @property
    def is_submodule(self) -> bool:
        """Whether it names a commit of another repository."""
        return self.mode == SUBMODULE_MODE


def parse_tree(output: bytes) -> tuple[TreeEntry, ...]:
    """The entries of `git ls-tree -r -z`."""
    entries = []
    for record in output.split(b"\0")[:-1]:
        head, name = record.split(b"\t", 1)
        mode, _kind, object_id = head.decode("ascii").split(" ")
        entries.append(TreeEntry(mode=mode, object_id=object_id, path=escape_path(name)))
    return tuple(entries)


def export_files(entries: Sequence[TreeEntry], blobs: Mapping[str, bytes], folder: Path) -> dict[str, str]:
    """Writes regular files as they are, and a link to one of them as a copy of its bytes.

    Links are never written as links, so nothing can be written or imported through one. Links to anything else
    and submodules are left out.

    Args:
        entries: what to write.
        blobs: content by object id.
        folder: new or empty.

    Returns:
        Path to sha256 of each file written.

    Raises:
        ConfigurationError: the folder is in use, or names collide or would leave it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise ConfigurationError("export-folder", f"The folder for the subject's files, {folder}, is in use.")
    regular = {entry.path: entry for entry in entries if entry.is_regular}
    written = {}
    for entry in entries:
        source = regular.get(entry.path) if entry.is_regular else _linked(entry, blobs, regular)
        if source is None:
            continue
        if not is_plain(entry.path):
            raise ConfigurationError(
                "bad-tree", f"The commit holds a path that leaves its folder: {entry.path}"
            )
        content = blobs[source.object_id]
        _write(folder, entry.path, content, executable=source.mode == "100755")
        written[entry.path] = hashlib.sha256(content).hexdigest()
    return written


def _linked(
    entry: TreeEntry, blobs: Mapping[str, bytes], regular: Mapping[str, TreeEntry]
) -> TreeEntry | None:
    if entry.mode != LINK_MODE:
        return None
    destination = link_destination(entry.path, escape_path(blobs[entry.object_id]))
    return None if destination is None else regular.get(destination)


def _write(folder: Path, path: str, content: bytes, *, executable: bool) -> None:
    target = Path(os.fsdecode(os.path.join(os.fsencode(folder), unescape_path(path))))  # noqa: PTH118
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("xb") as file:
            file.write(content)
        target.chmod(0o755 if executable else 0o644)
    except (FileExistsError, NotADirectoryError) as error:
        raise ConfigurationError(
            "export-collision", f"{path} collides with another file of the commit in this file system."
        ) from error
