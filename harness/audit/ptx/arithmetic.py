"""Register-to-register instructions: what each result is made of."""

from __future__ import annotations

from harness.audit.program import Assign, Immediate, Op, Operand
from harness.audit.ptx.declarations import type_bytes
from harness.audit.ptx.draft import Draft, NotUnderstood
from harness.audit.ptx.syntax import Pair, Vector

_PLAIN = {
    "add": Op.ADD, "sub": Op.SUB, "and": Op.AND, "or": Op.OR, "xor": Op.XOR, "not": Op.NOT, "min": Op.MIN,
    "max": Op.MAX, "div": Op.DIV, "rem": Op.REM, "shl": Op.SHL, "shr": Op.SHR, "addc": Op.ADD, "subc": Op.SUB,
}  # fmt: skip
_COMPARE = {
    "eq": Op.EQ, "ne": Op.NE, "lt": Op.LT, "le": Op.LE, "gt": Op.GT, "ge": Op.GE, "lo": Op.LT, "ls": Op.LE,
    "hi": Op.GT, "hs": Op.GE,
}  # fmt: skip
_COMBINE = {"and": Op.AND, "or": Op.OR, "xor": Op.XOR}
_INTEGER = ("s", "u", "b")


def translate_arithmetic(draft: Draft) -> None:
    """Fill `draft` for an opcode of `words.ARITHMETIC`."""
    words = draft.words
    root = words[0]
    if root == "mov":
        _translate_mov(draft)
    elif root == "setp":
        _translate_setp(draft)
    elif root in ("cvt", "cvta"):
        _translate_conversion(draft)
    elif root == "elect":
        targets = draft.targets(draft.operand(0))
        args = draft.sources(draft.statement.operands[1:])
        draft.assign(targets[-1], Op.ELECT, args, bits=1)
    else:
        targets = draft.targets(draft.operand(0))
        args = draft.sources(draft.statement.operands[1:])
        bits, signed, is_integer = _type_of(words)
        op, args = _operation(draft, root, words, args, is_integer)
        if root in ("mul", "mad") and "wide" in words:
            bits *= 2
        for target in targets:
            draft.assign(target, op, args, bits=bits, signed=signed)
            op, args = Op.OPAQUE, args  # a second result is another value


def together(draft: Draft, words: list[str], own: tuple[Operand, ...]) -> tuple[Op, tuple[Operand, ...]]:
    """A predicate over threads: of one thread's own it says as much as a conjunction or disjunction with others'."""
    others = draft.compute(Op.OPAQUE, (), bits=1)
    if "uni" in words:
        return Op.MOVE, (others,)
    return Op.AND if {"all", "and"} & set(words) else Op.OR, (*own, others)


def _operation(
    draft: Draft, root: str, words: list[str], args: tuple[Operand, ...], is_integer: bool
) -> tuple[Op, tuple[Operand, ...]]:
    if root in _PLAIN and is_integer:
        wanted = 1 if root == "not" else 2
        if len(args) < wanted:
            raise NotUnderstood("too few operands")
        return _PLAIN[root], args[:wanted]
    if root == "mul" and is_integer and "hi" in words and len(args) == 2:
        return Op.MUL_HIGH, args
    if root in ("mul", "mad") and is_integer and "hi" not in words:
        if len(args) != (2 if root == "mul" else 3):
            raise NotUnderstood("too few operands")
        return (Op.MUL if root == "mul" else Op.MAD), args
    if root == "vote" and not {"any", "all", "uni"}.isdisjoint(words):
        return together(draft, words, args[:1])
    if root == "selp" and len(args) == 3:
        return Op.SELECT, args
    if root == "mapa" and args:
        return Op.MOVE, args[:1]
    if root == "shfl" and "idx" in words and len(args) >= 2:
        return Op.UNIFORM, args[:2]
    if root == "bfe" and len(args) == 3 and "u32" in words:
        position, length = args[1], args[2]
        if isinstance(position, Immediate) and isinstance(length, Immediate) and 0 <= length.value < 32:
            shifted = draft.compute(Op.SHR, args[:2], bits=32)
            return Op.AND, (shifted, Immediate((1 << length.value) - 1))
    return Op.OPAQUE, args


