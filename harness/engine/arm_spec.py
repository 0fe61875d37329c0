"""How one arm's server is started: its command line, its environment and what its tracer is told."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from harness.engine.trace_settings import SETTINGS_ENV, DecisionTarget, TraceSettings
from harness.model.manifest import DispatchSection
from harness.model.words import Arm

BOOTSTRAP = Path(__file__).resolve().parent / "bootstrap"
NO_MULTICAST = ("NCCL_NVLS_ENABLE", "TORCH_SYMM_MEM_DISABLE_MULTICAST", "NVSHMEM_DISABLE_NVLS")
"""Switches of hosts whose GPUs do not bear multicast objects: a program that is started without them can end the host's
service."""
PASSED_ON = (
    *("PATH", "LANG", "LC_ALL", "TZ", "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES"),
    *NO_MULTICAST,
)
"""The only variables of the harness's own environment that the change's code gets to see."""

CPU_ENV = {
    # The engine's core computes itself: a worker beside it, and both polling for each other, cost as much again.
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    # The n-gram drafter's numba threads would otherwise become torch's, and wait for each other.
    "NUMBA_NUM_THREADS": "1",
}
"""Of every engine of the cpu tier, served or scripted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmSpec:
    """One arm, ready to be started."""

    arm: Arm
    model_dir: Path
    import_path: Path
    """The files of the head commit; the import roots are imported from here and from nowhere else."""
    import_roots: tuple[str, ...]
    dispatch: DispatchSection
    ledger_dir: Path
    """An existing folder for the ledger, the server's log and the coverage data."""
    nonce: str
    max_model_len: int
    max_num_seqs: int = 8
    additional_config: Mapping[str, str] = field(default_factory=dict)
    engine_args: tuple[str, ...] = ()
    """Further arguments of vLLM's API server; they come last and so win."""
    can_force_tokens: bool = True
    """False leaves the forcing of tokens out, which vLLM refuses together with speculative decoding."""
    coverage_globs: tuple[str, ...] = ()
    """Files below `import_path` whose lines are recorded in the worker; none switches coverage off."""
    routers: tuple[str, ...] = ()
    """Functions of the served model whose results say which experts tokens go to, so that they can be counted."""
    cache_dir: Path | None = None
    """A folder for the engine's caches that several servers of one run may share; None gives each its own."""
    num_threads: int = 1
    worker_processes: int = 0
    """Of a driven engine, a rank each; 0: it computes in its own process."""
    starts_warm: bool = False
    """Whether it is forked from a process that has imported vLLM, and nothing of a subject, before."""
    env: Mapping[str, str] = field(default_factory=dict)

    @property
    def num_ranks(self) -> int:
        """Workers of the engine, each with a ledger of its own."""
        return max(1, self.worker_processes)

    @property
    def served_model_name(self) -> str:
        """The model's name on the server: a request that reaches another server than this one is refused."""
        return f"{self.arm}-{self.nonce}"

    @property
    def log_path(self) -> Path:
        """Where everything goes that the server prints."""
        return self.ledger_dir / "server.log"

    @property
    def settings_path(self) -> Path:
        """Where the tracer finds its settings."""
        return self.ledger_dir / "trace.json"

    def command(self, port: int) -> tuple[str, ...]:
        """The command that serves the arm on a port of 127.0.0.1."""
        return (sys.executable, *self._arguments(str(self.model_dir), self.served_model_name, str(port)))

    @property
    def public_command(self) -> tuple[str, ...]:
        """Settings and command as evidence shows them: without paths of this machine."""
        return (*self.public_settings, "python", *self._arguments("{model}", "{name}", "{port}"))

    @property
    def public_settings(self) -> tuple[str, ...]:
        """The environment that the arm is given, as a command."""
        return ("env", *(f"{name}={v}" for name, v in sorted((self._settings | dict(self.env)).items())))

    def _arguments(self, model: str, name: str, port: str) -> tuple[str, ...]:
        values = {
            "--model": model,
            "--served-model-name": name,
            "--host": "127.0.0.1",
            "--port": port,
            "--max-model-len": str(self.max_model_len),
            "--max-num-seqs": str(self.max_num_seqs),
            "--seed": "0",
            "--max-logprobs": "20",
            "--logprobs-mode": "raw_logprobs",
            "--generation-config": "vllm",
            # Named and required tools are constrained by the grammar; the parser's own format is not used for them.
            "--tool-call-parser": "hermes",
            "--structured-outputs-config": '{"backend":"xgrammar","disable_any_whitespace":true}',
            "--worker-extension-cls": "harness.engine.worker_extension.FasttrackWorkerExtension",
            "--shutdown-timeout": "10",
        }
        if self.can_force_tokens:
            values["--logits-processors"] = "harness.engine.force_tokens:ForceTokens"
        if self.additional_config:
            values["--additional-config"] = json.dumps(dict(self.additional_config), sort_keys=True)
        switches = (
            "--enforce-eager",
            # Without it vLLM (0.32) refuses named and required tools, too.
            "--enable-auto-tool-choice",
            "--no-enable-log-requests",
            "--disable-uvicorn-access-log",
            "--disable-log-stats",
        )
        pairs = tuple(word for pair in values.items() for word in pair)
        return ("-P", "-m", "vllm.entrypoints.openai.api_server", *pairs, *switches, *self.engine_args)

    def environment(self, temp_dir: Path) -> dict[str, str]:
        """The whole environment of the server; nothing else of the harness's own reaches it."""
        cache = str(self.cache_dir or temp_dir / "cache")
        env = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
        env |= {
            "HOME": str(temp_dir),
            "TMPDIR": str(temp_dir),
            "VLLM_RPC_BASE_PATH": str(temp_dir),
            "XDG_CACHE_HOME": cache,
            "VLLM_CACHE_ROOT": f"{cache}/vllm",
            "TORCHINDUCTOR_CACHE_DIR": f"{cache}/inductor",
            "PYTHONPATH": str(BOOTSTRAP),
            SETTINGS_ENV: str(self.settings_path),
        }
        return env | self._settings | dict(self.env)

    @property
    def _settings(self) -> dict[str, str]:
        return {
            "PYTHONSAFEPATH": "1",
            "HF_HUB_OFFLINE": "1",
            "VLLM_NO_USAGE_STATS": "1",
            "VLLM_SERVER_DEV_MODE": "1",
            "VLLM_CPU_KVCACHE_SPACE": "1",
            "VLLM_CPU_OMP_THREADS_BIND": "nobind",
            "OMP_NUM_THREADS": str(self.num_threads),
            # Only the engine's own small functions are compiled under --enforce-eager; it costs seconds.
            "TORCHDYNAMO_DISABLE": "1",
        }

    @property
    def trace_settings(self) -> TraceSettings:
        """What the worker's tracer must wrap, watch and cover."""
        dispatch = self.dispatch
        return TraceSettings(
            nonce=self.nonce,
            ledger_dir=self.ledger_dir.resolve(),
            import_path=self.import_path.resolve(),
            import_roots=self.import_roots,
            watched_prefixes=dispatch.never_imported_when_off,
            decisions=tuple(
                DecisionTarget(target=d.target, value=d.value, specialized=d.specialized, reason=d.reason)
                for d in dispatch.decisions
            ),
            code_targets=(*dispatch.specialized_code, *dispatch.baseline_code),
            coverage_globs=self.coverage_globs,
            routers=self.routers,
        )
