"""Operands of an instruction, from its tokens."""

from __future__ import annotations

from harness.audit.ptx.syntax import Arguments, Garbled, Memory, Name, Number, Pair, Term, Vector
from harness.audit.ptx.tokens import BRACKETS, Token, integer_of

_OPEN = {"(": ")", "[": "]", "{": "}"}


def parse_operands(tokens: list[Token]) -> tuple[Term, ...]:
    """The operands, split at commas outside brackets."""
    return tuple(_parse_operand(part) for part in _split(tokens))


def _split(tokens: list[Token]) -> list[list[Token]]:
    parts: list[list[Token]] = [[]]
    depth = 0
    for token in tokens:
        depth += BRACKETS.get(token.text, 0)
        if token.text == "," and depth <= 0:
            parts.append([])
        else:
            parts[-1].append(token)
    return parts if parts != [[]] else []


def _parse_operand(tokens: list[Token]) -> Term:
    if len(tokens) > 1 and tokens[-1].text == ".unified":
        tokens = tokens[:-1]
    return _parse_term(tokens) or Garbled(" ".join(t.text for t in tokens))


def _parse_term(tokens: list[Token]) -> Term | None:
    if len(tokens) < 2:
        return _parse_simple(tokens) if tokens else None
    head = tokens[0].text
    if head in _OPEN and tokens[-1].text == _OPEN[head]:
        inside = tokens[1:-1]
        if head == "[":
            return _parse_memory(inside)
        items = parse_operands(inside)
        return Vector(items) if head == "{" else Arguments(items)
    if any(t.text == "|" for t in tokens):
        cut = next(i for i, t in enumerate(tokens) if t.text == "|")
        return Pair(_parse_operand(tokens[:cut]), _parse_operand(tokens[cut + 1 :]))
    return _parse_simple(tokens)


def _parse_simple(tokens: list[Token]) -> Term | None:
    if tokens[0].text == "!" and len(tokens) == 2 and tokens[1].kind == "word":
        return Name(tokens[1].text, negated=True)
    if len(tokens) == 1 and tokens[0].kind == "word":
        return Name(tokens[0].text)
    if len(tokens) == 4 and tokens[0].kind == "word" and tokens[1].text == "(":
        return Name(tokens[2].text)  # generic(variable)
    if (
        tokens[0].kind == "word"
        and len(tokens) == 3
        and tokens[1].text in "+-"
        and tokens[2].kind == "number"
    ):
        offset = integer_of(tokens[2].text)
        return (
            Memory(Name(tokens[0].text), (-1 if tokens[1].text == "-" else 1) * offset)
            if offset is not None
            else None
        )
    return _parse_number(tokens)


def _parse_number(tokens: list[Token]) -> Number | None:
    sign = 1
    rest = tokens
    while rest and rest[0].text in "+-":
        sign = -sign if rest[0].text == "-" else sign
        rest = rest[1:]
    if len(rest) != 1 or rest[0].kind != "number":
        return None
    value = integer_of(rest[0].text)
    return Number(None if value is None else sign * value)


def _parse_memory(tokens: list[Token]) -> Memory | None:
    parts = _split(tokens)
    if not parts or not parts[0]:
        return None
    others = tuple(_parse_operand(p) for p in parts[1:])
    base = parts[0]
    if base[0].kind == "number":
        number = _parse_number(base)
        return None if number is None or number.value is None else Memory(None, number.value, others)
    if base[0].kind != "word":
        return None
    offset, rest = 0, base[1:]
    while rest:
        cut = next(
            (i for i, t in enumerate(rest) if i and t.text == "+" and rest[i - 1].kind == "number"), len(rest)
        )
        number = _parse_number(rest[:cut])
        if number is None or number.value is None:
            return None
        offset, rest = offset + number.value, rest[cut:]
    return Memory(Name(base[0].text), offset, others)
