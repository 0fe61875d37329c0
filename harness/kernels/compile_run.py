"""`fasttrack kernels compile`: every variant for every architecture, on a CPU, and what each takes of the machine."""

from __future__ import annotations

import time
from collections.abc import Sequence
from fnmatch import fnmatchcase

from harness.audit.pool import available_cores
from harness.audit.progress import ProgressBar
from harness.audit.toolchain.cache import KernelCache, user_cache
from harness.audit.toolchain.compiler import CompiledModule, CompileOutcome, Compiler
from harness.audit.toolchain.elf import parse_cubin
from harness.kernels.records import (
    CompiledKernel,
    CompileRun,
    VariantRecord,
)
from harness.kernels.subject import KernelSubject
from harness.kernels.timing import utc_now
from harness.model.kernels import Arch


def run_compile(
    subject: KernelSubject, arches: Sequence[Arch], *, match: str, jobs: int, uses_cache: bool, quiet: bool
) -> CompileRun:
    """Compiles the entry points and reads registers, local memory and shared memory off the cubins.

    With a glob for the variants, entry points that give none of them are left out; others compile all of theirs, and
    the record holds what the glob names.
    """
    started = time.monotonic()
    inventory = {variant.name: variant for variant in subject.inventory(match)}
    requests = subject.requests(arches, None if match == "*" else tuple(inventory))
    cache = KernelCache(root=user_cache()) if uses_cache else None
    compiler = Compiler(python=subject.python, jobs=jobs or available_cores(), cache=cache)
    with ProgressBar("compiling", len(requests), quiet=quiet) as bar:
        outcomes = compiler.run(
            requests, lambda _done, _all, o: bar.advance(f"{o.request.entry} ({o.request.arch})")
        )
    kernels = [
        kernel
        for outcome in outcomes
        for kernel in compiled_kernels(outcome, inventory)
        if fnmatchcase(kernel.variant, match)
    ]
    made = {(kernel.variant, kernel.arch) for kernel in kernels}
    wanted = sorted({request.arch for request in requests})
    missing = [f"{name} ({arch})" for name in inventory for arch in wanted if (name, arch) not in made]
    return CompileRun(
        recorded_at=utc_now(),
        match=match,
        seconds=round(time.monotonic() - started, 1),
        kernels=tuple(kernels),
        missing=tuple(missing),
        failures=tuple(failure_text(outcome) for outcome in outcomes if outcome.failure is not None),
    )


def compiled_kernels(outcome: CompileOutcome, inventory: dict[str, VariantRecord]) -> list[CompiledKernel]:
    """The kernels that an entry point gave."""
    return [
        kernel for module in outcome.modules for kernel in _kernels(module, outcome.request.arch, inventory)
    ]


def _kernels(module: CompiledModule, arch: str, inventory: dict[str, VariantRecord]) -> list[CompiledKernel]:
    if module.cubin is None:
        return []
    variant = inventory.get(module.variant)
    found = []
    for kernel in parse_cubin(module.cubin).kernels:
        block = kernel.required_threads
        found.append(
            CompiledKernel(
                variant=module.variant,
                arch=arch,
                registers=kernel.registers,
                frame_bytes=kernel.frame_bytes,
                static_shared_bytes=kernel.static_shared_bytes,
                threads=None if block is None else block[0] * block[1] * block[2],
                allowed_spill_bytes=None if variant is None else variant.allowed_spill_bytes,
            )
        )
    return found


def failure_text(outcome: CompileOutcome) -> str:
    """Which entry point failed and how, with the last line of what it said."""
    last = outcome.stderr_tail.strip().splitlines()[-1:]
    return f"{outcome.request.entry} ({outcome.request.arch}): {outcome.failure}; {' '.join(last)}"
