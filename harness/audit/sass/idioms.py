"""Addresses that machine code builds by hand: parameters by their generic address, shared memory by its window.

A tensor map passed by value is addressed as `window + offset`, where the window is a value of constant bank 0.
Shared memory starts at a fixed offset in the window of the CTA, whose number in the cluster makes the upper
bits. A generic address is shared when its upper half is that of the shared window. Values are followed through
moves; where that does not lead to one place, the address stays what it was.
"""

from __future__ import annotations

from dataclasses import replace

from harness.audit.cfg import Graph
from harness.audit.program import (
    Access,
    Address,
    AddressOf,
    Assign,
    BarrierAction,
    Immediate,
    Instruction,
    Kernel,
    Mbarrier,
    Op,
    Operand,
    Param,
    Register,
    Space,
    Special,
    Unknown,
)
from harness.audit.sass.counts import arrival_count
from harness.audit.sass.draft import PARAMETER_WINDOW, neighbour
from harness.audit.sass.machine import Machine
from harness.audit.values import Origin, Values

SHARED_WINDOW = AddressOf("shared memory", Space.SHARED)
"""Start of the own CTA's shared memory."""

_CTA_SHIFT = 24
"""Bits of an address within one CTA's part of the shared window."""
_MAX_STEPS = 16


def resolve_idioms(
    kernel: Kernel, params: tuple[Param, ...], offsets: tuple[int, ...], machine: Machine | None
) -> Kernel:
    """The kernel with such addresses named."""
    if not kernel.instructions or machine is None:
        return kernel
    resolver = _Resolver(Values(Graph(kernel)), params, offsets, machine.window_skips)
    return replace(kernel, instructions=tuple(resolver.resolve(i) for i in kernel.instructions))


class _Resolver:
    def __init__(
        self, values: Values, params: tuple[Param, ...], offsets: tuple[int, ...], skips: int
    ) -> None:
        self._values = values
        self._params, self._offsets, self._skips = params, offsets, skips

    def resolve(self, instruction: Instruction) -> Instruction:
        """One instruction, changed where an idiom was found."""
        assigns = tuple(self._assign(instruction, assign) for assign in instruction.assigns)
        accesses = tuple(self._access(instruction, access) for access in instruction.accesses)
        mbarrier = self._mbarrier(instruction)
        if (assigns, accesses, mbarrier) == (instruction.assigns, instruction.accesses, instruction.mbarrier):
            return instruction
        return instruction._replace(assigns=assigns, accesses=accesses, mbarrier=mbarrier)

    def _mbarrier(self, instruction: Instruction) -> Mbarrier | None:
        """The operation; the encoded word of an initialisation gives way to the count that it stands for."""
        found = instruction.mbarrier
        if found is None or found.action is not BarrierAction.INIT or not isinstance(found.count, Register):
            return found
        count = arrival_count(self._values, instruction, found.count.name)
        return replace(found, count=count or Unknown("an encoded count"))

    def _assign(self, instruction: Instruction, assign: Assign) -> Assign:
        if assign.op is Op.MAD and assign.args[1] == Immediate(1 << _CTA_SHIFT):
            if self._root(instruction.index, assign.args[0]) == Special("cluster_ctarank"):
                return assign._replace(op=Op.ADD, args=(SHARED_WINDOW, assign.args[2]))
        elif assign.op is Op.ADD and any(isinstance(a, Immediate) for a in assign.args):
            offset = self._window_offset(instruction.index, assign)
            place = None if offset is None else self._parameter(offset)
            if place is not None:
                return assign._replace(args=place)
        return assign

    def _window_offset(self, index: int, assign: Assign) -> int | None:
        """Bytes from the start of the parameter space when the sum is the window plus constants."""
        total = self._skips
        args = assign.args
        for _ in range(_MAX_STEPS):
            constants = [a for a in args if isinstance(a, Immediate)]
            others = [a for a in args if not isinstance(a, Immediate)]
            if len(others) != 1:
                return None
            total += sum(c.value for c in constants)
            root = self._root(index, others[0])
            if root == PARAMETER_WINDOW:
                return total
            if not isinstance(root, int):
                return None
            node = self._values.node(root)
            if node.assign is None or node.origin is not Origin.ASSIGN or node.assign.op is not Op.ADD:
                return None
            index, args = node.place, node.assign.args
        return None

    def _parameter(self, offset: int) -> tuple[Operand, Operand] | None:
        for param, start in zip(self._params, self._offsets, strict=True):
            if start <= offset < start + param.num_bytes:
                return AddressOf(param.name, Space.PARAM), Immediate(offset - start)
        return None

    def _root(self, index: int, operand: Operand) -> int | Operand:
        """The operand, or the value that it is a copy of."""
        found = self._values.operand(index, operand)
        for _ in range(_MAX_STEPS):
            if not isinstance(found, int):
                return found
            node = self._values.node(found)
            if node.origin is not Origin.ASSIGN or node.assign is None or node.assign.op is not Op.MOVE:
                return found
            found = self._values.args(found)[0]
        return found

    def _access(self, instruction: Instruction, access: Access) -> Access:
        terms = access.address.terms
        if len(terms) == 1 and self._root(instruction.index, terms[0]) == PARAMETER_WINDOW:
            place = self._parameter(self._skips + access.address.offset)
            if place is not None and isinstance(place[1], Immediate):
                return access._replace(address=Address(terms=(place[0],), offset=place[1].value))
        if access.space is not Space.GENERIC or not terms or not isinstance(terms[0], Register):
            return access
        upper = self._root(instruction.index, Register(neighbour(terms[0].name, 1)))
        return access._replace(space=Space.SHARED) if upper == Special("swinhi") else access
