"""The tracer inside an engine's worker: writes one ledger row a step, and what proves that it saw the step.

A vLLM general plugin, and loaded earlier by `bootstrap/sitecustomize.py`. It does nothing unless the environment
variable `FASTTRACK_TRACE` names a settings file. It imports neither vLLM nor the subject: all hooks are put in
place when the engine itself imports the modules concerned.
"""

from __future__ import annotations

import functools
import importlib
import multiprocessing
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from harness.engine import marker
from harness.engine.import_hook import SubjectFinder, Wrapper, digest_bytes
from harness.engine.ledger_file import LedgerFile
from harness.engine.step_recorder import StepRecorder
from harness.engine.trace_settings import (
    SETTINGS_ENV,
    DecisionTarget,
    TraceSettings,
    covered_files,
    is_below,
    read_settings,
)

RUNNER_MODULES = ("vllm.v1.worker.gpu_model_runner", "vllm.v1.worker.gpu.model_runner")
"""Where vLLM keeps the two generations of its model runner; the CPU's runners inherit from them."""
WARM_UPS = (
    "vllm.v1.worker.gpu_worker:Worker.compile_or_warm_up_model",
    "vllm.v1.worker.cpu_worker:CPUWorker.compile_or_warm_up_model",
)
"""What a worker calls before it serves: vLLM 0.33 lets its model runner compute made requests there."""
_COMPUTING = ("Worker", "EngineCore")
"""In the name of a process that vLLM may compute in."""
_MARKER = DecisionTarget(target=marker.DECISION_TARGET, value="", specialized="marker")
_active: Tracer | None = None


def _nothing() -> None:
    return


class Tracer:
    """What one process of the engine has seen. Only a process with a model runner, a worker, writes it down."""

    def __init__(self, settings: TraceSettings) -> None:
        self.settings = settings
        self.file = LedgerFile(settings.ledger_dir, settings.nonce)
        self.steps = StepRecorder(self.file)
        self.steps.after_steps = self._notice_imports
        self.coverage: Any = None
        self.is_worker = False
        self.before_runner: Callable[[], None] = _nothing
        """Called in a worker before it makes its model runner; its device is chosen then."""
        self._rank = 0
        self._pending: list[tuple[str, dict[str, Any]]] = []
        self._wrapped: list[str] = []
        self._missing: dict[str, str] = {}
        self._step_hooks: list[str] = []
        self._recorded_modules: set[str] = set()
        self._num_modules = 0
        self._marker_seen = False

    def module_found(self, module: str) -> None:
        """Records a module of the subject that is about to run; a worker records its lines from here on."""
        if any(part in multiprocessing.current_process().name for part in _COMPUTING):
            self.start_coverage()
        if module not in self._recorded_modules:
            self._recorded_modules.add(module)
            self._record("module", name=module)

    def file_read(self, module: str, path: Path, data: bytes) -> None:
        """Records a file, relative to the import path unless it lies elsewhere."""
        if path.is_relative_to(self.settings.import_path):
            path = path.relative_to(self.settings.import_path)
        self._record("imported", module=module, path=path.as_posix(), sha256=digest_bytes(data))

    def target_wrapped(self, target: str) -> None:
        """Notes a wrapped target; the step hooks are kept apart from the manifest's targets."""
        if target.partition(":")[0] in RUNNER_MODULES:
            self._step_hooks = sorted({*self._step_hooks, target.partition(":")[2]})
        elif target in self.settings.targets and target not in self._wrapped:
            self._wrapped.append(target)
            self._write_proof()

    def target_missing(self, target: str, reason: str) -> None:
        """Notes a target that could not be wrapped; a router that is not there counts nothing, which shows."""
        if target not in self.settings.routers:
            self._missing[target] = reason
            self._write_proof()

    def runner_wrapper(self, function: Callable[..., Any], target: str) -> Callable[..., Any]:
        """One of the model runner's functions, with the tracer's part around it."""
        name = target.rpartition(".")[2]
        if name == "execute_model":
            return self.steps.around_execute(function)
        if name == "sample_tokens":
            return self.steps.around_sample(function)

        @functools.wraps(function)
        def made(runner: Any, *args: Any, **kwargs: Any) -> None:
            self.before_runner()
            function(runner, *args, **kwargs)
            self.steps.guard("a runner's start", self._become_worker, runner)

        return made

    def _become_worker(self, runner: Any) -> None:
        self.is_worker = True
        self.steps.book.max_model_len = getattr(runner, "max_model_len", None)
        self._rank = int(getattr(getattr(runner, "parallel_config", None), "rank", 0))
        self.start_coverage()
        self._prove()
        for kind, fields in self._pending:
            self.file.write(kind, **fields)
        self._pending = []
        self._sweep_modules()
        mode = getattr(getattr(runner, "compilation_config", None), "cudagraph_mode", None)
        if getattr(mode, "name", "NONE") != "NONE" and not self.steps.follows_graphs:
            self.file.write(
                "error", where="start", message=f"graphs are captured ({mode}), their steps not traced"
            )

    def _prove(self) -> None:
        """Calls the marker: a decision and a function that must be recorded like the manifest's."""
        self.steps.reset()
        marker.decide()
        marker.run()
        decided = [d["target"] for d in self.steps.decisions if d["specialized"]]
        self._marker_seen = decided == [marker.DECISION_TARGET] and self.steps.ran == {marker.CODE_TARGET: 1}
        self.steps.reset()
        self._write_proof()

    def _write_proof(self) -> None:
        if self.is_worker:
            self.file.write(
                "proof",
                nonce=self.settings.nonce,
                marker_seen=self._marker_seen,
                wrapped=self._wrapped,
                missing=self._missing,
                step_hooks=self._step_hooks,
                rank=self._rank,
            )

    def _notice_imports(self) -> None:
        if len(sys.modules) != self._num_modules:
            self._sweep_modules()

    def _sweep_modules(self) -> None:
        """Finds modules of the subject's files that came in past the import hook."""
        root = str(self.settings.import_path) + os.sep
        roots = (*self.settings.import_roots, *self.settings.watched_prefixes)
        for name, module in list(sys.modules.items()):
            path = getattr(module, "__dict__", {}).get("__file__")
            is_ours = is_below(name, roots) or (isinstance(path, str) and path.startswith(root))
            if is_ours and name not in self._recorded_modules:
                self.module_found(name)
                if isinstance(path, str):
                    self.file_read(name, Path(path), Path(path).read_bytes())
        self._num_modules = len(sys.modules)

    def start_coverage(self) -> None:
        """Starts recording lines where the settings ask for it; later calls do nothing."""
        if self.coverage is None and self.settings.coverage_globs:
            from harness.engine.worker_coverage import WorkerCoverage

            files = covered_files(self.settings.import_path, self.settings.coverage_globs)
            self.coverage = WorkerCoverage(files, self.settings.ledger_dir)

    def _record(self, kind: str, **fields: Any) -> None:
        if self.is_worker:
            self.file.write(kind, **fields)
        else:
            self._pending.append((kind, fields))


