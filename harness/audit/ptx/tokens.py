"""PTX text as tokens that know their line."""

from __future__ import annotations

import re
from typing import NamedTuple

_TOKEN = re.compile(
    r"""
    [ \t\r\f\v]*+ (?:
      (?P<space>\n\s*+|//[^\n]*|/\*.*?\*/)
    | (?P<string>"(?:\\.|[^"\\\n])*")
    | (?P<word>[.%$_A-Za-z][\w.$%]*(?:::[\w.$]+)*)
    | (?P<number>0[fF][0-9a-fA-F]{8}|0[dD][0-9a-fA-F]{16}|0[xX][0-9a-fA-F]+U?|0[bB][01]+U?
        |\d+\.\d*(?:[eE][-+]?\d+)?|\d+U?)
    | (?P<mark>[()\[\]{},;:=+\-*/<>|@!~&^?])
    | (?P<bad>.) )
    """,
    re.VERBOSE | re.DOTALL | re.ASCII,
)

BRACKETS = {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}
"""What a mark adds to the depth."""


class Token(NamedTuple):
    """A piece of text: `kind` is word, number, string, mark or bad."""

    kind: str
    text: str
    line: int
    start: int
    end: int


def tokenize(text: str) -> list[Token]:
    """All tokens of `text`; characters that PTX does not have become `bad` tokens, an open comment too."""
    tokens: list[Token] = []
    line = 1
    for match in _TOKEN.finditer(text):
        kind = match.lastgroup or "bad"
        piece = match[kind]
        if kind == "space":
            line += piece.count("\n")
        else:
            tokens.append(Token(kind, piece, line, *match.span(kind)))
    return tokens


def integer_of(text: str) -> int | None:
    """The value of a number token; a float's bits; None for a decimal float."""
    digits = text if text[:2].lower() == "0f" else text.rstrip("U")
    head = digits[:2].lower()
    if head in ("0x", "0f", "0d"):
        return int(digits[2:], 16)
    if head == "0b":
        return int(digits[2:], 2)
    if not digits.isdigit():
        return None
    is_octal = len(digits) > 1 and digits[0] == "0" and all(c in "01234567" for c in digits)
    return int(digits, 8 if is_octal else 10)
