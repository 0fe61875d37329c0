"""What the synchronisation audit says of compiled kernels, in the form in which it is recorded."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from harness.model.kernels import Launch
from harness.model.record import Record


class Decision(StrEnum):
    """Three values, and the case that a rule says nothing about."""

    PROVEN = "proven in order"
    SHOWN = "shown out of order"
    UNDECIDED = "not decidable"
    NOT_APPLICABLE = "not applicable"


class KernelResult(Record):
    """What one rule says of one kernel."""

    rule: str
    decision: Decision
    reason: str
    subject: str = ""
    """The argument or barrier that the decision is about; empty when it is about the whole kernel."""
    line: int | None = None
    """Of the audited text: where it goes wrong."""
    path: tuple[str, ...] = ()
    """The instructions that show it, in order."""
    assumptions: tuple[str, ...] = ()
    """What must hold outside of this kernel for the decision to mean what it says."""


class KernelResources(Record):
    """What one kernel takes of the machine; None where its text does not state a number."""

    registers: int | None
    """Of a thread."""
    spill_stores: int
    spill_loads: int
    stack_bytes: int | None
    """Local memory of a thread: spills and local arrays together."""
    static_shared_bytes: int | None
    """Shared memory that the cubin fixes; what the launch adds is not in it."""
    threads: int | None
    """Of a CTA, where the kernel requires a number."""
    instructions: int
    mix: dict[str, int]
    """Instructions by class; padding is left out."""
    ctas_per_sm: int | None
    """With the static shared memory alone: an upper bound when the launch adds more."""
    limited_by: str = ""
    """What keeps the next CTA from fitting."""


class AuditedKernel(Record):
    """One kernel at one level, with the result of every rule."""

    kernel: str
    arch: str
    level: Literal["ptx", "sass"]
    text: str
    """What the text is called: a path, or the entry point and the variant that it was compiled from."""
    text_sha256: str
    launch: Launch
    """As declared, or as the kernel's PTX tells."""
    results: tuple[KernelResult, ...]
    resources: KernelResources | None = None
    """Of machine code only."""


class UnreadText(Record):
    """A text that gave no kernel, or on which no rule came to an end."""

    text: str
    line: int
    reason: str
    broke: bool = False
    """True when the audit itself failed on it."""
    missing: bool = False
    """True when a tool was missing, so that nobody looked."""
    details: tuple[str, ...] = ()


class WaitStatement(Record):
    """What the source lint says of one inline-assembly wait."""

    path: str
    line: int
    text: str
    decision: Decision
    reason: str


class KernelSource(Record):
    """A file of the change that holds kernels, or makes some when it is imported."""

    path: str
    form: str
    """What they are written in: "CuTe DSL", "Triton", "CUDA C++", "PTX", ..."""
    lines: tuple[int, ...] = ()
    """Of a Python file: where it makes them."""
