"""Entry points compiled in subprocesses, a few at a time, bounded in time, and kept by source digest.

A subprocess that raises, crashes, hangs or compiles nothing is an outcome with the end of its standard error,
never an exception here: it says something about the entry point.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from threading import Lock

from pydantic import Field

from harness.audit.toolchain.cache import KernelCache
from harness.model.record import Record, digest_of

_TAIL_LINES, _TAIL_BYTES = 30, 64 * 1024
_COMPILE_VARIABLES = ("CUTE_DSL_", "CUTE_EXPERIMENTAL_DSL_", "TRITON_", "CUTLASS_")
"""Prefixes of environment variables that may change what a compilation gives."""


class Failure(StrEnum):
    """Why an entry point gave no kernel, or not all of them."""

    RAISED = "raised"
    CRASHED = "crashed"
    TIMED_OUT = "timed_out"
    EMPTY = "empty"


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileRequest:
    """One entry point (`module:function`) for one architecture."""

    entry: str
    arch: str
    import_roots: tuple[Path, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledModule:
    """The artefacts of one compiled variant."""

    variant: str
    ptx: str | None
    cubin: bytes | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileOutcome:
    """What a request gave. `failure` is None exactly when the entry point ran to its end and gave a kernel."""

    request: CompileRequest
    modules: tuple[CompiledModule, ...]
    failure: Failure | None
    stderr_tail: str
    seconds: float
    from_cache: bool
    sources: dict[str, str] = field(default_factory=dict)
    """Files that were imported outside the standard library: path to sha256."""
    versions: dict[str, str] = field(default_factory=dict)
    """The interpreter and the compilers."""
    can_be_kept: bool = True
    """Whether all sources are known, so that a change of them would be noticed."""


Progress = Callable[[int, int, CompileOutcome], None]
"""Called with (finished, all, the outcome that finished), from one thread at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiler:
    """How entry points are compiled: the interpreter that has the DSL, the bounds, the cache."""

    python: Path = field(default_factory=lambda: Path(sys.executable))
    jobs: int = 2
    timeout_s: float = 600.0
    cache: KernelCache | None = None
    environment: Mapping[str, str] | None = None
    """What entry points see besides their own; None: this process's environment."""

    def run(
        self, requests: Sequence[CompileRequest], progress: Progress | None = None
    ) -> tuple[CompileOutcome, ...]:
        """The outcome of each request, in the order of the requests."""
        versions = self._versions() if self.cache is not None else ""
        children = _Children()
        with ThreadPoolExecutor(max_workers=max(1, self.jobs)) as pool, _stopping(pool, children):
            futures = {
                pool.submit(self._one, request, versions, children): index
                for index, request in enumerate(requests)
            }
            outcomes: dict[int, CompileOutcome] = {}
            for done in as_completed(futures):
                outcomes[futures[done]] = done.result()
                if progress is not None:
                    progress(len(outcomes), len(requests), done.result())
        return tuple(outcomes[index] for index in range(len(requests)))

    @property
    def _base(self) -> Mapping[str, str]:
        return os.environ if self.environment is None else self.environment

    def _versions(self) -> str:
        """The interpreter and the versions of its compilers, as one string; empty when it does not start."""
        code = (
            "import importlib.metadata as m, sys\n"
            "names = {d.name.lower(): d.version for d in m.distributions() if d.name}\n"
            "keep = ('nvidia-cutlass-dsl', 'nvidia-cutlass-dsl-libs-base', 'triton', 'torch')\n"
            "print(sys.version.split()[0], *(f'{k}={names.get(k)}' for k in keep))"
        )
        result = subprocess.run(
            [str(self.python), "-c", code], capture_output=True, text=True, check=False, timeout=60
        )
        return result.stdout.strip()

    def _one(self, request: CompileRequest, versions: str, children: _Children) -> CompileOutcome:
        started = time.monotonic()
        key = self._key(request, versions)
        held = self.cache.find(key) if self.cache is not None and versions else None
        if held is not None:
            return _outcome(request, held, None, "", time.monotonic() - started, True)
        with tempfile.TemporaryDirectory(prefix="fasttrack-kernels-") as name:
            out = Path(name)
            failure, tail = self._compile(request, out, children)
            outcome = _outcome(request, out, failure, tail, time.monotonic() - started, False)
            if self.cache is not None and versions and outcome.failure is None and outcome.can_be_kept:
                self.cache.add(key, out)
        return outcome

    def _key(self, request: CompileRequest, versions: str) -> str:
        kept = {k: v for k, v in self._base.items() if k.startswith(_COMPILE_VARIABLES)}
        return digest_of(
            {
                "entry": request.entry,
                "arch": request.arch,
                "roots": [str(root.resolve()) for root in request.import_roots],
                "environment": sorted({**kept, **dict(request.environment)}.items()),
                "python": str(self.python),
                "versions": versions,
                "worker": Path(__file__).with_name("worker.py").read_text(encoding="utf-8"),
            }
        )

    def _compile(self, request: CompileRequest, out: Path, children: _Children) -> tuple[Failure | None, str]:
        worker = Path(__file__).with_name("worker.py")
        command = [str(self.python), str(worker), "--entry", request.entry, "--arch", request.arch]
        command += ["--out", str(out), *(f"--root={root}" for root in request.import_roots)]
        with tempfile.TemporaryFile() as errors:
            child = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                env={**self._base, **dict(request.environment)},
                start_new_session=True,
            )
            with children.held(child):
                try:
                    status: int | None = child.wait(timeout=self.timeout_s)
                except subprocess.TimeoutExpired:
                    status = None
                _kill(child)
            errors.seek(max(0, errors.seek(0, os.SEEK_END) - _TAIL_BYTES))
            text = errors.read().decode("utf-8", "replace")
        tail = "\n".join(text.strip().splitlines()[-_TAIL_LINES:])
        if status is None:
            return Failure.TIMED_OUT, tail
        if status < 0:
            return Failure.CRASHED, tail
        return (Failure.RAISED, tail) if status else (None, tail)


