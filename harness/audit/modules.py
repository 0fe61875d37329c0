"""One compiled module, from its texts to results: PTX first, then the machine code of the same kernels."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from harness.audit.audit import audit_kernel
from harness.audit.compare_levels import explain_from_source, explain_hoisted
from harness.audit.decide import AuditResult
from harness.audit.program import Kernel, Problem
from harness.audit.ptx import read_ptx
from harness.audit.resources import measure_resources
from harness.audit.roles import AuditOptions, KernelOptions
from harness.audit.sass import read_sass
from harness.audit.sass.attributes import KernelInfo
from harness.audit.toolchain.disassembler import DisassemblyError, collect_sass
from harness.model.kernel_audit import AuditedKernel, KernelResources, KernelResult, UnreadText
from harness.model.kernels import Launch

_MAX_QUOTED = 80
"""Characters of a text that was not understood."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """A text or a cubin: where it is, or what it holds."""

    name: str
    content: Path | bytes

    def read(self) -> bytes:
        """All of it."""
        return self.content.read_bytes() if isinstance(self.content, Path) else self.content


@dataclass(frozen=True, slots=True, kw_only=True)
class Module:
    """Texts of the same kernels, and what the user says about them."""

    name: str
    ptx: tuple[Text, ...] = ()
    sass: tuple[Text, ...] = ()
    cubins: tuple[Text, ...] = ()
    options: AuditOptions = field(default_factory=AuditOptions)
    arches: tuple[str, ...] = ()
    """Kernels of other architectures are left out; empty for all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleAudit:
    """What the audit says of one module."""

    kernels: tuple[AuditedKernel, ...]
    unread: tuple[UnreadText, ...] = ()
    cpu_s: float = 0.0
    """Of reading and deciding, for all of its texts; the disassembler's own is not in it."""


@dataclass(frozen=True, slots=True)
class _Known:
    """A kernel of the module's PTX with its results, for the machine code to be compared with."""

    kernel: Kernel
    results: list[AuditResult]


def audit_module(module: Module, nvdisasm: Path | None = None) -> ModuleAudit:
    """The results of all rules on all kernels of a module; without `nvdisasm` its cubins are not looked at."""
    started = time.process_time()
    run = _Run(module)
    for text in module.ptx:
        run.add_ptx(text)
    for text in module.sass:
        run.add_sass(text, text.read())
    for text in module.cubins if nvdisasm is not None else ():
        try:
            sass = collect_sass(text.read(), nvdisasm=nvdisasm)
        except DisassemblyError as error:
            run.unread.append(UnreadText(text=text.name, line=1, reason=error.message))
            continue
        run.add_sass(text, sass.encode())
    return ModuleAudit(
        kernels=tuple(run.kernels), unread=tuple(run.unread), cpu_s=time.process_time() - started
    )


class _Run:
    """The audit of one module, text by text."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self.kernels: list[AuditedKernel] = []
        self.unread: list[UnreadText] = []
        self._ptx: dict[tuple[str, str], _Known] = {}

    def add_ptx(self, text: Text) -> None:
        data = text.read()
        found = read_ptx(data.decode("utf-8", "replace").rstrip("\x00"), text.name)
        self._note_unread(text, found.kernels, found.problems)
        for kernel in self._wanted(found.kernels):
            options = self._options(kernel)
            results = explain_from_source(kernel, audit_kernel(kernel, options))
            self._ptx[kernel.name, _family(kernel.arch)] = _Known(kernel, results)
            self.kernels.append(_recorded(kernel, results, text, data, options, None))

    def add_sass(self, text: Text, data: bytes) -> None:
        """`data` is the disassembly, of which evidence keeps the digest."""
        names = {name: [p.name for p in known.kernel.params] for (name, _), known in self._ptx.items()}
        found = read_sass(data.decode("utf-8", "replace"), text.name, parameter_names=names)
        self._note_unread(text, found.kernels, found.problems)
        infos = {kernel.name: info for kernel, info in zip(found.kernels, found.infos, strict=True)}
        for kernel in self._wanted(found.kernels):
            known = self._ptx.get((kernel.name, _family(kernel.arch)))
            options = self._options(kernel, known)
            results = audit_kernel(kernel, options)
            if known is not None:
                results = explain_hoisted(known.kernel, known.results, results, options)
            resources = _resources(kernel, infos[kernel.name])
            self.kernels.append(_recorded(kernel, results, text, data, options, resources))

    def _wanted(self, kernels: Sequence[Kernel]) -> list[Kernel]:
        return [k for k in kernels if not self.module.arches or k.arch in self.module.arches]

    def _options(self, kernel: Kernel, known: _Known | None = None) -> KernelOptions:
        """What the user says; a launch that nobody states is what the kernel's PTX, else its own text, tells."""
        given = self.module.options.for_kernel(kernel.name)
        telling = kernel if known is None else known.kernel
        if given.launch is Launch.UNKNOWN and (telling.uses_dependent_launch or kernel.uses_dependent_launch):
            return replace(given, launch=Launch.PDL)
        return given

    def _note_unread(self, text: Text, kernels: Sequence[Kernel], problems: Sequence[Problem]) -> None:
        if kernels:
            return
        first = problems[0] if problems else None
        reason = "no kernel in this file" if first is None else f"{first.reason}: {first.text[:_MAX_QUOTED]}"
        self.unread.append(UnreadText(text=text.name, line=first.line if first else 1, reason=reason))


def _family(arch: str) -> str:
    return arch.rstrip("af")


def _recorded(
    kernel: Kernel,
    results: Sequence[AuditResult],
    text: Text,
    data: bytes,
    options: KernelOptions,
    resources: KernelResources | None,
) -> AuditedKernel:
    return AuditedKernel(
        kernel=kernel.name,
        arch=kernel.arch,
        level="ptx" if resources is None else "sass",
        text=text.name,
        text_sha256=hashlib.sha256(data).hexdigest(),
        launch=options.launch,
        results=tuple(_result(result) for result in results),
        resources=resources,
    )


def _result(result: AuditResult) -> KernelResult:
    faulty = ("reads", "writes", "prefetches")
    line = next((s.line for s in result.sites if s.note.startswith(faulty)), None)
    return KernelResult(
        rule=result.rule,
        decision=result.decision,
        reason=result.reason,
        subject=result.subject,
        line=line if line is not None or not result.sites else result.sites[-1].line,
        path=tuple(str(site) for site in result.sites),
        assumptions=result.assumptions,
    )


def _resources(kernel: Kernel, info: KernelInfo) -> KernelResources:
    found = measure_resources(kernel, info)
    fitting = found.occupancy
    return KernelResources(
        registers=found.registers,
        spill_stores=found.spill_stores,
        spill_loads=found.spill_loads,
        stack_bytes=found.frame_bytes,
        static_shared_bytes=found.static_shared_bytes,
        threads=found.threads,
        instructions=found.instructions,
        mix=dict(found.mix),
        ctas_per_sm=None if fitting is None else fitting.ctas,
        limited_by="" if fitting is None else fitting.limited_by,
    )
