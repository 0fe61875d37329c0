"""PDL005: inline assembly in source text that waits for earlier grids without telling the compiler so.

A `griddepcontrol.wait` in inline assembly orders memory for the machine. The compiler may still move a plain load
across it unless the statement says that it touches memory: a `"memory"` clobber in CUDA C++, `~{memory}` in an LLVM
constraint string (CuTe DSL, MLIR). `volatile` and "has side effects" keep the statement itself, not the loads around
it. Loads that cannot move (volatile, or inline assembly with side effects of its own) make a missing clobber
harmless.

The lint reads text with expressions, not a parsed program: what it cannot attribute is said to be undecided.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from harness.audit.decide import Decision

_WAIT = "griddepcontrol.wait"
_CUDA = re.compile(r"\basm\b\s*(?P<kind>(?:__?volatile__?|volatile)\s*)?\(")
_CALL = re.compile(r"\b(?P<name>(?:\w+\.)*inline_asm(?:_elementwise|_op)?)\s*\(")
_STRING = re.compile(r'"((?:[^"\\\n]|\\.)*)"' + r"|'((?:[^'\\\n]|\\.)*)'")
_CONSTRAINT = re.compile(r"\bconstraints?\s*=\s*(?:\"([^\"]*)\"|'([^']*)')")
_PLAIN_LOAD = re.compile(
    r"__ldg\s*\(|__ldca\s*\(|\bautovec_copy\s*\(|\bcute\.copy\s*\(|\btl\.load\s*\(|"
    r"=\s*\*?\s*\w+\s*\[[^\]=]+\](?!\s*=)"
)
_VOLATILE_LOAD = re.compile(r"volatile")


@dataclass(frozen=True, slots=True, kw_only=True)
class LintResult:
    """What was found about one wait, or about a text without any."""

    decision: Decision
    line: int
    text: str
    reason: str


def lint_source(text: str) -> tuple[LintResult, ...]:
    """One result for each inline-assembly wait of a CUDA C++, CuTe DSL or Triton text; empty when it has none."""
    clean = _without_comments(text)
    return tuple(_judge(text, clean, statement) for statement in _statements(clean))


@dataclass(frozen=True, slots=True)
class _Statement:
    """One inline-assembly statement that contains the wait."""

    start: int
    end: int
    body: str
    is_cuda: bool


def _statements(text: str) -> Iterator[_Statement]:
    for pattern, is_cuda in ((_CUDA, True), (_CALL, False)):
        for match in pattern.finditer(text):
            end = _closing(text, match.end() - 1)
            body = text[match.start() : end]
            if end > match.end() and _WAIT in body:
                yield _Statement(match.start(), end, body, is_cuda)


def _closing(text: str, start: int) -> int:
    """The position after the bracket that closes the one at `start`; `start` when none does."""
    depth = 0
    position = start
    while position < len(text):
        string = _STRING.match(text, position)
        if string is not None:
            position = string.end()
            continue
        if text[position] == "(":
            depth += 1
        elif text[position] == ")":
            depth -= 1
            if depth == 0:
                return position + 1
        position += 1
    return start


def _without_comments(text: str) -> str:
    """The text with comments blanked, so that places stay what they were. A `#` is a comment only in text that has no
    C++ statement, where it begins a directive."""

    def blank(match: re.Match[str]) -> str:
        return match.group(0) if match.group(1) else re.sub(r"[^\n]", " ", match.group(0))

    strings = r'("(?:[^"\\\n]|\\.)*"|\'(?:[^\'\\\n]|\\.)*\')'
    text = re.sub(strings + r"|//[^\n]*|/\*.*?\*/", blank, text, flags=re.DOTALL)
    is_cuda = _CUDA.search(text) is not None or "#include" in text
    return text if is_cuda else re.sub(strings + r"|#[^\n]*", blank, text)


def _judge(text: str, clean: str, statement: _Statement) -> LintResult:
    line = text.count("\n", 0, statement.start) + 1
    shown = " ".join(text[statement.start : statement.end].split())[:160]

    def result(decision: Decision, reason: str) -> LintResult:
        return LintResult(decision=decision, line=line, text=shown, reason=reason)

    clobbers = _clobbers(statement)
    if clobbers is None:
        return result(Decision.UNDECIDED, "The constraints of the statement could not be read.")
    if clobbers:
        return result(Decision.PROVEN, "The statement says that it touches memory.")
    if statement.is_cuda and not re.match(r"asm\s*(__)?volatile", statement.body):
        reason = (
            "No memory clobber, and not volatile: the compiler may move loads across the wait, or drop it."
        )
        return result(Decision.SHOWN, reason)
    load = _movable_load(clean, statement)
    if load is None:
        reason = "No memory clobber, and no plain load seen near it in this text: its callers decide."
        return result(Decision.UNDECIDED, reason)
    return result(
        Decision.SHOWN, f"No memory clobber: the compiler may move the plain load in line {load} across."
    )


def _clobbers(statement: _Statement) -> bool | None:
    """Whether memory is among the clobbers; None when they cannot be told."""
    if statement.is_cuda:
        return re.search(r':[^:]*"memory"[^:]*$', statement.body) is not None
    named = _CONSTRAINT.search(statement.body)
    if named is not None:
        return "~{memory}" in (named.group(1) or named.group(2) or "")
    strings = [a or b for a, b in _STRING.findall(statement.body)]
    if len(strings) < 2:
        return None
    return any("~{memory}" in s for s in strings)


def _movable_load(text: str, statement: _Statement) -> int | None:
    """The line of a plain load in the function around the statement."""
    start, end = _function_around(text, statement)
    for match in _PLAIN_LOAD.finditer(text, start, end):
        if statement.start <= match.start() < statement.end:
            continue
        line_start = text.rfind("\n", 0, match.start()) + 1
        line_end = text.find("\n", match.end())
        if not _VOLATILE_LOAD.search(text, line_start, line_end if line_end >= 0 else len(text)):
            return text.count("\n", 0, match.start()) + 1
    return None


def _function_around(text: str, statement: _Statement) -> tuple[int, int]:
    """From the last unindented line (or line that ends a block) before the statement to the next after it."""
    starts = [m.start() for m in re.finditer(r"^(?=[^\s})])", text, re.MULTILINE)]
    before = [s for s in starts if s <= statement.start]
    after = [s for s in starts if s > statement.end]
    return (before[-1] if before else 0), (after[0] if after else len(text))
