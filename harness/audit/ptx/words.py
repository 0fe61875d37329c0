"""The words of PTX up to version 9: opcodes, special registers, modifiers.

An opcode that is not listed is opaque to the audit: no kernel that has one gets a `pass`.
"""

from __future__ import annotations

NEWEST_MAJOR = 9

ARITHMETIC = frozenset(
    [
        "abs",
        "activemask",
        "add",
        "addc",
        "and",
        "bfe",
        "bfi",
        "bfind",
        "bmsk",
        "brev",
        "clz",
        "cnot",
        "copysign",
        "cos",
        "createpolicy",
        "cvt",
        "cvta",
        "div",
        "dp2a",
        "dp4a",
        "ex2",
        "fma",
        "fns",
        "getctarank",
        "isspacep",
        "istypep",
        "lg2",
        "lop3",
        "mad",
        "mad24",
        "madc",
        "mapa",
        "match",
        "max",
        "min",
        "mov",
        "mul",
        "mul24",
        "neg",
        "not",
        "or",
        "popc",
        "prmt",
        "rcp",
        "redux",
        "rem",
        "rsqrt",
        "sad",
        "selp",
        "set",
        "setp",
        "shf",
        "shfl",
        "shl",
        "shr",
        "sin",
        "slct",
        "sqrt",
        "stacksave",
        "sub",
        "subc",
        "szext",
        "tanh",
        "testp",
        "txq",
        "suq",
        "vabsdiff",
        "vabsdiff2",
        "vabsdiff4",
        "vadd",
        "vadd2",
        "vadd4",
        "vavrg2",
        "vavrg4",
        "vmad",
        "vmax",
        "vmax2",
        "vmax4",
        "vmin",
        "vmin2",
        "vmin4",
        "vote",
        "vset",
        "vset2",
        "vset4",
        "vshl",
        "vshr",
        "vsub",
        "vsub2",
        "vsub4",
        "xor",
        "alloca",
        "elect",
        "movmatrix",
        "mma",
    ]
)
"""Register in, register out. The first operand is the result."""

NO_EFFECT = frozenset(["nanosleep", "brkpt", "pmevent", "setmaxnreg", "stackrestore", "applypriority"])
"""No result, and no memory that the audit follows."""

MEMORY = frozenset(
    [
        "ld",
        "ldu",
        "st",
        "atom",
        "red",
        "multimem",
        "prefetch",
        "prefetchu",
        "discard",
        "cp",
        "tex",
        "tld4",
        "suld",
        "sust",
        "sured",
        "ldmatrix",
        "stmatrix",
        "wmma",
        "wgmma",
        "tcgen05",
        "tensormap",
        "clusterlaunchcontrol",
    ]
)
CONTROL = frozenset(["bra", "brx", "call", "ret", "exit", "trap"])
SYNCHRONISATION = frozenset(["bar", "barrier", "membar", "fence", "griddepcontrol", "mbarrier"])

OPCODES = ARITHMETIC | NO_EFFECT | MEMORY | CONTROL | SYNCHRONISATION

_PLAIN_SPECIALS = frozenset(
    [
        "laneid",
        "warpid",
        "nwarpid",
        "smid",
        "nsmid",
        "gridid",
        "is_explicit_cluster",
        "cluster_ctarank",
        "cluster_nctarank",
        "lanemask_eq",
        "lanemask_le",
        "lanemask_lt",
        "lanemask_ge",
        "lanemask_gt",
        "clock",
        "clock_hi",
        "clock64",
        "globaltimer",
        "globaltimer_lo",
        "globaltimer_hi",
        "reserved_smem_offset_begin",
        "reserved_smem_offset_end",
        "reserved_smem_offset_cap",
        "total_smem_size",
        "aggr_smem_size",
        "dynamic_smem_size",
        "current_graph_exec",
    ]
)
_VECTOR_SPECIALS = frozenset(
    ["tid", "ntid", "ctaid", "nctaid", "clusterid", "nclusterid", "cluster_ctaid", "cluster_nctaid"]
)
_NUMBERED_SPECIALS = ("envreg", "pm", "reserved_smem_offset_")

CHANGING_SPECIALS = frozenset(
    ["clock", "clock_hi", "clock64", "globaltimer", "globaltimer_lo", "globaltimer_hi", "smid", "warpid"]
)
"""Two reads by one thread may differ."""


def special_of(name: str) -> str | None:
    """The bare name of a special register; None when PTX has none of this name."""
    if not name.startswith("%"):
        return "WARP_SZ" if name == "WARP_SZ" else None
    bare = name[1:]
    head, _, component = bare.partition(".")
    if head in _VECTOR_SPECIALS and (component in ("x", "y", "z", "w") or not component):
        return bare
    if bare in _PLAIN_SPECIALS:
        return bare
    for stem in _NUMBERED_SPECIALS:
        rest = bare.removeprefix(stem).removesuffix("_64")
        if rest != bare and rest.isdigit():
            return bare
    return None


def is_known_opcode(opcode: str) -> bool:
    """Whether the audit knows what the opcode's first word does to memory, order and control."""
    return opcode.split(".", 1)[0] in OPCODES
