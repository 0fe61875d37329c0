"""The hunks of a patch without context, and the lines that they hold."""

from __future__ import annotations

import re
from dataclasses import dataclass

from harness.facts.python_source.tree import SourceTree
from harness.model.reach import GuardState, Hunk

_HEADER = re.compile(rb"^@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@", flags=re.MULTILINE)
_MAX_LINES = 60
"""Lines of a hunk that are kept; a hunk of a hook within its budget is far below."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Where a hunk stands: lines from 1; with no lines, the line before."""

    base_line: int
    num_base: int
    head_line: int
    num_head: int

    @property
    def head_lines(self) -> range:
        """The lines that the change wrote."""
        return range(self.head_line, self.head_line + self.num_head)

    @property
    def base_lines(self) -> range:
        """The lines that the change took away."""
        return range(self.base_line, self.base_line + self.num_base)

    def text(self, base: list[str], head: list[str]) -> tuple[list[str], list[str]]:
        """The lines that were taken away, and those that were written."""
        return (
            base[self.base_line - 1 :][: self.num_base] if self.num_base else [],
            head[self.head_line - 1 :][: self.num_head] if self.num_head else [],
        )


def parse_spans(patch: bytes) -> tuple[Span, ...]:
    """The hunks of `git diff --unified=0` of one file."""
    return tuple(
        Span(base_line=int(a), num_base=int(b) if b else 1, head_line=int(c), num_head=int(d) if d else 1)
        for a, b, c, d in _HEADER.findall(patch)
    )


def hunk_of(
    span: Span,
    base: SourceTree,
    head: SourceTree,
    path: str,
    *,
    state: GuardState,
    reason: str,
    guards: tuple[str, ...] = (),
    names_subject: bool,
) -> Hunk:
    """The hunk as evidence."""
    old, new = span.text(base.lines(path), head.lines(path))
    lines = [f"-{line}" for line in old] + [f"+{line}" for line in new]
    more = len(lines) - _MAX_LINES
    return Hunk(
        base_line=span.base_line,
        num_base_lines=span.num_base,
        head_line=span.head_line,
        num_head_lines=span.num_head,
        lines=tuple(lines if more <= 0 else [*lines[:_MAX_LINES], f"… {more} more lines"]),
        state=state,
        reason=reason,
        guards=guards,
        names_subject=names_subject,
    )
