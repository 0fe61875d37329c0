"""Reads what the command names: PTX and SASS texts, cubins, folders of them, entry points to compile."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from harness.audit.program import Kernel, Level, Problem
from harness.audit.ptx import read_ptx
from harness.audit.toolchain.dumps import collect_dumps
from harness.model.errors import ConfigurationError

SUFFIXES = (".ptx", ".sass", ".cubin")
DEFAULT_ARCHES = ("sm_90a", "sm_100a", "sm_103a")


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditedText:
    """One text with its kernels."""

    name: str
    """Path as shown, or entry point and variant."""
    digest: str
    """What evidence is named after: the sha256 of the text."""
    kernels: tuple[Kernel, ...]
    problems: tuple[Problem, ...] = ()

    @property
    def evidence(self) -> str:
        """The text's identifier among evidence."""
        return f"audit:{self.digest[:16]}"


@dataclass(slots=True)
class Inputs:
    """All texts, and what could not be made into one."""

    texts: list[AuditedText] = field(default_factory=list)
    failures: list[tuple[str, str]] = field(default_factory=list)
    """Subject and reason: a compilation that failed, a tool that is missing."""

    @property
    def parameter_names(self) -> dict[str, list[str]]:
        """Names of each kernel's parameters as its PTX has them: machine code has none."""
        return {
            k.name: [p.name for p in k.params] for t in self.texts for k in t.kernels if k.level is Level.PTX
        }


def collect_inputs(
    names: tuple[str, ...],
    arches: tuple[str, ...],
    import_roots: tuple[Path, ...] = (),
    progress: Callable[[str], None] | None = None,
) -> Inputs:
    """Everything that `names` stand for; raises ConfigurationError for a name that is nothing.

    PTX is read before the machine code of the same kernels. `progress` is told what was compiled.
    """
    paths = tuple(Path(name) for name in names)
    entries = [n for n, p in zip(names, paths, strict=True) if not p.exists() and _is_entry(n)]
    wrong = [n for n, p in zip(names, paths, strict=True) if not p.exists() and n not in entries]
    if wrong:
        raise ConfigurationError("no-such-input", f"{wrong[0]}: no file, no folder, and no module:function")
    others = [p for p in paths if p.is_file() and p.suffix not in SUFFIXES]
    dumps = collect_dumps(tuple(p for p in paths if p.is_dir() or p.suffix in SUFFIXES))
    if not dumps and not others and not entries:
        raise ConfigurationError("no-kernels", f"{names[0]}: no .ptx, .sass or .cubin file below this folder")
    inputs = Inputs()
    for path in (*others, *(d.ptx for d in dumps if d.ptx is not None)):
        _add_ptx(inputs, path.as_posix(), _read(path))
    for dump in dumps:
        if dump.sass is not None:
            _add_sass(inputs, dump.sass.as_posix(), _read(dump.sass))
        elif dump.cubin is not None:
            _add_cubin(inputs, dump.cubin.as_posix(), dump.cubin.read_bytes())
    if entries:
        _compile(inputs, entries, arches or DEFAULT_ARCHES, import_roots, progress)
    return inputs


def _is_entry(name: str) -> bool:
    return bool(re.fullmatch(r"[\w.]+:[\w.]+", name))


def _read(path: Path) -> str:
    return path.read_bytes().decode("utf-8", "replace")


def _add_ptx(inputs: Inputs, name: str, text: str) -> None:
    found = read_ptx(text.rstrip("\x00"), name)
    inputs.texts.append(
        AuditedText(name=name, digest=_digest(text), kernels=found.kernels, problems=found.problems)
    )


def _add_cubin(inputs: Inputs, name: str, data: bytes) -> None:
    from harness.audit.toolchain.disassembler import DisassemblyError, ToolMissingError, collect_sass

    try:
        text = collect_sass(data)
    except (ToolMissingError, DisassemblyError) as error:
        inputs.failures.append((name, f"{error.message} {error.advice}".strip()))
        return
    _add_sass(inputs, name, text)


def _add_sass(inputs: Inputs, name: str, text: str) -> None:
    from harness.audit.sass import read_sass

    found = read_sass(text, name, parameter_names=inputs.parameter_names)
    inputs.texts.append(
        AuditedText(name=name, digest=_digest(text), kernels=found.kernels, problems=found.problems)
    )


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()


def _compile(
    inputs: Inputs,
    entries: list[str],
    arches: tuple[str, ...],
    roots: tuple[Path, ...],
    progress: Callable[[str], None] | None,
) -> None:
    from harness.audit.toolchain.cache import KernelCache, user_cache
    from harness.audit.toolchain.compiler import CompileOutcome, Compiler, CompileRequest

    def report(done: int, total: int, outcome: CompileOutcome) -> None:
        if progress is not None:
            progress(f"compiled {done}/{total}: {outcome.request.entry} ({outcome.request.arch})")

    requests = [CompileRequest(entry=e, arch=a, import_roots=roots) for e in entries for a in arches]
    for outcome in Compiler(cache=KernelCache(root=user_cache())).run(requests, report):
        subject = f"{outcome.request.entry} ({outcome.request.arch})"
        if outcome.failure is not None:
            reason = f"compilation {outcome.failure.value}: {outcome.stderr_tail.strip()[-300:]}"
            inputs.failures.append((subject, reason))
        for module in outcome.modules:
            name = f"{outcome.request.entry}/{module.variant}"
            if module.ptx is not None:
                _add_ptx(inputs, name, module.ptx)
            if module.cubin is not None:
                _add_cubin(inputs, name, module.cubin)
