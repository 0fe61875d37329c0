"""The arms of a sweep, for whichever process measures a cell: servers of the miniature model on a CPU, processes of
the manifest's slice on a GPU."""

from __future__ import annotations

import atexit
import io
import json
import os
import secrets
import shutil
import tarfile
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.app.arm_session import additional_config
from harness.app.cpu_tier import CHECKPOINT, CpuRun, build_checkpoint
from harness.app.gpu_tier import SLICE, graph_sizes, served_args, weights_source, write_slice
from harness.app.probes import ENGINE_ENV
from harness.app.recorder import Progress, Recorder
from harness.engine.arm_spec import CPU_ENV, ArmSpec
from harness.engine.block_server import BlockServer
from harness.engine.server import ArmServer
from harness.facts.environment import collect_environment, find_gpus
from harness.facts.git import Repository
from harness.facts.gpu_state import find_gpu_reader
from harness.model.change import Change
from harness.model.errors import EngineError
from harness.model.evidence import AnyEvidence
from harness.model.manifest import Manifest
from harness.model.words import Arm, Tier
from perf_sweeps.agent_trace import Conversation
from perf_sweeps.block import LoadGenerator
from perf_sweeps.cell import Engine
from perf_sweeps.engine_host import EngineHost
from perf_sweeps.measure import ArmHost
from perf_sweeps.overhead_host import OverheadHost

