"""Reads what the command names: PTX and SASS texts, cubins, folders of them, entry points to compile."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from pathlib import Path

from harness.audit.program import Kernel, Problem
from harness.audit.ptx import read_ptx
from harness.model.errors import ConfigurationError

PTX, SASS, CUBIN = ".ptx", ".sass", ".cubin"
SUFFIXES = (PTX, SASS, CUBIN)
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


def collect_inputs(
    names: tuple[str, ...], arches: tuple[str, ...], import_roots: tuple[Path, ...] = ()
) -> Inputs:
    """Everything that `names` stand for; raises ConfigurationError for a name that is nothing."""
    inputs = Inputs()
    entries = []
    for name in names:
        path = Path(name)
        if path.is_dir():
            files = sorted(p for p in path.rglob("*") if p.suffix in SUFFIXES and p.is_file())
            if not files:
                raise ConfigurationError(
                    "no-kernels", f"{name}: no .ptx, .sass or .cubin file below this folder"
                )
            for file in files:
                _add_file(inputs, file)
        elif path.is_file():
            _add_file(inputs, path)
        elif ":" in name and not name.startswith((".", "/")):
            entries.append(name)
        else:
            raise ConfigurationError("no-such-input", f"{name}: no file, no folder, and no module:function")
    if entries:
        _compile(inputs, entries, arches or DEFAULT_ARCHES, import_roots)
    return inputs


def _add_file(inputs: Inputs, path: Path) -> None:
    data = path.read_bytes()
    if path.suffix == CUBIN or data[:4] == b"\x7fELF":
        _add_cubin(inputs, path.as_posix(), data)
    elif path.suffix == SASS:
        _add_sass(inputs, path.as_posix(), data.decode("utf-8", "replace"))
    else:
        _add_ptx(inputs, path.as_posix(), data.decode("utf-8", "replace"))


def _add_ptx(inputs: Inputs, name: str, text: str) -> None:
    found = read_ptx(text.rstrip("\x00"), name)
    digest = hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()
    inputs.texts.append(AuditedText(name=name, digest=digest, kernels=found.kernels, problems=found.problems))


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

    found = read_sass(text, name)
    digest = hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()
    inputs.texts.append(AuditedText(name=name, digest=digest, kernels=found.kernels, problems=found.problems))


def _compile(inputs: Inputs, entries: list[str], arches: tuple[str, ...], roots: tuple[Path, ...]) -> None:
    from harness.audit.toolchain.compiler import Compiler, CompileRequest

    requests = [CompileRequest(entry=e, arch=a, import_roots=roots) for e in entries for a in arches]
    for outcome in Compiler().run(requests):
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
