"""Whether a text obeys a grammar written as the engine takes it: a small EBNF, its rules named by `name ::= ...`.

Written against the notation that llama.cpp's GBNF documents and xgrammar accepts: strings, character classes, groups,
alternatives, the repetitions `? * + {m} {m,} {m,n}`, and references to rules. The whole text must derive from `root`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

_TOKEN = re.compile(
    r'\s*(?:(?P<rule>[A-Za-z_][\w-]*)\s*::=|(?P<string>"(?:[^"\\]|\\.)*")|(?P<set>\[(?:[^\]\\]|\\.)*\])'
    r"|(?P<times>[?*+]|\{\d+(?:,\d*)?\})|(?P<mark>[|()])|(?P<name>[A-Za-z_][\w-]*))"
)
MAX_DEPTH = 60
"""Rules inside rules, beyond which a text is not derived: a left-recursive rule goes on for ever."""

Ends = Callable[["_Derivation", int], frozenset[int]]
"""From where a piece of the grammar starts in the text to every place where it can end."""


class GrammarError(ValueError):
    """A text that is no grammar of this notation."""


@dataclass(slots=True)
class _Derivation:
    text: str
    rules: Mapping[str, Ends]
    depth: int = 0
    known: dict[tuple[str, int], frozenset[int]] = field(default_factory=dict)

    def ends_of(self, name: str, start: int) -> frozenset[int]:
        if name not in self.rules:
            raise GrammarError(f"no rule is named {name}")
        if (name, start) not in self.known:
            if self.depth > MAX_DEPTH:
                raise GrammarError(f"rule {name} does not come to an end")
            self.depth += 1
            self.known[name, start] = self.rules[name](self, start)
            self.depth -= 1
        return self.known[name, start]


def obeys_grammar(text: str, grammar: str) -> bool:
    """Whether the whole text derives from the grammar's rule `root`; raises `GrammarError` for no grammar."""
    derivation = _Derivation(text, _Parser(grammar).rules())
    return len(text) in derivation.ends_of("root", 0)


class _Parser:
    """Recursive descent over the grammar's own notation."""

    def __init__(self, grammar: str) -> None:
        self._tokens: list[tuple[str, str]] = []
        position = 0
        grammar = grammar.rstrip()
        while position < len(grammar):
            match = _TOKEN.match(grammar, position)
            if match is None or match.lastgroup is None:
                raise GrammarError(f"cannot be read at {grammar[position : position + 20]!r}")
            self._tokens.append((match.lastgroup, match[match.lastgroup]))
            position = match.end()

    def rules(self) -> dict[str, Ends]:
        found: dict[str, Ends] = {}
        while self._tokens:
            kind, name = self._tokens.pop(0)
            if kind != "rule":
                raise GrammarError(f"{name!r} belongs to no rule")
            found[name] = self._alternatives()
        return found

    def _alternatives(self) -> Ends:
        options = [self._sequence()]
        while self._tokens and self._tokens[0] == ("mark", "|"):
            self._tokens.pop(0)
            options.append(self._sequence())
        return lambda d, start: frozenset().union(*(option(d, start) for option in options))

    def _sequence(self) -> Ends:
        pieces: list[Ends] = []
        while self._tokens and self._tokens[0][0] != "rule" and self._tokens[0] not in _SEQUENCE_ENDS:
            pieces.append(self._repeated(self._piece()))

        def ends(d: _Derivation, start: int) -> frozenset[int]:
            reached = frozenset({start})
            for piece in pieces:
                reached = frozenset(end for place in reached for end in piece(d, place))
            return reached

        return ends

    def _piece(self) -> Ends:
        kind, token = self._tokens.pop(0)
        if kind == "string":
            return _literal(token[1:-1].encode().decode("unicode_escape"))
        if kind == "set":
            return _one_of(re.compile(token))
        if kind == "name":
            return lambda d, start: d.ends_of(token, start)
        if token != "(":
            raise GrammarError(f"{token!r} stands where something must begin")
        inner = self._alternatives()
        if not self._tokens or self._tokens.pop(0) != ("mark", ")"):
            raise GrammarError("a bracket is not closed")
        return inner

    def _repeated(self, piece: Ends) -> Ends:
        if not self._tokens or self._tokens[0][0] != "times":
            return piece
        least, most = _bounds(self._tokens.pop(0)[1])

        def ends(d: _Derivation, start: int) -> frozenset[int]:
            reached, found, count = frozenset({start}), set[int](), 0
            while reached:
                if count >= least:
                    if reached <= found:
                        break
                    found |= reached
                if count == most:
                    break
                reached = frozenset(end for place in reached for end in piece(d, place))
                count += 1
            return frozenset(found)

        return ends


_SEQUENCE_ENDS = (("mark", "|"), ("mark", ")"))


def _literal(word: str) -> Ends:
    return lambda d, start: frozenset({start + len(word)} if d.text.startswith(word, start) else ())


def _one_of(characters: re.Pattern[str]) -> Ends:
    return lambda d, start: frozenset({start + 1} if characters.match(d.text, start) else ())


def _bounds(times: str) -> tuple[int, int | None]:
    fixed: dict[str, tuple[int, int | None]] = {"?": (0, 1), "*": (0, None), "+": (1, None)}
    if times in fixed:
        return fixed[times]
    least, comma, most = times[1:-1].partition(",")
    return int(least), (int(most) if most else None) if comma else int(least)