class _Children:
    """The subprocesses that run now, so that an interrupt can end exactly them."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._running: set[subprocess.Popen[bytes]] = set()

    @contextmanager
    def held(self, child: subprocess.Popen[bytes]) -> Iterator[None]:
        with self._lock:
            self._running.add(child)
        try:
            yield
        finally:
            with self._lock:
                self._running.discard(child)

    def stop(self) -> None:
        with self._lock:
            for child in self._running:
                _kill(child)


@contextmanager
def _stopping(pool: ThreadPoolExecutor, children: _Children) -> Iterator[None]:
    """On an interrupt, start nothing more and end what runs, so that leaving the pool does not wait."""
    try:
        yield
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        children.stop()
        raise


def _kill(child: subprocess.Popen[bytes]) -> None:
    """End the process group that `start_new_session` gave the child, with what the child left in it."""
    with suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()


def _outcome(
    request: CompileRequest, folder: Path, failure: Failure | None, tail: str, seconds: float, held: bool
) -> CompileOutcome:
    record = _record(folder)
    modules = tuple(_modules(folder, record))
    if failure is None and not modules:
        failure = Failure.EMPTY
    return CompileOutcome(
        request=request,
        modules=modules,
        failure=failure,
        stderr_tail=tail,
        seconds=seconds,
        from_cache=held,
        sources=record.sources,
        versions=record.versions,
        can_be_kept=not record.compiles_elsewhere,
    )


class _Variant(Record):
    variant: str
    files: tuple[str, ...]


class _WorkerRecord(Record):
    """What the worker wrote about its run."""

    variants: tuple[_Variant, ...] = ()
    versions: dict[str, str] = Field(default_factory=dict)
    sources: dict[str, str] = Field(default_factory=dict)
    compiles_elsewhere: bool = False
    """A program read sources that nobody recorded: the artefacts are good for this run only."""


def _record(folder: Path) -> _WorkerRecord:
    """The record of a folder; an empty one where a run that died left none, or an entry point spoilt it."""
    try:
        return _WorkerRecord.model_validate_json((folder / "record.json").read_bytes())
    except (OSError, ValueError):
        return _WorkerRecord()


def _modules(folder: Path, record: _WorkerRecord) -> Iterator[CompiledModule]:
    """The artefacts of a folder by variant."""
    names: dict[str, str] = {}
    for made in record.variants:
        names.update(dict.fromkeys(made.files, made.variant))
    for stem in sorted({file.name.split(".")[0] for file in folder.iterdir() if file.name[0].isdigit()}):
        files = {file.suffix: file for file in folder.glob(f"{stem}.*")}
        ptx, cubin = files.get(".ptx"), files.get(".cubin")
        yield CompiledModule(
            variant=next((names[file.name] for file in files.values() if names.get(file.name)), ""),
            ptx=ptx.read_text(encoding="utf-8", errors="replace") if ptx else None,
            cubin=cubin.read_bytes() if cubin else None,
        )