def _type_of(words: list[str]) -> tuple[int, bool, bool]:
    """Bits, signedness, and whether the type is an integer's, of the last type suffix."""
    for word in reversed(words[1:]):
        size = type_bytes(word)
        if size is not None:
            return (
                max(1, size * 8),
                word.startswith("s"),
                (word[:1] in _INTEGER and word != "bf16" and "x" not in word) or word == "pred",
            )
    return 32, False, False


def _translate_mov(draft: Draft) -> None:
    bits = _type_of(draft.words)[0]
    first, second = draft.operand(0), draft.operand(1)
    if isinstance(first, Vector):
        targets = draft.targets(first)
        args = draft.sources((second,))
        if len(args) != 1:
            raise NotUnderstood("one value was expected")
        for number, target in enumerate(targets):
            draft.assign(target, Op.PART, (args[0], Immediate(number)), bits=bits // len(targets))
        return
    targets = draft.targets(first)
    if isinstance(second, Vector):
        draft.assign(targets[0], Op.PACK, draft.sources(second.items), bits=bits // max(1, len(second.items)))
    else:
        draft.assign(targets[0], Op.MOVE, (draft.source(second),), bits=bits)


def _translate_setp(draft: Draft) -> None:
    words = draft.words
    first = draft.operand(0)
    targets = draft.targets(first)
    args = draft.sources(draft.statement.operands[1:])
    if len(args) < 2:
        raise NotUnderstood("too few operands")
    bits, signed, is_integer = _type_of(words)
    compare = next((w for w in words[1:] if w in _COMPARE), None)
    op = _COMPARE[compare] if compare is not None and is_integer else Op.OPAQUE
    bits = 1 if op is Op.OPAQUE else bits
    combine = next((w for w in words[1:] if w in _COMBINE), None)
    pairs = [(op, False)] + ([(op, True)] if isinstance(first, Pair) else [])
    for target, (how, inverted) in zip(targets, pairs, strict=False):
        if combine is None and not inverted:
            draft.assign(target, how, args[:2], bits=bits, signed=signed)
            continue
        value = draft.compute(how, args[:2], bits=bits, signed=signed)
        if inverted:
            value = draft.compute(Op.NOT, (value,), bits=1)
        if combine is not None and len(args) > 2:
            draft.assign(target, _COMBINE[combine], (value, args[2]), bits=1)
        else:
            draft.assign(target, Op.MOVE, (value,), bits=1)


def _translate_conversion(draft: Draft) -> None:
    words = draft.words
    targets = draft.targets(draft.operand(0))
    args = draft.sources(draft.statement.operands[1:])
    if not args:
        raise NotUnderstood("too few operands")
    if words[0] == "cvta":
        if targets[0] is not None:
            draft.assigns.append(
                Assign(
                    target=targets[0],
                    op=Op.MOVE,
                    args=args[:1],
                    bits=64,
                    is_global_address="global" in words,
                )
            )
        return
    types = [w for w in words[1:] if type_bytes(w) is not None]
    if len(types) != 2 or any(t[0] not in _INTEGER or "x" in t or t.startswith("bf") for t in types):
        draft.assign(targets[0], Op.OPAQUE, args)
        return
    to_bits, from_bits = ((type_bytes(t) or 0) * 8 for t in types)
    if to_bits == from_bits:
        draft.assign(targets[0], Op.MOVE, args[:1], bits=to_bits)
    else:
        draft.assign(targets[0], Op.WIDEN, args[:1], bits=min(to_bits, from_bits), signed=types[1][0] == "s")
