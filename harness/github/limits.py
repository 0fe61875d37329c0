"""How much GitHub takes, and texts cut to it that say so.

The limits are GitHub's: those of check runs stand in its API description; of comments, code scanning and job summaries
in its documentation.
"""

from __future__ import annotations

MAX_COMMENT = 65_536
MAX_CHECK_TEXT = 65_535
MAX_TITLE = 255
MAX_ANNOTATIONS_A_REQUEST = 50
MAX_ANNOTATIONS = 250
"""Five requests; what is more is counted in the summary."""
MAX_ANNOTATION_BYTES = 60_000
"""GitHub takes 64 KB."""
MAX_SUMMARY_HEAD = 12_000
"""Characters before the report in a job summary, which takes 1 MiB: the report has 1,000,000 bytes of it at most."""
MAX_SARIF_BYTES = 10_000_000
"""Packed."""


def cut_line(text: str, num_characters: int) -> str:
    """The text on one line, with an ellipsis where something was cut."""
    line = " ".join(text.split())
    return line if len(line) <= num_characters else line[: num_characters - 1] + "…"


def cut_text(text: str, num_characters: int) -> str:
    """The first lines of a text that fit, and how many were left out."""
    if len(text) <= num_characters:
        return text
    lines = text.splitlines(keepends=True)
    room = num_characters - 100
    kept: list[str] = []
    for line in lines:
        room -= len(line)
        if room < 0:
            break
        kept.append(line)
    left_out = len(lines) - len(kept)
    return "".join(kept) + f"\n\n*{left_out} of {len(lines)} lines are left out: they would not fit here.*\n"
