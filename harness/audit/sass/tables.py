"""Indirect branches through a table: which index goes where.

A switch loads an address from constant bank 2 (`LDC R2, c[0x2][R4]`, four bytes an entry) and jumps there. The table
is in the text, so the jump becomes a chain of branches on the index, and a warp's way through it can be told from
another's. A jump whose table or index cannot be followed keeps all of its targets.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import replace

from harness.audit.cfg import Graph
from harness.audit.program import (
    AddressOf,
    Assign,
    Immediate,
    Instruction,
    Kernel,
    Kind,
    Op,
    Operand,
    Predicate,
    Register,
    Space,
)
from harness.audit.sass.flat import insert_before
from harness.audit.values import Origin, Values

_TABLE = AddressOf("constant bank 2", Space.CONST)
_MAX_ENTRIES = 64


def split_tables(kernel: Kernel, table: bytes, places: Mapping[int, int]) -> Kernel:
    """The kernel with such jumps as chains; `places` has the instruction of each code address."""
    jumps = [i for i in kernel.instructions if i.opcode.startswith("BRX") and i.predicate is None]
    if not jumps or not table:
        return kernel
    values = Values(Graph(kernel))
    added: dict[int, list[Instruction]] = {}
    changed = list(kernel.instructions)
    for jump in jumps:
        load = _load_of(values, jump)
        targets = _targets(table, load, places, jump) if load is not None else ()
        if load is not None and targets:
            _chain(jump, load, targets, added, changed)
    return replace(kernel, instructions=insert_before(changed, added)) if added else kernel


def _load_of(values: Values, jump: Instruction) -> Instruction | None:
    """The load of the table entry that is the jump's only source."""
    if not jump.uses:
        return None
    value = values.use(jump.index, jump.uses[0])
    for _ in range(8):
        node = values.node(value)
        if node.origin is not Origin.ASSIGN or node.assign is None:
            return None
        if node.assign.op is Op.LOAD:
            load = values.graph.kernel.instructions[node.place]
            terms = load.accesses[0].address.terms if load.accesses else ()
            fits = terms[:1] == (_TABLE,) and len(terms) == 2 and load.predicate is None
            return load if fits else None
        source = values.args(value)[0] if node.assign.op is Op.MOVE else None
        if not isinstance(source, int):
            return None
        value = source
    return None


def _targets(
    table: bytes, load: Instruction, places: Mapping[int, int], jump: Instruction
) -> tuple[int, ...]:
    """Instructions by index: entries are read as long as they are ones that the jump may go to."""
    known = set(jump.targets)
    found: list[int] = []
    start = load.accesses[0].address.offset
    for position in range(start, len(table) - 3, 4):
        place = places.get(struct.unpack_from("<I", table, position)[0])
        if place is None or (known and place not in known) or len(found) == _MAX_ENTRIES:
            break
        found.append(place)
    return tuple(found) if found and (not known or known <= set(found)) else ()


def _chain(
    jump: Instruction,
    load: Instruction,
    targets: tuple[int, ...],
    added: dict[int, list[Instruction]],
    changed: list[Instruction],
) -> None:
    index: Operand = load.accesses[0].address.terms[1]
    names = [f"T{jump.line}.{number}" for number in range(len(targets))]
    tests = tuple(
        Assign(target=name, op=Op.EQ, args=(index, Immediate(4 * number)), bits=32)
        for number, name in enumerate(names)
    )
    used = (index.name,) if isinstance(index, Register) else ()
    test = load._replace(kind=Kind.PLAIN, defs=tuple(names), uses=used, assigns=tests, accesses=())
    added.setdefault(load.index, []).append(test)
    branches = [
        jump._replace(kind=Kind.BRANCH, predicate=Predicate(name), targets=(target,), uses=(name,))
        for name, target in zip(names[:-1], targets[:-1], strict=True)
    ]
    added.setdefault(jump.index, []).extend(branches)
    changed[jump.index] = jump._replace(kind=Kind.BRANCH, targets=(targets[-1],))