RANK_WORKER = "harness.engine.probe.rank_worker.RankWorker"
ONE_HOST = {
    "VLLM_WORKER_MULTIPROC_METHOD": "spawn",
    "VLLM_HOST_IP": "127.0.0.1",
    "GLOO_SOCKET_IFNAME": "lo",
    "NCCL_SOCKET_IFNAME": "lo",
}
"""Of engines of several ranks: all are of one host, which may have no network."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Arms:
    """What the arms of both tiers are made of."""

    manifest: Manifest
    """As the tier takes it."""
    folder: Path
    """Holds `head` and the model; each host gets a folder of its own in it."""
    passages: tuple[str, ...]
    seed: int
    routers: tuple[str, ...] = ()
    """Functions of the served model by whose results experts are counted."""

    def make_workdir(self) -> Path:
        return Path(tempfile.mkdtemp(prefix="host-", dir=self.folder))

    def _spec(self, arm: Arm, workdir: Path, **more: Any) -> ArmSpec:
        """How an arm is started, with its ledger below `workdir`."""
        manifest = self.manifest
        return ArmSpec(
            arm=arm,
            import_path=self.folder / "head",
            import_roots=manifest.paths.import_roots,
            dispatch=manifest.dispatch,
            routers=self.routers,
            ledger_dir=workdir / arm.value,
            nonce=secrets.token_hex(8),
            additional_config=additional_config(manifest, arm),
            **more,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuArms(_Arms):
    """Opens hosts whose arms serve the miniature model from a commit's files, on a machine that has the folder."""

    load: LoadGenerator = "client"
    trace: tuple[Conversation, ...] = ()
    """What agent cells replay; empty: what they generate."""

    def __call__(self, engine: Engine, arms: tuple[Arm, ...]) -> EngineHost:
        """Starts the arms; raises `EngineError`, also for an engine that this host cannot start."""
        _require_served(engine)
        environment, workdir = collect_environment(Tier.CPU), self.make_workdir()
        return EngineHost(
            {arm: ArmServer(self.spec(engine, arm, workdir)) for arm in arms},
            passages=self.passages,
            seed=self.seed,
            targets=self.manifest.dispatch.targets,
            hardware=f"{environment.cpu}, {environment.num_cores} cores",
            host="cpu",
            load=self.load,
            trace=self.trace,
        )

    def spec(self, engine: Engine, arm: Arm, workdir: Path) -> ArmSpec:
        """How an arm's server is started."""
        model = self.manifest.nano_model
        return self._spec(
            arm,
            workdir,
            env=CPU_ENV,
            model_dir=self.folder / CHECKPOINT,
            max_model_len=model.max_model_len,
            max_num_seqs=self.manifest.scope.max_batch + 1,
            can_force_tokens=False,
            engine_args=(*model.engine_args, *draft_arguments(engine)),
            cache_dir=workdir / "cache",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuArms(_Arms):
    """Opens hosts whose arms serve, on this machine's GPUs, what the manifest serves there: its slice, or the miniature
    model. Decode steps are replayed graphs, which the arms' tracers follow.
    """

    times_kernels: bool = False
    """Decode steps of each cell's first turn are profiled."""
    env: Mapping[str, str] = field(default_factory=lambda: ENGINE_ENV[Tier.GPU])

    def __call__(self, engine: Engine, arms: tuple[Arm, ...]) -> EngineHost:
        """Starts the arms; raises `EngineError`, also for an engine that this host cannot start."""
        if (num_gpus := count_gpus()) < engine.tensor_parallel:
            message = f"{engine.name} needs {engine.tensor_parallel} GPUs of one machine, and has {num_gpus}."
            raise EngineError("too-few-gpus", message)
        workdir, machine = self.make_workdir(), collect_environment(Tier.GPU)
        return EngineHost(
            {arm: self.server(engine, arm, workdir) for arm in arms},
            passages=self.passages,
            seed=self.seed,
            targets=self.manifest.dispatch.targets,
            hardware=machine.machine,
            gpu_topology=machine.gpu_topology if engine.tensor_parallel > 1 else "",
            host="gpu",
            observe=find_gpu_reader()[0],
            times_kernels=self.times_kernels,
        )

    def server(self, engine: Engine, arm: Arm, workdir: Path) -> BlockServer:
        """The process of an arm, not started."""
        manifest = self.manifest
        ranks = parallel_arguments(engine)
        spec = self._spec(
            arm,
            workdir,
            env={**self.env, **(ONE_HOST if ranks else {})},
            worker_processes=engine.tensor_parallel if ranks else 0,
            model_dir=self.folder / (SLICE if manifest.models.slice is not None else CHECKPOINT),
            max_model_len=manifest.gpu_model.max_model_len,
            # Kernels that one arm compiled are not run for another.
            cache_dir=workdir / "cache" / arm.value,
        )
        args = [a.replace("{model}", str(spec.model_dir)) for a in served_args(manifest, arm)]
        args += ranks
        if engine.draft_tokens:
            # A step of a request has a row a draft and one more.
            rows = [size * (1 + engine.draft_tokens) for size in graph_sizes(manifest)]
            args += ["--cudagraph-capture-sizes", *map(str, rows), *draft_arguments(engine)]
        return BlockServer(spec, args, weights=weights_source(manifest, self.folder))


def count_gpus() -> int:
    """GPUs that an engine of this process may take: all of the machine, or those that the environment leaves it."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    return len(find_gpus()) if named is None else len([name for name in named.split(",") if name.strip()])


def parallel_arguments(engine: Engine) -> tuple[str, ...]:
    """Of an engine of several ranks, each a process of vLLM's own executor; none for one rank."""
    if engine.tensor_parallel == 1:
        return ()
    return (
        *("--tensor-parallel-size", str(engine.tensor_parallel)),
        *("--decode-context-parallel-size", str(engine.decode_context_parallel)),
        *("--distributed-executor-backend", "mp"),
        *("--worker-extension-cls", RANK_WORKER),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class OverheadArms:
    """Opens hosts that time the tracer within one engine of the candidate."""

    arms: GpuArms

    @classmethod
    def on_a_cpu(cls, manifest: Manifest, folder: Path, passages: tuple[str, ...], seed: int) -> OverheadArms:
        """Of an engine that serves the miniature model without a GPU, in one process as on one."""
        models = manifest.models.model_copy(update={"slice": None})
        nano = manifest.model_copy(update={"models": models})
        return cls(arms=GpuArms(manifest=nano, folder=folder, passages=passages, seed=seed, env=CPU_ENV))

    @property
    def folder(self) -> Path:
        """Holds the commit's files and the model."""
        return self.arms.folder

    def server(self, workdir: Path) -> BlockServer:
        """The one engine's process, not started."""
        return self.arms.server(Engine(), Arm.CANDIDATE, workdir)

    def __call__(self, engine: Engine, arms: tuple[Arm, ...]) -> OverheadHost:  # noqa: ARG002 - all are one engine
        """Starts the engine; raises `EngineError`."""
        found = self.arms
        has_gpu = found.env != CPU_ENV
        return OverheadHost(
            self.server(found.make_workdir()),
            passages=found.passages,
            seed=found.seed,
            hardware=collect_environment(Tier.GPU if has_gpu else Tier.CPU).machine,
            host="gpu" if has_gpu else "cpu",
            observe=find_gpu_reader()[0] if has_gpu else lambda: None,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ShippedArms:
    """Arms that bring their folder's files to a machine of a cluster which does not have them."""

    arms: CpuArms | GpuArms | OverheadArms
    files: bytes
    """A tar archive."""

    @classmethod
    def of(cls, arms: CpuArms | GpuArms | OverheadArms) -> ShippedArms:
        """The arms with the files that their folder holds now."""
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w") as archive:
            archive.add(arms.folder, arcname=".")
        return cls(arms=arms, files=packed.getvalue())

    def __call__(self, engine: Engine, arms: tuple[Arm, ...]) -> ArmHost:
        """See `CpuArms`. What was unpacked goes with the process that unpacked it."""
        folder = self.arms.folder
        if not folder.is_dir():
            folder.mkdir(mode=0o700, parents=True)
            atexit.register(shutil.rmtree, folder, ignore_errors=True)
            with tarfile.open(fileobj=io.BytesIO(self.files)) as archive:
                archive.extractall(folder, filter="data")
        return self.arms(engine, arms)


def _require_served(engine: Engine) -> None:
    """Raises `EngineError` for what vLLM's CPU backend does not do."""
    if engine.acceptance_length is not None:
        raise EngineError(
            "no-such-engine",
            "vLLM's CPU sampler (0.32) draws no synthetic acceptance length; drafts are verified for real there.",
        )
    if engine != Engine(draft_tokens=engine.draft_tokens):
        raise EngineError("no-such-engine", f"The cpu tier serves one rank, not {engine.name}.")


def draft_arguments(engine: Engine) -> tuple[str, ...]:
    """Drafts that are looked up in what is already written; vLLM 0.32 cannot cache prefixes beside them on a CPU.

    With an acceptance length vLLM draws how many are accepted; what stands in the drafts says nothing then.
    """
    if not engine.draft_tokens:
        return ()
    speculation: dict[str, object] = {
        "method": "ngram",
        "num_speculative_tokens": engine.draft_tokens,
        "prompt_lookup_min": 1,
        "prompt_lookup_max": 3,
    }
    if engine.acceptance_length is not None:
        speculation |= {
            "rejection_sample_method": "synthetic",
            "synthetic_acceptance_length": engine.acceptance_length,
        }
    return ("--no-enable-prefix-caching", "--speculative-config", json.dumps(speculation))


def write_subject(
    repository: Repository, change: Change, manifest: Manifest, folder: Path, progress: Progress, tier: Tier
) -> None:
    """Writes the head's files and what the tier serves below `folder`; raises `EngineError` when it cannot be made."""
    head = folder / "head"
    repository.export(change.head, [f"{root}/**" for root in manifest.paths.import_roots], head)
    found = manifest.models.slice if tier is Tier.GPU else None
    run = CpuRun(
        manifest=manifest,
        recorder=Recorder(sink=_Nowhere(), progress=progress),
        import_path=head,
        base_path=head,
        change=change,
        workdir=folder,
        data_root=folder,
        tasks_root=folder,
        slice_config=repository.read(change.head, found.config) if found else None,
        slice_weights=repository.read(change.head, found.weights.partition(":")[0])
        if found and found.weights
        else None,
    )
    write_slice(run) if found else build_checkpoint(run)


class _Nowhere:
    """A sink for what is not evidence here."""

    def add(self, record: AnyEvidence) -> str:
        """Keeps nothing."""
        return record.id
