"""Function headers and variable declarations."""

from __future__ import annotations

from harness.audit.program import Problem, Space
from harness.audit.ptx.syntax import Declaration, Function, Scope
from harness.audit.ptx.tokens import Token, integer_of

_SPACES = {
    ".reg": Space.LOCAL,
    ".sreg": Space.LOCAL,
    ".local": Space.LOCAL,
    ".shared": Space.SHARED,
    ".global": Space.GLOBAL,
    ".tex": Space.GLOBAL,
    ".const": Space.CONST,
    ".param": Space.PARAM,
}
_TYPE_BYTES = {f"{kind}{bits}": bits // 8 for kind in "bsuf" for bits in (8, 16, 32, 64, 128)} | {
    "pred": 0,
    **dict.fromkeys(("bf16", "e4m3x2", "e5m2x2"), 2),
    **dict.fromkeys(("bf16x2", "f16x2", "tf32", "u16x2", "s16x2", "e4m3x4", "e5m2x4", "u8x4", "s8x4"), 4),
}
_HANDLES = (".texref", ".surfref", ".samplerref")


def type_bytes(name: str) -> int | None:
    """Bytes of a PTX type such as `.u64` or `bf16x2`; 0 for predicates, None for an unknown name."""
    return _TYPE_BYTES.get(name.lstrip("."))


def parse_header(tokens: list[Token], problems: list[Problem]) -> Function | None:
    """A `.entry` or `.func` header, up to its body."""
    index = next((i for i, t in enumerate(tokens) if t.text in (".entry", ".func")), None)
    if index is None:
        return None
    is_entry = tokens[index].text == ".entry"
    index += 1
    while index < len(tokens) and tokens[index].text in (".attribute", ".noreturn"):
        index += 1
        if index < len(tokens) and tokens[index].text == "(":
            index = _closing(tokens, index) + 1
    scope = Scope(parent=None, suffix="")
    returns: list[Declaration] = []
    if index < len(tokens) and tokens[index].text == "(":
        end = _closing(tokens, index)
        returns = _parse_params(tokens[index + 1 : end], scope, problems)
        index = end + 1
    if index >= len(tokens) or tokens[index].kind != "word":
        return None
    name, line = tokens[index].text, tokens[index].line
    index += 1
    params: list[Declaration] = []
    if index < len(tokens) and tokens[index].text == "(":
        end = _closing(tokens, index)
        params = _parse_params(tokens[index + 1 : end], scope, problems)
        index = end + 1
    function = Function(name=name, is_entry=is_entry, line=line, params=params, returns=returns, scope=scope)
    _parse_bounds(tokens[index:], function)
    return function


def _closing(tokens: list[Token], index: int) -> int:
    depth = 0
    for position in range(index, len(tokens)):
        depth += {"(": 1, ")": -1}.get(tokens[position].text, 0)
        if depth == 0:
            return position
    return len(tokens)


def _parse_params(tokens: list[Token], scope: Scope, problems: list[Problem]) -> list[Declaration]:
    params: list[Declaration] = []
    part: list[Token] = []
    for token in [*tokens, Token("mark", ",", 0, 0, 0)]:
        if token.text != ",":
            part.append(token)
            continue
        if part:
            declared = parse_declaration(part, scope)
            if declared is None:
                text = " ".join(t.text for t in part)
                problems.append(Problem(part[0].line, text[:160], "a parameter that cannot be read", True))
            else:
                params += declared
        part = []
    return params


def _parse_bounds(tokens: list[Token], function: Function) -> None:
    for position, token in enumerate(tokens):
        if token.text not in (".reqntid", ".maxntid"):
            continue
        sizes: list[int] = []
        for following in tokens[position + 1 :]:
            value = integer_of(following.text) if following.kind == "number" else None
            if value is not None:
                sizes.append(value)
            elif following.text != ",":
                break
        x, y, z = ([*sizes, 1, 1, 1])[:3]
        if token.text == ".reqntid" and sizes:
            function.block_size = (x, y, z)
        if sizes:
            bound = x * y * z
            function.max_threads = min(bound, function.max_threads or bound)


def parse_declaration(tokens: list[Token], scope: Scope) -> list[Declaration] | None:
    """Variables of one declaration, entered into `scope`; None when it has no known form."""
    space, element, is_pointer, type_name = None, None, False, ""
    index = 0
    while index < len(tokens) and tokens[index].text.startswith(".") and tokens[index].kind == "word":
        word = tokens[index].text.split("::")[0]
        size = type_bytes(word)
        if word in _SPACES and space is None:
            space = word
        elif word == ".ptr":
            is_pointer = True
        elif word == ".align":
            index += 1
        elif word in (".attribute",) and index + 1 < len(tokens) and tokens[index + 1].text == "(":
            index = _closing(tokens, index + 1)
        elif size is not None or word in _HANDLES:
            element, type_name = 8 if word in _HANDLES else size, word
        index += 1
    if space is None or not type_name:
        return None
    declared: list[Declaration] = []
    for part in _parts(tokens[index:]):
        if part[0].kind != "word":
            return None
        declared.append(_declare(part, space, element or 0, type_name, is_pointer, scope))
    return declared or None


def _parts(tokens: list[Token]) -> list[list[Token]]:
    parts: list[list[Token]] = [[]]
    depth = 0
    for token in tokens:
        depth += {"{": 1, "(": 1, "}": -1, ")": -1}.get(token.text, 0)
        if token.text == "," and depth == 0:
            parts.append([])
        else:
            parts[-1].append(token)
    return [p for p in parts if p]


def _declare(
    part: list[Token], space: str, element: int, type_name: str, is_pointer: bool, scope: Scope
) -> Declaration:
    name = part[0].text
    is_register = space in (".reg", ".sreg")
    if len(part) >= 4 and part[1].text == "<" and part[2].kind == "number":
        scope.families[name] = integer_of(part[2].text) or 0
    else:
        scope.names[name] = name + scope.suffix
    is_array = len(part) > 1 and part[1].text == "["
    size: int | None = element
    position = 1
    while position < len(part) and part[position].text == "[":
        length = (
            integer_of(part[position + 1].text)
            if position + 1 < len(part) and part[position + 1].kind == "number"
            else None
        )
        size = None if size is None or length is None else size * length
        position += 3 if length is not None else 2
    return Declaration(
        name=name + scope.suffix,
        space=_SPACES[space],
        num_bytes=size,
        element_bytes=element,
        is_pointer=is_pointer,
        is_array=is_array,
        is_register=is_register,
        is_integer=type_name[1:2] in "bsu" and not type_name.startswith(".bf"),
        line=part[0].line,
    )
