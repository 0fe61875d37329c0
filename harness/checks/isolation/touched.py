"""How large a change is and who owns what it touches: information, no ruling."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from harness.model.change import ChangedFile
from harness.model.codeowners import CodeOwners
from harness.model.evidence import OwnersEvidence

_SIZES = ((10, "XS"), (30, "S"), (100, "M"), (500, "L"), (1000, "XL"))
"""Changed lines below which a change has a size; the classes of Prow's size plugin (Kubernetes)."""


def size_class(num_lines: int) -> str:
    """The size of a change of so many added and deleted lines."""
    return next((name for limit, name in _SIZES if num_lines < limit), "XXL")


def describe_size(files: Iterable[ChangedFile]) -> str:
    """Size class and counts of what is neither test nor document."""
    counted = tuple(files)
    added = sum(file.added_lines or 0 for file in counted)
    deleted = sum(file.deleted_lines or 0 for file in counted)
    uncounted = sum(file.added_lines is None for file in counted)
    text = (
        f"Size {size_class(added + deleted)}: {added} lines added, {deleted} deleted in {len(counted)} files"
    )
    return f"{text}, {uncounted} of them without lines" if uncounted else text


def describe_owners(paths: Iterable[str], record: OwnersEvidence | None) -> tuple[str, list[str]]:
    """One sentence on the owners of paths, and a line for each set of owners."""
    if record is None:
        return "Who owns them was not read.", []
    if not record.path:
        return "The merge base has no CODEOWNERS file.", []
    owners = CodeOwners(record.text)
    counts = Counter(" ".join(owners.owners_of(path)) for path in paths)
    nobody = counts.pop("", 0)
    lines = [f"{names}: {count} files" for names, count in sorted(counts.items())]
    names = sorted({name for group in counts for name in group.split()})
    text = f"Owners by {record.path} of the merge base: {', '.join(names) or 'none'}"
    return f"{text}; {nobody} files have none." if nobody else f"{text}.", lines