def install(settings: TraceSettings) -> Tracer:
    """Puts the import hook in place and gives the tracer that listens to it."""
    tracer = Tracer(settings)
    wrappers: list[tuple[str, Wrapper]] = [
        *((target, tracer.steps.count_wrapper) for target in settings.code_targets),
        *((point.target, tracer.steps.decision_wrapper(point)) for point in settings.decisions),
        *((target, tracer.steps.experts.wrapper) for target in settings.routers),
        (marker.CODE_TARGET, tracer.steps.count_wrapper),
        (marker.DECISION_TARGET, tracer.steps.decision_wrapper(_MARKER)),
    ]
    for module in RUNNER_MODULES:
        for name in ("__init__", "execute_model", "sample_tokens"):
            wrappers.append((f"{module}:GPUModelRunner.{name}", tracer.runner_wrapper))
    wrappers += [
        (target, lambda function, _target: tracer.steps.around_warm_up(function)) for target in WARM_UPS
    ]
    finder = SubjectFinder(
        pinned=dict.fromkeys(settings.import_roots, settings.import_path),
        watched=(*settings.import_roots, *settings.watched_prefixes),
        wrappers=wrappers,
        listener=tracer,
    )
    sys.meta_path.insert(0, finder)
    importlib.reload(marker)
    named = {target.partition(":")[0] for target, _ in wrappers} - {marker.__name__}
    for early in _imported_early(named, settings.import_roots):
        tracer.steps.report_error("start", ImportError(f"{early.__name__} was imported before the tracer"))
        finder.wrap_module(early)
    return tracer


def _imported_early(named: set[str], roots: tuple[str, ...]) -> list[ModuleType]:
    return [m for n, m in list(sys.modules.items()) if n in named or is_below(n, roots)]


def active() -> Tracer | None:
    """The tracer of this process; None when nothing is traced."""
    return _active


def register() -> None:
    """Installs the tracer once in this process, if the environment names a settings file."""
    global _active
    path = os.environ.get(SETTINGS_ENV)
    if not path or _active is not None:
        return
    _active = install(read_settings(Path(path)))
