"""Who owns a path by a CODEOWNERS file, by the rules that GitHub documents for it.

The last matching line counts; a line without owners takes ownership away. Patterns are those of `.gitignore`, except
that `!`, `[ ]` and an escaped `#` do not work; lines that use them are skipped, as GitHub skips invalid lines.
Source: "About code owners", GitHub documentation.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

CODEOWNERS_PATHS = (".github/CODEOWNERS", "CODEOWNERS", "docs/CODEOWNERS")
"""In the order in which GitHub looks for it."""
_MAX_BYTES = 3 * 2**20
"""GitHub does not load a larger file."""
_OWNER = re.compile(r"@[\w.-]+(?:/[\w.-]+)?|[^@\s]+@[^@\s]+\.[^@\s]+")
_PART = re.compile(r"(?:\\.|[^\s\\])+")


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnerRule:
    """One line of the file."""

    line: int
    pattern: str
    owners: tuple[str, ...]
    expression: re.Pattern[str]


@dataclass(frozen=True)
class CodeOwners:
    """A parsed file."""

    text: str

    @cached_property
    def rules(self) -> tuple[OwnerRule, ...]:
        """The valid lines in order; none of a file that is larger than 3 MiB."""
        if len(self.text.encode()) > _MAX_BYTES:
            return ()
        numbered = enumerate(self.text.splitlines(), 1)
        return tuple(rule for number, line in numbered if (rule := _parse_line(number, line)) is not None)

    def owners_of(self, path: str) -> tuple[str, ...]:
        """The owners of a repository path; none when no line gives it any."""
        for rule in reversed(self.rules):
            if rule.expression.fullmatch(path):
                return rule.owners
        return ()


def _parse_line(number: int, line: str) -> OwnerRule | None:
    parts = _PART.findall(line.strip())
    if not parts or parts[0].startswith("#"):
        return None
    pattern, rest = parts[0], parts[1:]
    comment = next((i for i, part in enumerate(rest) if part.startswith("#")), len(rest))
    owners = tuple(rest[:comment])
    if pattern.startswith("!") or any(c in pattern for c in "[]") or not all(map(_OWNER.fullmatch, owners)):
        return None
    expression = _expression(pattern.replace("\\ ", " "))
    return OwnerRule(line=number, pattern=pattern, owners=owners, expression=expression)


def _expression(pattern: str) -> re.Pattern[str]:
    """Matches the paths below or at a pattern: without a slash before its end it may lie in any folder."""
    is_folder = pattern.endswith("/")
    body = pattern.strip("/")
    anchored = pattern.startswith("/") or "/" in body
    text = "" if anchored or body.startswith("**/") else "(?:.*/)?"
    parts = body.split("/")
    for index, part in enumerate(parts):
        is_last = index == len(parts) - 1
        if part == "**":
            text += ".*" if is_last else "(?:[^/]+/)*"
            continue
        text += "".join(
            "[^/]*" if c == "*" else "[^/]" if c == "?" else re.escape(c) for c in part.replace("**", "*")
        )
        text += "" if is_last else "/"
    if is_folder:
        return re.compile(text + "/.*")
    # `docs/*` owns the files in docs and none below its folders; `docs/a` and `*.js` own a folder of that name too.
    only_files = parts[-1] == "*" and len(parts) > 1
    return re.compile(text if only_files or parts[-1] == "**" else text + "(?:/.*)?")
