"""The common form of one kernel, whatever text it was read from: what the rules see of PTX and of SASS.

A reader (PTX or SASS) translates each instruction of its text into exactly one `Instruction`, in order, and states the
facts it is sure of. What it does not understand stays in the list as `Kind.OPAQUE`; nothing is dropped. Calls to
functions whose body is known are expanded in place by the reader, so that a kernel is one flat list.

What a kernel has thousands of are named tuples, which cost a quarter of a frozen dataclass to make.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple


class Level(StrEnum):
    """Which text a kernel was read from."""

    PTX = "ptx"
    SASS = "sass"


class Space(StrEnum):
    """State space of an access or a variable; `GENERIC` is to be inferred from where the address comes from."""

    GENERIC = "generic"
    GLOBAL = "global"
    SHARED = "shared"
    """Shared memory of the own CTA or of the cluster."""
    LOCAL = "local"
    PARAM = "param"
    """Parameters of the kernel, and the variables that pass arguments to functions."""
    CONST = "const"
    TENSOR = "tensor"
    """Tensor memory of Blackwell."""


class Op(StrEnum):
    """What an assignment computes; anything else is `OPAQUE`, whose result may depend on all of its operands."""

    MOVE = "move"
    """Also conversions that keep all bits of an address (`cvta`, `cvt.u64.u64`)."""
    ADD = "add"
    SUB = "sub"
    MUL = "mul"
    MUL_HIGH = "mul high"
    """The upper `bits` bits of the product."""
    MAD = "mad"
    """args[0] * args[1] + args[2]."""
    SHL = "shl"
    SHR = "shr"
    AND = "and"
    OR = "or"
    XOR = "xor"
    NOT = "not"
    MIN = "min"
    MAX = "max"
    DIV = "div"
    REM = "rem"
    EQ = "eq"
    NE = "ne"
    LT = "lt"
    LE = "le"
    GT = "gt"
    GE = "ge"
    SELECT = "select"
    """args[2] ? args[0] : args[1]."""
    WIDEN = "widen"
    """Keeps the low `bits` bits of args[0], sign-extended when `signed`: an integer conversion, no address results."""
    PACK = "pack"
    """args[0] is the lowest part."""
    PART = "part"
    """args[0] is the whole, args[1] an Immediate: the part's number, 0 lowest, each part `bits` wide."""
    ELECT = "elect"
    """True in exactly one thread of the warp."""
    UNIFORM = "uniform"
    """args[0] as lane args[1] of the warp has it (`shfl.idx`)."""
    LOAD = "load"
    """The value comes from the instruction's reading access; args[0] is an Immediate: the element's number."""
    OPAQUE = "opaque"


@dataclass(frozen=True, slots=True)
class Register:
    """A register by its name, unique within the kernel (`%rd4`, `R4`, `UR4`, `P0`)."""

    name: str


@dataclass(frozen=True, slots=True)
class Immediate:
    """An integer constant; floats are given by their bits."""

    value: int


@dataclass(frozen=True, slots=True)
class Special:
    """A special register, named as PTX names it, without the percent sign (`tid.x`, `laneid`, `ctaid.y`)."""

    name: str


@dataclass(frozen=True, slots=True)
class ParamValue:
    """The value of `num_bytes` bytes of a kernel parameter, `offset` bytes into it."""

    param: int
    """Index into `Kernel.params`."""
    offset: int
    num_bytes: int


@dataclass(frozen=True, slots=True)
class AddressOf:
    """The address of a variable, or of a kernel parameter (`space` PARAM, `name` the parameter's)."""

    name: str
    space: Space


@dataclass(frozen=True, slots=True)
class Unknown:
    """An operand that the reader could not interpret."""

    text: str


Operand = Register | Immediate | Special | ParamValue | AddressOf | Unknown


class Assign(NamedTuple):
    """One register gets one value. In SASS the low register of a pair carries the address, the high one nothing.

    An instruction that computes in steps (compare, then combine with another predicate) names its intermediate values
    `~1`, `~2`, ...: later assigns of the same instruction may use them, nothing else may.
    """

    target: str
    op: Op
    args: tuple[Operand, ...]
    bits: int = 32
    signed: bool = False
    is_global_address: bool = False
    """The instruction itself says that the value is an address of global memory (`cvta.to.global`)."""


