"""The scripted runs on real engines: a clean path passes, and each planted fault fails the check named for it.

A fault is an edit of a private copy of the subject. All candidates are compared with one twin of the clean copy, and
all heads with one base.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from harness.app.probe_plans import plan_probes
from harness.app.probes import ProbeRun, new_process, record_candidate, record_handover, record_snapshots
from harness.app.recorder import Progress, Recorder
from harness.checks.correctness.cor006_hand_over import HandOver
from harness.checks.isolation.iso007_base_and_head import BaseAndHead
from harness.checks.isolation.iso008_declared_writes import DeclaredWrites
from harness.checks.scope.sco004_edges import ScopeEdges
from harness.config import load_manifest, load_policy
from harness.engine.bystander import write_bystander
from harness.engine.probe.process import ProbeProcess
from harness.engine.probe.recording import Recording
from harness.model.change import Change
from harness.model.check import Check, CheckContext
from harness.model.evidence import AnyEvidence, HandoverEvidence, SubjectEvidence, evidence_set
from harness.model.finding import Finding
from harness.model.manifest import CoverageSection, Manifest
from harness.model.probe import ProbePlan
from harness.model.words import Outcome, Tier

pytestmark = pytest.mark.engine

ROOT = Path(__file__).resolve().parents[3]
MANIFEST = load_manifest((ROOT / "fasttrack.toml").read_bytes())
POLICY = load_policy((ROOT / ".github" / "fasttrack-policy.toml").read_bytes())
CHANGE = Change(base="a" * 40, merge_base="a" * 40, head="b" * 40, head_subject="made")
CLEAN = "clean"
SCENARIOS = (
    "batch_limit",
    "joined_by_a_prefill",
    "aborted",
    "preempted",
    "prefix_hit",
    "every_draft",
    "uniform_drafts",
)
"""Enough to show the faults; the clean path goes through all of them in `validate`."""

PROVIDER = "specialized_path/runtime/reference_provider.py"
KDA_DECODE = "        config, slot = self._config, slots.table[:, 0]\n"
CONVOLVED = (
    "        mixed = reference.short_conv(projected.qkv, weights.conv, weights.layer.conv_windows(), slot)\n"
)
LOGITS = "        return self.lm_head(hidden_states)\n"
PLUGIN = "specialized_path/plugin.py"
REGISTERED = "    if _ARCHITECTURE not in ModelRegistry.models:\n"
ATTENDED = "        attended = weights.layer.attn(rows.query.flatten(1), rows.cache_row, rows.cache_row)\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """An edit of one file of the subject, and the check that must reject it."""

    copy: str
    """Faults that do not hide each other share a copy of the subject."""
    check: type[Check]
    subject: str
    """Of the finding that fails."""
    file: str
    old: str
    new: str


FAULTS = {
    "state written in a foreign slot": Fault(
        copy="foreign",
        check=DeclaredWrites,
        subject="slots",
        file=PROVIDER,
        old=KDA_DECODE,
        new=KDA_DECODE + "        states = weights.layer.recurrent_states()\n"
        "        states[slot.long() % (len(states) - 1) + 1, 0, 0, 0] += 1.0\n",
    ),
    "padding written to the null slot": Fault(
        copy="several",
        check=DeclaredWrites,
        subject="slots",
        file=PROVIDER,
        old=KDA_DECODE,
        new=KDA_DECODE + "        weights.layer.recurrent_states()[0, 0, 0, 0] += 1.0\n",
    ),
    "a cache row written too far": Fault(
        copy="several",
        check=DeclaredWrites,
        subject="rows of its own tokens",
        file=PROVIDER,
        old=ATTENDED,
        new=ATTENDED + "        from vllm.forward_context import get_forward_context\n"
        "        slots = get_forward_context().slot_mapping[weights.layer.attn.layer_name][:num_tokens]\n"
        "        weights.layer.attn.kv_cache[slots // 128, 0, -1, -1] = 7.0\n",
    ),
    "an undeclared workspace": Fault(
        copy="several",
        check=DeclaredWrites,
        subject="memory outside the cache",
        file="specialized_path/runtime/executor.py",
        old="        self._weights = self._weights or bind_weights(self._model)\n",
        new="        self._weights = self._weights or bind_weights(self._model)\n"
        "        if not hasattr(self, 'scratch'):\n"
        "            self.scratch = token_ids.new_zeros(64)\n"
        "        self.scratch[: len(token_ids)] += token_ids\n",
    ),
    "rejected drafts stay in the state": Fault(
        copy="rejected",
        check=HandOver,
        subject="verify, every_draft",
        file=PROVIDER,
        old="            slots.num_accepted_tokens,\n",
        new="            slots.num_accepted_tokens.clamp(min=min(query_len, 2)),\n",
    ),
    "the convolution window is lost": Fault(
        copy="window",
        check=HandOver,
        subject="plain, joined_by_a_prefill",
        file=PROVIDER,
        old=CONVOLVED,
        new=CONVOLVED + "        weights.layer.conv_windows()[slot.long(), :, 0] = 0.0\n",
    ),
    "a write after the forward call": Fault(
        copy="several",
        check=DeclaredWrites,
        subject="between forward calls",
        file="specialized_path/nano/model.py",
        old=LOGITS,
        new="        if self.executor is not None:\n"
        "            states = self.model.layers[0].self_attn.kv_cache[1]\n"
        "            states[len(states) - 1, 0, 0, 0] += 1.0\n" + LOGITS,
    ),
    "a limit off by one": Fault(
        copy="several",
        check=ScopeEdges,
        subject=f"{MANIFEST.scope.max_batch + 1} requests",
        file="specialized_path/runtime/plan.py",
        old="if shape.num_reqs > self._limits.max_num_reqs:",
        new="if shape.num_reqs > self._limits.max_num_reqs + 1:",
    ),
}
OFF_FAULTS = {
    "a specialised module imported when off": Fault(
        copy="off",
        check=BaseAndHead,
        subject="loaded modules, the subject's model",
        file="specialized_path/nano/model.py",
        old="import torch\n",
        new="import torch\nimport specialized_path.runtime.limits  # noqa: F401\n",
    ),
    "a registered operator changed when off": Fault(
        copy="off",
        check=BaseAndHead,
        subject="registered operators, another model",
        file=PLUGIN,
        old="def register() -> None:\n",
        new="import torch\n\n_library = torch.library.Library('aten', 'IMPL')\n"
        "_library.impl('softplus', lambda x, *_: x.relu(), 'CPU')\n\n\ndef register() -> None:\n",
    ),
    "a thread started when off": Fault(
        copy="off",
        check=BaseAndHead,
        subject="process settings, another model",
        file=PLUGIN,
        old="    from transformers import AutoConfig\n",
        new="    import threading\n\n    from transformers import AutoConfig\n\n"
        "    threading.Thread(target=threading.Event().wait, name='watcher', daemon=True).start()\n",
    ),
    "a function of the engine replaced when off": Fault(
        copy="off",
        check=BaseAndHead,
        subject="engine functions, another model",
        file=PLUGIN,
        old="    from specialized_path.nano.config import KimiK3NanoConfig\n",
        new="    from specialized_path.nano.config import KimiK3NanoConfig\n"
        "    import importlib\n\n"
        "    owner = importlib.import_module('vllm.v1.core.sched.scheduler').Scheduler\n"
        "    plain = owner.has_requests\n"
        "    setattr(owner, 'has_' + 'requests', lambda self: plain(self))\n",
    ),
    "another model registered anew when off": Fault(
        copy="off",
        check=BaseAndHead,
        subject="registries, another model",
        file=PLUGIN,
        old=REGISTERED,
        new="    ModelRegistry.register_model('Qwen2ForCausalLM', _MODEL_CLASS)\n" + REGISTERED,
    ),
}


@dataclass(slots=True)
class Kept:
    """An evidence store in memory."""

    records: list[AnyEvidence] = field(default_factory=list)

    def add(self, record: AnyEvidence) -> str:
        self.records.append(record)
        return record.id


@dataclass(frozen=True, slots=True, kw_only=True)
class Workplace:
    """Copies of the subject, and what their processes recorded."""

    folder: Path
    model_dir: Path
    plans: dict[str, ProbePlan]
    recordings: dict[tuple[str, str], Recording] = field(default_factory=dict)
    """By copy and process."""
    processes: dict[tuple[str, str], ProbeProcess] = field(default_factory=dict)

    def run_of(self, copy: str, recorder: Recorder) -> ProbeRun:
        return ProbeRun(
            manifest=MANIFEST.model_copy(update={"coverage": CoverageSection()}),
            recorder=recorder,
            change=CHANGE,
            head_path=self.folder / copy,
            base_path=self.folder / CLEAN,
            model_dir=self.model_dir,
            workdir=self.folder / f"{copy} runs",
        )

    def begin(self, copy: str, name: str) -> None:
        """Runs one process of a copy to its end."""
        run = self.run_of(copy, Recorder(sink=Kept(), progress=Progress(quiet=True)))
        process = new_process(run, name, self.plans[name])
        self.processes[copy, name] = process
        self.recordings[copy, name] = process.run()

    def findings(self, copy: str, check: type[Check], manifest: Manifest = MANIFEST) -> dict[str, Finding]:
        """What a check says of a copy's candidate beside the clean twin, or of its head beside the clean base."""
        kept = Kept()
        run = self.run_of(copy, Recorder(sink=kept, progress=Progress(quiet=True)))
        if check is BaseAndHead:
            record_snapshots(run, "base", self.recordings[CLEAN, "base"])
            record_snapshots(run, "head", self.recordings[copy, "head"])
        else:
            candidate, twin = self.recordings[copy, "candidate"], self.recordings[CLEAN, "twin"]
            record_candidate(run, candidate, self.processes[copy, "candidate"])
            record_handover(run, candidate, twin, self.processes[CLEAN, "twin"])
        digests = {
            path.relative_to(root).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
            # The twin imported the clean files, the candidate those of the copy.
            for root in (self.folder / CLEAN, self.folder / copy)
            for path in root.rglob("*.py")
        }
        subject = SubjectEvidence(tier=Tier.CPU, recorded_at="now", commit=CHANGE.head, files=digests)
        found = [_with_imports_of(record, digests) for record in kept.records]
        context = CheckContext(
            change=CHANGE, manifest=manifest, policy=POLICY, evidence=evidence_set([subject, *found])
        )
        return {finding.subject: finding for finding in check().run(context)}


