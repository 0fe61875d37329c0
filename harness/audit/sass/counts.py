"""The arrival count of `mbarrier.init`, which machine code writes as the object's first 64 bits.

The low word is `(0x100000 - count) << 1`, as compiled probes with constant and computed counts show. The count is
read back where the word is a constant, be it made by instructions under the same guard as the store.
"""

from __future__ import annotations

from harness.audit.integers import compute, to_unsigned
from harness.audit.program import Immediate, Instruction, Operand, Register
from harness.audit.values import Node, Origin, Values

_BASE = 0x100000
_MAX_DEPTH = 12


def arrival_count(values: Values, instruction: Instruction, word: str) -> Operand | None:
    """The count that the object's low word (in register `word`) encodes; None when it is not constant."""
    found = _constant(values, instruction, instruction.index, Register(word), 0)
    if found is None:
        return None
    count = _BASE - (to_unsigned(found, 32) >> 1)
    return Immediate(count) if 0 < count < _BASE else None


def _constant(values: Values, user: Instruction, place: int, operand: Operand, depth: int) -> int | None:
    if isinstance(operand, Immediate):
        return operand.value
    value = values.operand(place, operand)
    return _of_value(values, user, value, depth) if isinstance(value, int) else None


def _of_value(values: Values, user: Instruction, value: int, depth: int) -> int | None:
    if depth > _MAX_DEPTH:
        return None
    node = values.node(value)
    if node.origin is Origin.MERGE and _is_same_guard(values, user, node):
        return _of_value(values, user, node.parts[0], depth + 1)
    if node.origin is not Origin.ASSIGN or node.assign is None:
        return None
    known: list[int] = []
    for arg in values.args(value):
        constant = arg.value if isinstance(arg, Immediate) else None
        if isinstance(arg, int):
            constant = _of_value(values, user, arg, depth + 1)
        if constant is None:
            return None
        known.append(constant)
    return compute(node.assign.op, node.assign.bits, node.assign.signed, known) if known else None


def _is_same_guard(values: Values, user: Instruction, node: Node) -> bool:
    """Whether the definition ran whenever `user` runs: the same predicate, or the same vote, in one block."""
    graph = values.graph
    maker = graph.kernel.instructions[node.place]
    if user.predicate is None or maker.predicate is None:
        return False
    if graph.block_of[user.index] != graph.block_of[maker.index]:
        return False
    if user.predicate.negated != maker.predicate.negated:
        return False
    ours = values.use(user.index, user.predicate.register)
    theirs = values.use(maker.index, maker.predicate.register)
    return ours == theirs or _is_same_vote(values, ours, theirs)


def _is_same_vote(values: Values, ours: int, theirs: int) -> bool:
    nodes = (values.node(ours), values.node(theirs))
    if any(node.origin is not Origin.ASSIGN for node in nodes):
        return False
    first, second = (values.graph.kernel.instructions[node.place] for node in nodes)
    same_opcode = first.opcode == second.opcode and first.opcode.startswith(("VOTE", "PLOP3", "UPLOP3"))
    size = 1 if first.opcode.startswith("VOTE") else None  # besides its own, each vote has others' predicates
    return same_opcode and values.args(ours)[:size] == values.args(theirs)[:size]
