"""The arms of a sweep as servers of the miniature model, for whichever process measures a cell."""

from __future__ import annotations

import json
import secrets
import tempfile
from dataclasses import dataclass
from pathlib import Path

from harness.app.arm_session import additional_config
from harness.app.cpu_tier import CpuRun, build_checkpoint
from harness.app.recorder import Progress, Recorder
from harness.engine.arm_spec import CPU_ENV, ArmSpec
from harness.engine.trace_settings import SETTINGS_ENV
from harness.facts.environment import collect_environment
from harness.facts.git import Repository
from harness.model.change import Change
from harness.model.errors import EngineError
from harness.model.evidence import AnyEvidence
from harness.model.manifest import Manifest
from harness.model.words import Arm, Tier
from perf_sweeps.agent_trace import Conversation
from perf_sweeps.block import LoadGenerator
from perf_sweeps.cell import Engine
from perf_sweeps.engine_host import EngineHost


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuArms:
    """Opens hosts whose arms serve the miniature model from a commit's files; each machine must have the folder."""

    manifest: Manifest
    folder: Path
    """Holds `head` and `nano`; servers get folders of their own in it."""
    passages: tuple[str, ...]
    seed: int
    load: LoadGenerator = "client"
    trace: tuple[Conversation, ...] = ()
    """What agent cells replay; empty: what they generate."""
    is_overhead: bool = False
    """All arms serve the candidate's code, and only the arm in its place is traced."""

    def __call__(self, engine: Engine, arms: tuple[Arm, ...]) -> EngineHost:
        """Starts the arms; raises `EngineError`, also for an engine that this host cannot start."""
        _require_served(engine)
        environment = collect_environment(Tier.CPU)
        workdir = Path(tempfile.mkdtemp(prefix="host-", dir=self.folder))
        return EngineHost(
            {arm: self.spec(engine, arm, workdir) for arm in arms},
            passages=self.passages,
            seed=self.seed,
            targets=self.manifest.dispatch.targets,
            hardware=f"{environment.cpu}, {environment.num_cores} cores",
            host="cpu",
            load=self.load,
            trace=self.trace,
        )

    def spec(self, engine: Engine, arm: Arm, workdir: Path) -> ArmSpec:
        """How an arm is started, with its ledger below `workdir`."""
        manifest = self.manifest
        switch = Arm.CANDIDATE if self.is_overhead else arm
        untraced = {SETTINGS_ENV: "", "PYTHONPATH": str(self.folder / "head")}
        return ArmSpec(
            arm=arm,
            model_dir=self.folder / "nano",
            import_path=self.folder / "head",
            import_roots=manifest.paths.import_roots,
            dispatch=manifest.dispatch,
            ledger_dir=workdir / arm.value,
            nonce=secrets.token_hex(8),
            max_model_len=manifest.nano_model.max_model_len,
            max_num_seqs=manifest.scope.max_batch + 1,
            additional_config=additional_config(manifest, switch),
            env=CPU_ENV | (untraced if self.is_overhead and arm is not Arm.CANDIDATE else {}),
            can_force_tokens=False,
            engine_args=(*manifest.nano_model.engine_args, *draft_arguments(engine.draft_tokens)),
            cache_dir=workdir / "cache",
        )


def _require_served(engine: Engine) -> None:
    """Raises `EngineError` for what vLLM's CPU backend does not do."""
    if engine.acceptance_length is not None:
        raise EngineError(
            "no-such-engine",
            "vLLM's CPU sampler (0.32) draws no synthetic acceptance length; drafts are verified for real there.",
        )
    if engine != Engine(draft_tokens=engine.draft_tokens):
        raise EngineError("no-such-engine", f"The cpu tier serves one rank, not {engine.name}.")


def draft_arguments(num_drafts: int) -> tuple[str, ...]:
    """Drafts that are looked up in what is already written; vLLM 0.32 cannot cache prefixes beside them on a CPU."""
    if not num_drafts:
        return ()
    speculation = {
        "method": "ngram",
        "num_speculative_tokens": num_drafts,
        "prompt_lookup_min": 1,
        "prompt_lookup_max": 3,
    }
    return ("--no-enable-prefix-caching", "--speculative-config", json.dumps(speculation))


def write_subject(
    repository: Repository, change: Change, manifest: Manifest, folder: Path, progress: Progress
) -> None:
    """Writes the head's files and the miniature model below `folder`; raises `EngineError` when it cannot be built."""
    head = folder / "head"
    repository.export(change.head, [f"{root}/**" for root in manifest.paths.import_roots], head)
    build_checkpoint(
        CpuRun(
            manifest=manifest,
            recorder=Recorder(sink=_Nowhere(), progress=progress),
            import_path=head,
            base_path=head,
            change=change,
            workdir=folder,
            data_root=folder,
            tasks_root=folder,
        )
    )


class _Nowhere:
    """A sink for what is not evidence here."""

    def add(self, record: AnyEvidence) -> str:
        """Keeps nothing."""
        return record.id