def _with_imports_of(record: AnyEvidence, digests: dict[str, str]) -> AnyEvidence:
    """The twin's record as if it had run on the copy's files: it imports none that the fault changed but the plan's."""
    if not isinstance(record, HandoverEvidence):
        return record
    imported = tuple(f.model_copy(update={"sha256": digests[f.path]}) for f in record.twin.imported)
    return record.model_copy(update={"twin": record.twin.model_copy(update={"imported": imported})})


def copy_subject(folder: Path, faults: Iterable[Fault]) -> None:
    shutil.copytree(
        ROOT / "specialized_path",
        folder / "specialized_path",
        ignore=shutil.ignore_patterns("__pycache__", "kernels"),
    )
    for fault in faults:
        path = folder / fault.file
        source = path.read_text()
        assert source.count(fault.old) == 1, "the fault no longer fits the source"
        path.write_text(source.replace(fault.old, fault.new))


def shorten(plan: ProbePlan) -> ProbePlan:
    """The plan with the chosen scenarios, without the engine beyond the scope."""
    engines = [
        e.model_copy(
            update={"scenarios": tuple(s for s in e.scenarios if s.name in SCENARIOS) or e.scenarios}
        )
        for e in plan.engines
        if e.within_scope
    ]
    return plan.model_copy(update={"engines": tuple(engines)})


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Workplace:
    """Every process run once, two at a time."""
    folder = tmp_path_factory.mktemp("edges")
    faults = [*FAULTS.values(), *OFF_FAULTS.values()]
    for copy in (CLEAN, *{f.copy for f in faults}):
        copy_subject(folder / copy, [f for f in faults if f.copy == copy])
    model_dir, bystander = folder / "nano", write_bystander(folder / "bystander")
    command = [sys.executable, "-m", "specialized_path.nano.checkpoint", str(model_dir)]
    subprocess.run(command, check=True, capture_output=True, cwd=folder / CLEAN)
    plans = plan_probes(MANIFEST, model_dir=model_dir, bystander_dir=bystander, base_has_model=True)
    twin, base = plans["twin"].engines, plans["base"].engines
    plans["twin"] = plans["twin"].model_copy(update={"engines": twin[len(base) :]})
    plans["head"] = plans["base"]
    work = Workplace(
        folder=folder, model_dir=model_dir, plans={name: shorten(plan) for name, plan in plans.items()}
    )
    candidates = dict.fromkeys((CLEAN, *(f.copy for f in FAULTS.values())))
    heads = dict.fromkeys((CLEAN, *(f.copy for f in OFF_FAULTS.values())))
    jobs = [(CLEAN, "twin"), (CLEAN, "base")]
    jobs += [*((copy, "candidate") for copy in candidates), *((copy, "head") for copy in heads)]
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda job: work.begin(*job), jobs))
    return work


