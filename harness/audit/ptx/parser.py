"""Tokens → module. Text that fits no rule becomes a `Problem` and the reader goes on after it."""

from __future__ import annotations

from harness.audit.program import Problem, SourceLine
from harness.audit.ptx.declarations import parse_declaration, parse_header
from harness.audit.ptx.operands import parse_operands
from harness.audit.ptx.syntax import Function, Label, Module, Name, Scope, Statement
from harness.audit.ptx.tokens import BRACKETS, Token, integer_of, tokenize

_LINKAGE = (".visible", ".extern", ".weak", ".common")
_HEADERS = (".entry", ".func")
_LINE_DIRECTIVES = (".version", ".target", ".address_size", ".file", ".loc")
_VARIABLES = (".reg", ".local", ".shared", ".global", ".const", ".param", ".tex", ".sreg")
NO_OPCODE = "(unreadable)"
"""Opcode of text that stands where an instruction should."""
_SKIPPED = (".pragma", ".alias", ".attribute", ".minnctapersm", ".maxnreg")


class Parser:
    """One pass over the tokens of a file."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = tokenize(text)
        self._at = 0
        self._num_scopes = 0
        self._source: SourceLine | None = None
        self._callers: dict[tuple[int, ...], tuple[int, ...]] = {}
        self.module = Module(scope=Scope(parent=None, suffix=""))

    def parse(self) -> Module:
        """The whole file; never raises on any text."""
        while self._at < len(self._tokens):
            self._parse_top_level()
        return self.module

    def _peek(self, ahead: int = 0) -> Token | None:
        index = self._at + ahead
        return self._tokens[index] if index < len(self._tokens) else None

    def _parse_top_level(self) -> None:
        token = self._tokens[self._at]
        if token.text in _LINE_DIRECTIVES:
            self._parse_line_directive(self._take_line())
        elif token.text == ".section":
            self._skip_section()
        elif token.text in _HEADERS or (token.text in _LINKAGE and self._is_function()):
            self._parse_function()
        elif token.text in _LINKAGE or token.text in _VARIABLES or token.text in _SKIPPED:
            self._parse_variable(self._take_statement(), self.module.scope, None)
        elif token.text == ";":
            self._at += 1
        else:
            self._complain(self.module.problems, token, "text that starts no PTX declaration")
            self._take_statement()

    def _is_function(self) -> bool:
        index = self._at
        while index < len(self._tokens) and self._tokens[index].text not in (";", "{", "="):
            if self._tokens[index].text in _HEADERS:
                return True
            index += 1
        return False

    def _take_line(self) -> list[Token]:
        start = self._at
        line = self._tokens[start].line
        while self._at < len(self._tokens) and self._tokens[self._at].line == line:
            if self._tokens[self._at].text == ";" or (
                self._at > start and self._tokens[self._at].text in _LINE_DIRECTIVES
            ):
                break
            self._at += 1
        taken = self._tokens[start : self._at]
        if self._at < len(self._tokens) and self._tokens[self._at].text == ";":
            self._at += 1
        return taken

    def _take_statement(self) -> list[Token]:
        """Tokens up to the next `;` outside braces, which is consumed and not returned."""
        start, depth = self._at, 0
        while self._at < len(self._tokens):
            text = self._tokens[self._at].text
            depth += BRACKETS.get(text, 0)
            if text == ";" or depth < 0:
                break
            self._at += 1
        taken = self._tokens[start : self._at]
        ended = self._peek()
        if ended is not None and ended.text == ";":
            self._at += 1
        elif taken:
            self._complain(self.module.problems, taken[0], "a statement without its end")
        if not taken and ended is not None and ended.text != ";":
            self._at += 1
        return taken

    def _skip_section(self) -> None:
        depth = 0
        first = self._tokens[self._at]
        while self._at < len(self._tokens):
            text = self._tokens[self._at].text
            self._at += 1
            depth += {"{": 1, "}": -1}.get(text, 0)
            if text == "}" and depth == 0:
                return
        self._complain(self.module.problems, first, "a section without its end")

    def _parse_line_directive(self, tokens: list[Token]) -> None:
        name, rest = tokens[0].text, tokens[1:]
        if name == ".version":
            parts = rest[0].text.split(".") if rest else []
            if len(parts) == 2 and all(p.isdigit() for p in parts):
                self.module.version = (int(parts[0]), int(parts[1]))
            else:
                self._complain(self.module.problems, tokens[0], "a version that is no number")
        elif name == ".target":
            self.module.target = rest[0].text if rest else ""
        elif name == ".file" and len(rest) >= 2:
            number = integer_of(rest[0].text) if rest[0].kind == "number" else None
            if number is not None:
                self.module.files[number] = rest[1].text.strip('"')
        elif name == ".loc" and len(rest) >= 2:
            self._source = self._parse_loc(rest)

    def _parse_loc(self, rest: list[Token]) -> SourceLine | None:
        """`.loc file line column [, function_name label, inlined_at file line column]`; files stay numbers here."""
        numbers = [integer_of(t.text) if t.kind == "number" else None for t in rest]
        place = tuple(n for n in numbers[:3] if n is not None)
        if len(place) < 2:
            return None
        caller = next((i for i, t in enumerate(rest) if t.text == "inlined_at"), None)
        if caller is None:
            self._callers.pop(place, None)
            return SourceLine(str(place[0]), place[1])
        outer = tuple(n for n in numbers[caller + 1 : caller + 4] if n is not None)
        if len(outer) < 2:
            return SourceLine(str(place[0]), place[1])
        self._callers[place] = outer
        seen = {place}
        while outer in self._callers and outer not in seen:
            seen.add(outer)
            outer = self._callers[outer]
        return SourceLine(str(place[0]), place[1], str(outer[0]), outer[1])

    def _parse_function(self) -> None:
        start = self._at
        depth = 0
        while self._at < len(self._tokens):
            text = self._tokens[self._at].text
            depth += {"(": 1, ")": -1}.get(text, 0)
            if text in ("{", ";") and depth <= 0:
                break
            self._at += 1
        header = self._tokens[start : self._at]
        opened = self._peek()
        if opened is None:
            self._complain(self.module.problems, header[0], "a function header without a body")
            return
        self._at += 1
        if opened.text == ";":
            return
        function = parse_header(header, self.module.problems)
        if function is None:
            self._complain(self.module.problems, header[0], "a function header that cannot be read")
            function = Function(
                name="", is_entry=False, line=header[0].line, params=[], returns=[],
                scope=Scope(parent=None, suffix=""),
            )  # fmt: skip
        elif function.name in self.module.functions:
            self._complain(self.module.problems, header[0], f"a second body of {function.name}")
        self._source = None
        self._parse_body(function)
        if function.name:
            self.module.functions[function.name] = function

    def _parse_body(self, function: Function) -> None:
        function.scope.parent = self.module.scope
        scope = function.scope
        while self._at < len(self._tokens):
            token = self._tokens[self._at]
            if token.text == "{":
                self._num_scopes += 1
                scope = Scope(parent=scope, suffix=f"@{self._num_scopes}")
                self._at += 1
            elif token.text == "}":
                self._at += 1
                if scope is function.scope:
                    return
                scope = scope.parent or function.scope
            elif token.text == ";":
                self._at += 1
            elif token.text in _LINE_DIRECTIVES:
                self._parse_line_directive(self._take_line())
            elif token.text in _HEADERS or (token.text in _LINKAGE and self._is_function()):
                self._complain(function.problems, token, "a function inside a function: a brace is missing")
                return
            else:
                self._parse_body_item(function, scope, token)
        self._complain(function.problems, self._tokens[-1], f"the text ends inside {function.name}")

    def _parse_body_item(self, function: Function, scope: Scope, token: Token) -> None:
        follower = self._peek(1)
        if token.kind == "word" and follower is not None and follower.text == ":":
            self._at += 2
            self._parse_label(function, scope, token)
        elif token.text in _VARIABLES:
            self._parse_variable(self._take_body_statement(function), scope, function)
        elif token.text in _SKIPPED:
            self._take_body_statement(function)
        else:
            self._parse_instruction(function, scope, self._take_body_statement(function))

    def _take_body_statement(self, function: Function) -> list[Token]:
        num_problems = len(self.module.problems)
        tokens = self._take_statement()
        function.problems += self.module.problems[num_problems:]
        del self.module.problems[num_problems:]
        return tokens

    def _parse_label(self, function: Function, scope: Scope, token: Token) -> None:
        follower = self._peek()
        if follower is not None and follower.text in (".branchtargets", ".calltargets", ".callprototype"):
            words = self._take_body_statement(function)
            scope.lists[token.text] = tuple(t.text for t in words[1:] if t.kind == "word")
            return
        if token.text in scope.labels:
            self._complain(function.problems, token, f"a second label {token.text}")
            return
        scope.labels[token.text] = token.text + scope.suffix
        function.body.append(Label(token.text + scope.suffix, token.line))

    def _parse_variable(self, tokens: list[Token], scope: Scope, function: Function | None) -> None:
        problems = self.module.problems if function is None else function.problems
        if not tokens or any(t.text in _SKIPPED for t in tokens[:1]):
            return
        declared = parse_declaration(tokens, scope)
        if declared is None:
            self._complain(problems, tokens[0], "a declaration that cannot be read")
            return
        (self.module.variables if function is None else function.variables).extend(declared)

    def _parse_instruction(self, function: Function, scope: Scope, tokens: list[Token]) -> None:
        if not tokens:
            return
        guard, rest = None, tokens
        if rest[0].text == "@":
            negated = len(rest) > 1 and rest[1].text == "!"
            skip = 2 if negated else 1
            if len(rest) > skip + 1 and rest[skip].kind == "word":
                guard, rest = Name(rest[skip].text, negated), rest[skip + 1 :]
        is_readable = rest[0].kind == "word" and not any(t.kind == "bad" for t in rest)
        function.body.append(
            Statement(
                line=tokens[0].line,
                text=" ".join(self._text[tokens[0].start : tokens[-1].end].split()) + ";",
                opcode=rest[0].text if is_readable else NO_OPCODE,
                guard=guard,
                operands=parse_operands(rest[1:]) if is_readable else (),
                scope=scope,
                source=self._source,
            )
        )

    def _complain(self, problems: list[Problem], token: Token, reason: str) -> None:
        end = self._text.find("\n", token.start)
        text = self._text[token.start : end if end >= 0 else None]
        problems.append(Problem(token.line, text.strip()[:160], reason, True))


def parse_module(text: str) -> Module:
    """The parts of a PTX file, whatever the text."""
    return Parser(text).parse()