class Effect(StrEnum):
    """What an access does to memory."""

    READ = "read"
    WRITE = "write"
    UPDATE = "update"
    """Reads and writes: atomics and reductions."""
    PREFETCH = "prefetch"


class Mechanism(StrEnum):
    """How an access travels."""

    PLAIN = "plain"
    ATOMIC = "atomic"
    ASYNC_COPY = "cp.async"
    BULK = "bulk"
    TENSOR_MAP = "tensor map"
    MULTIMEM = "multimem"
    TEXTURE = "texture"
    SURFACE = "surface"
    MATRIX = "matrix"
    """`ldmatrix`, `stmatrix`, `wgmma` and `tcgen05` operands in shared or tensor memory."""


class Order(StrEnum):
    """Memory order of an access."""

    WEAK = "weak"
    VOLATILE = "volatile"
    RELAXED = "relaxed"
    ACQUIRE = "acquire"
    RELEASE = "release"
    ACQ_REL = "acq_rel"


class Scope(StrEnum):
    """Threads that an order or a fence speaks about; `NONE` where the instruction has none."""

    NONE = ""
    CTA = "cta"
    CLUSTER = "cluster"
    GPU = "gpu"
    SYS = "sys"


class Address(NamedTuple):
    """Where an access goes: the sum of `terms` plus `offset` bytes."""

    terms: tuple[Operand, ...]
    offset: int = 0


class Access(NamedTuple):
    """One access of an instruction; a copy has two, the read and the write."""

    effect: Effect
    space: Space
    address: Address
    """Of the data, or of the tensor map when `mechanism` is TENSOR_MAP (then `space` is of the tensor)."""
    mechanism: Mechanism = Mechanism.PLAIN
    registers: tuple[Operand, ...] = ()
    """Loaded registers or stored operands, one an element, lowest address first."""
    element_bytes: int | None = None
    num_elements: int = 1
    order: Order = Order.WEAK
    scope: Scope = Scope.NONE
    cache: str = ""
    """Cache operator or path as written (`nc`, `cg`, `ca`, `cs`, ...)."""

    @property
    def num_bytes(self) -> int | None:
        """Width of the access of one thread, where the instruction states it."""
        return None if self.element_bytes is None else self.element_bytes * self.num_elements

    @property
    def reads(self) -> bool:
        """Whether data moves from memory, be it only into a cache."""
        return self.effect is not Effect.WRITE

    @property
    def writes(self) -> bool:
        """Whether memory changes."""
        return self.effect in (Effect.WRITE, Effect.UPDATE)


class Kind(StrEnum):
    """What an instruction means to control and order."""

    PLAIN = "plain"
    BRANCH = "branch"
    """Goes to one of `targets`; falls through too when predicated. `targets` of an indirect branch are all of its
    table; an indirect branch without a known table is OPAQUE_BRANCH."""
    OPAQUE_BRANCH = "opaque branch"
    EXIT = "exit"
    TRAP = "trap"
    """Ends the whole grid with an error."""
    CALL = "call"
    """A function whose body is unknown: it may do anything."""
    WAIT = "wait"
    """`griddepcontrol.wait` or its machine form."""
    TRIGGER = "trigger"
    """`griddepcontrol.launch_dependents` or its machine form."""
    BARRIER = "barrier"
    MBARRIER = "mbarrier"
    FENCE = "fence"
    OPAQUE = "opaque"
    """Not understood: it may read, write, branch or wait."""


class BarrierScope(StrEnum):
    """Threads that a barrier can gather."""

    WARP = "warp"
    CTA = "cta"
    CLUSTER = "cluster"


class BarrierAction(StrEnum):
    """What a thread does at a barrier."""

    SYNC = "sync"
    """Arrives and waits."""
    ARRIVE = "arrive"
    WAIT = "wait"
    INIT = "init"
    EXPECT = "expect"
    """`expect_tx` without an arrival."""
    TEST = "test"
    """One try (`test_wait`, `try_wait`): a loop makes it a wait."""
    INVALIDATE = "invalidate"


