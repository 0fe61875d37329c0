"""What one compiled kernel takes of the machine, and how many of it fit on an SM."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from harness.audit.program import Kernel, Level
from harness.audit.sass.attributes import KernelInfo
from harness.audit.sass.machine import compute_capability
from harness.audit.toolchain.occupancy import Occupancy, occupancy

_CLASSES = {
    "global load": ("LDG", "LDGMC", "LD"),
    "global store": ("STG", "ST", "USTGR"),
    "asynchronous copy": ("LDGSTS", "UBLKCP", "UBLKRED", "UTMALDG", "UTMASTG", "UTMAREDG"),
    "prefetch": ("UBLKPF", "UTMAPF", "CCTL", "UTMACCTL"),
    "atomic": ("ATOMG", "ATOM", "ATOMS", "REDG", "RED"),
    "shared memory": ("LDS", "STS", "LDSM", "STSM", "STAS"),
    "local memory": ("LDL", "STL"),
    "tensor core": (
        "HMMA",
        "QMMA",
        "IMMA",
        "HGMMA",
        "QGMMA",
        "UTCHMMA",
        "UTCQMMA",
        "UTCOMMA",
        "UTCCP",
        "LDTM",
        "STTM",
    ),
    "barrier": ("BAR", "UCGABAR_ARV", "UCGABAR_WAIT", "WARPSYNC", "SYNCS", "ARRIVES", "UTCBAR"),
    "fence": ("MEMBAR", "FENCE", "ERRBAR", "CGAERRBAR"),
    "control": ("BRA", "BRX", "BRXU", "CALL", "RET", "EXIT", "BSSY", "BSYNC", "BREAK"),
    "nothing": ("NOP",),
}
_CLASS_OF = {opcode: name for name, opcodes in _CLASSES.items() for opcode in opcodes}


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """Numbers of one kernel for one architecture; None where the text does not state one."""

    kernel: str
    arch: str
    registers: int | None
    frame_bytes: int | None
    """Local memory of a thread."""
    spill_stores: int
    spill_loads: int
    """Instructions that the disassembler marks as spills and refills."""
    static_shared_bytes: int | None
    """Shared memory that the cubin fixes; what the launch adds is not in it."""
    threads: int | None
    """Threads of a CTA, where the kernel requires a number."""
    instructions: int
    mix: tuple[tuple[str, int], ...]
    """Instructions by class, largest first; padding is left out."""
    occupancy: Occupancy | None
    """With the shared memory named above: an upper bound when the launch adds more."""


def measure_resources(kernel: Kernel, info: KernelInfo, *, dynamic_shared_bytes: int = 0) -> Resources:
    """The resources of a kernel that was read from SASS; the order of its instructions plays no part."""
    if kernel.level is not Level.SASS:
        raise ValueError(f"{kernel.name}: resources are read from SASS, not from {kernel.level}")
    own = [i for i in kernel.instructions if not i.call_lines]
    lines = {i.line: i for i in own}
    mix = Counter(_CLASS_OF.get(i.opcode.split(".", 1)[0], "arithmetic") for i in lines.values())
    mix.pop("nothing", None)
    threads = None
    if info.required_threads is not None:
        x, y, z = info.required_threads
        threads = x * y * z
    local = [i for i in lines.values() if i.opcode.startswith(("LDL", "STL"))]
    spills = [i for i in local if i.line in info.spill_lines]
    shared = info.static_shared_bytes
    fitting = None
    if info.registers is not None and threads is not None:
        fitting = occupancy(
            compute_capability=compute_capability(kernel.arch),
            registers=info.registers,
            threads=threads,
            shared_bytes=(shared or 0) + dynamic_shared_bytes,
        )
    return Resources(
        kernel=kernel.name,
        arch=kernel.arch,
        registers=info.registers,
        frame_bytes=info.frame_bytes,
        spill_stores=sum(i.opcode.startswith("STL") for i in spills),
        spill_loads=sum(i.opcode.startswith("LDL") for i in spills),
        static_shared_bytes=shared,
        threads=threads,
        instructions=sum(mix.values()),
        mix=tuple(mix.most_common()),
        occupancy=fitting,
    )
