"""Entry points compiled into modules, with what the manifest or the command line says about each variant."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.audit.modules import Module, Text
from harness.audit.progress import ProgressBar
from harness.audit.roles import AuditOptions
from harness.audit.toolchain.cache import KernelCache, user_cache
from harness.audit.toolchain.compiler import CompileOutcome, Compiler, CompileRequest, Failure
from harness.model.errors import ConfigurationError

OptionsOf = Callable[[str, str, str], AuditOptions | None]
"""What is said of (entry, architecture, variant); None when nobody asks for the variant."""
_FAILURES = {
    Failure.RAISED: "the entry point raised an exception",
    Failure.CRASHED: "the compiling process was killed by a signal",
    Failure.TIMED_OUT: "the entry point did not end within its time",
    Failure.EMPTY: "the entry point ended without having compiled a kernel",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Toolbox:
    """What compiles, and within which bounds."""

    python: Path
    """The interpreter that has the DSL."""
    jobs: int
    timeout_s: float
    uses_cache: bool = True
    environment: Mapping[str, str] | None = None
    """What entry points see besides their own; None: this process's environment."""

    def __post_init__(self) -> None:
        """Raises ConfigurationError for an interpreter that is not there."""
        if shutil.which(self.python) is None:
            advice = "Name a Python that has the DSL with --python or FASTTRACK_PYTHON."
            raise ConfigurationError("no-python", f"{self.python} is no program that can be run.", advice)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledEntry:
    """One entry point for one architecture: what it gave, and why not all of it."""

    outcome: CompileOutcome
    modules: tuple[Module, ...]
    unasked: tuple[str, ...]
    """Variants of which the manifest says nothing: they were not audited."""
    failure: str
    """Empty when the entry point ran to its end and gave a kernel."""

    @property
    def name(self) -> str:
        """As messages call it."""
        return f"{self.outcome.request.entry} ({self.outcome.request.arch})"


def compile_entries(
    requests: Sequence[CompileRequest], options_of: OptionsOf, tools: Toolbox, *, quiet: bool
) -> list[CompiledEntry]:
    """Each request compiled, `tools.jobs` at a time, in the order of the requests."""
    compiler = Compiler(
        python=tools.python,
        jobs=tools.jobs,
        timeout_s=tools.timeout_s,
        cache=KernelCache(root=user_cache()) if tools.uses_cache else None,
        environment=tools.environment,
    )
    with ProgressBar("compiling", len(requests), quiet=quiet) as bar:

        def report(_done: int, _all: int, outcome: CompileOutcome) -> None:
            kept = ", from the cache" if outcome.from_cache else f", {outcome.seconds:.0f} s"
            bar.advance(f"{outcome.request.entry} ({outcome.request.arch}){kept}")

        return [_compiled(outcome, options_of) for outcome in compiler.run(requests, report)]


def _compiled(outcome: CompileOutcome, options_of: OptionsOf) -> CompiledEntry:
    request = outcome.request
    modules, unasked = [], []
    for number, made in enumerate(outcome.modules):
        options = options_of(request.entry, request.arch, made.variant)
        name = f"{request.entry}/{made.variant or number}"
        if options is None:
            unasked.append(name)
            continue
        ptx = () if made.ptx is None else (Text(name=name, content=made.ptx.encode()),)
        cubins = () if made.cubin is None else (Text(name=name, content=made.cubin),)
        modules.append(Module(name=f"{name} ({request.arch})", ptx=ptx, cubins=cubins, options=options))
    failure = "" if outcome.failure is None else _FAILURES[outcome.failure]
    last = outcome.stderr_tail.strip().splitlines()[-1:]
    if failure and last:
        failure += f": {last[0]}"
    return CompiledEntry(outcome=outcome, modules=tuple(modules), unasked=tuple(unasked), failure=failure)