@dataclass(frozen=True, slots=True, kw_only=True)
class Barrier:
    """A hardware barrier (`bar`, `barrier`, `bar.warp`, `barrier.cluster`)."""

    scope: BarrierScope
    action: BarrierAction
    id: Operand = Immediate(0)
    count: Operand | None = None
    """Threads that the barrier waits for; None means all of the scope. For a warp barrier: the member mask."""
    is_relaxed: bool = False
    """It orders no memory: who passes it may still see, or have read, what was there before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mbarrier:
    """An operation on an mbarrier object in shared memory."""

    action: BarrierAction
    address: Address
    count: Operand | None = None
    """INIT: expected arrivals. ARRIVE: arrivals that this one counts for (None means 1)."""
    parity: Operand | None = None
    """Phase parity that a TEST waits for, where the instruction takes one."""
    is_remote: bool = False
    """The object belongs to, or may belong to, another CTA of the cluster."""
    is_asynchronous: bool = False
    """The arrival happens when earlier asynchronous work completes (`cp.async.mbarrier.arrive`, `tcgen05.commit`)."""
    is_relaxed: bool = False
    """It orders no memory: who passes it may still see, or have read, what was there before."""


@dataclass(frozen=True, slots=True)
class Predicate:
    """The guard of an instruction."""

    register: str
    negated: bool = False


@dataclass(frozen=True, slots=True)
class SourceLine:
    """Where the source language has the instruction, from line information."""

    file: str
    line: int
    outer_file: str = ""
    outer_line: int = 0
    """Where the kernel itself calls the inlined function that the line is of; empty and 0 when it is the kernel's."""

    @property
    def outermost(self) -> tuple[str, int]:
        """File and line within the kernel's own text."""
        return (self.outer_file, self.outer_line) if self.outer_file else (self.file, self.line)


class Instruction(NamedTuple):
    """One instruction. `text` is as written, without its comment; `opcode` with all its suffixes."""

    index: int  # type: ignore[assignment]  # a tuple's own `index` searches it
    """Position in `Kernel.instructions`."""
    line: int
    """Line of the text, from 1."""
    text: str
    opcode: str
    kind: Kind = Kind.PLAIN
    predicate: Predicate | None = None
    targets: tuple[int, ...] = ()
    """Indices of the instructions that a branch may go to."""
    defs: tuple[str, ...] = ()
    uses: tuple[str, ...] = ()
    """Registers read, the predicate's and the address's included."""
    assigns: tuple[Assign, ...] = ()
    """One for each register of `defs` whose value is of any use; a missing one reads as OPAQUE of all uses."""
    accesses: tuple[Access, ...] = ()
    barrier: Barrier | None = None
    mbarrier: Mbarrier | None = None
    source: SourceLine | None = None
    call_lines: tuple[int, ...] = ()
    """Lines of the calls that this instruction was expanded from, outermost first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Param:
    """A kernel parameter."""

    index: int
    name: str
    num_bytes: int
    is_pointer: bool | None = None
    """True when declared a pointer; False when it cannot hold one; None when nobody says."""
    is_grid_constant_struct: bool = False
    """Passed by value as a block of bytes: several fields, or a tensor map."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Variable:
    """A variable of the kernel or the module."""

    name: str
    space: Space
    num_bytes: int | None


@dataclass(frozen=True, slots=True)
class Problem:
    """Text that the reader could not make sense of; decisions that it could change are inconclusive."""

    line: int
    text: str
    reason: str
    spoils_all: bool = False
    """Nothing that was read can be trusted (a newer language version, a text that stops in the middle). Otherwise the
    text that was not understood stands in the kernel as an OPAQUE instruction."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """One entry point for one architecture, read from one text."""

    name: str
    arch: str
    level: Level
    instructions: tuple[Instruction, ...]
    params: tuple[Param, ...] = ()
    variables: tuple[Variable, ...] = ()
    block_size: tuple[int, int, int] | None = None
    """Threads of a CTA, when the text fixes them (`.reqntid`)."""
    max_threads: int | None = None
    """Upper bound of the threads of a CTA (`.maxntid`), when the text has one."""
    problems: tuple[Problem, ...] = ()
    source_file: str = ""
    """File that the text came from."""

    @property
    def uses_dependent_launch(self) -> bool:
        """Whether the text waits for the grids before it or lets the grids after it start."""
        return any(i.kind in (Kind.WAIT, Kind.TRIGGER) for i in self.instructions)