@pytest.mark.parametrize("name", {**FAULTS, **OFF_FAULTS})
def test_a_planted_fault_is_rejected_by_the_check_named_for_it(name: str, workplace: Workplace) -> None:
    fault = (FAULTS | OFF_FAULTS)[name]
    assert workplace.findings(fault.copy, fault.check)[fault.subject].outcome is Outcome.FAIL


@pytest.mark.parametrize("check", [DeclaredWrites, HandOver, ScopeEdges, BaseAndHead])
def test_nothing_fails_on_the_clean_path(check: type[Check], workplace: Workplace) -> None:
    outcomes = {f.outcome for f in workplace.findings(CLEAN, check).values()}
    assert Outcome.PASS in outcomes
    assert not outcomes & {Outcome.FAIL, Outcome.ERROR}


@pytest.mark.parametrize("edge", ["mixed", "preemption", "abort", "prefix hit", "3 drafts"])
def test_the_script_brings_the_engine_to_the_edge(edge: str, workplace: Workplace) -> None:
    assert workplace.findings(CLEAN, ScopeEdges)[edge].outcome is Outcome.PASS


def test_a_workspace_that_the_manifest_declares_passes(workplace: Workplace) -> None:
    assert MANIFEST.state is not None
    state = MANIFEST.state.model_copy(update={"workspaces": ("model.executor.scratch",)})
    manifest = MANIFEST.model_copy(update={"state": state})
    found = workplace.findings("several", DeclaredWrites, manifest)
    assert found["memory outside the cache"].outcome is Outcome.PASS


def test_a_lost_window_is_named_by_the_buffer_that_the_next_step_starts_from(workplace: Workplace) -> None:
    finding = workplace.findings("window", HandOver)["plain, joined_by_a_prefill"]
    assert "kv_cache[0]" in finding.details[0]
