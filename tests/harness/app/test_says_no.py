"""The judge on a real engine: the clean path is not rejected, and planted faults are, by the check named for them.

A fault is an edit of the subject's committed files, as a bad change would bring it. The baseline's evidence of the
clean run is reused, since none of the edited files is imported while the switch is off.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from bundles.reader import read_bundle
from harness.app.cpu_tier import CpuRun, collect_cpu_tier
from harness.app.suite_plan import CpuSizes
from harness.app.validate import validate
from harness.checks.correctness.kernel_rules import kernel_rule_checks
from harness.checks.correctness.pdl005_wait_clobbers_memory import WaitClobbersMemory
from harness.checks.isolation.iso003_guarded_hooks import GuardedHooks
from harness.model.evidence import ArmEvidence, LedgerEvidence, SuiteEvidence
from harness.model.judgement import Judgement
from harness.model.words import Arm, ExitCode, Outcome, Verdict
from tests.harness.app.conftest import Run, copy_subject, git, validate_options

pytestmark = pytest.mark.engine


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """An edit of one file of the subject."""

    file: str
    old: str
    new: str
    imports: str = ""


SILENT_FALL_BACK = Fault(
    file="specialized_path/runtime/executor.py",
    old="        return self._run_layers(plan, token_ids, self._weights, get_forward_context().attn_metadata)",
    new="        return self._model.plain_forward(token_ids, token_ids)",
)
STATE_DROPPED = Fault(
    file="specialized_path/runtime/reference_provider.py",
    old="            weights.layer.recurrent_states(),\n            slot,\n",
    new="            *(\n"
    "                # The step works on a copy of its requests' states, so that none is written back.\n"
    "                (torch.cat([states[:1], states[slot]]), torch.arange(1, len(slot) + 1))\n"
    "                if len(x) > 1 and (states := weights.layer.recurrent_states()) is not None\n"
    "                else (weights.layer.recurrent_states(), slot)\n"
    "            ),\n",
    imports="import torch\n",
)
TEMPERATURE_IGNORED = Fault(
    file="specialized_path/runtime/executor.py",
    old="        self._model = model\n",
    new="        from vllm.v1.sample.sampler import Sampler\n"
    "        Sampler.apply_temperature = staticmethod(lambda logits, *_: logits)\n"
    "        self._model = model\n",
)


FAULTS = {
    "silent fall-back to the plain forward": (SILENT_FALL_BACK, "COR003"),
    "KDA state update dropped at batch > 1": (STATE_DROPPED, "COR001"),
    "temperature ignored": (TEMPERATURE_IGNORED, "SCO001"),
}
FAULT_SIZES = CpuSizes(
    num_greedy_prompts=16,
    num_forced_prompts=8,
    num_sampling_prompts=12,
    num_structured_prompts=4,
    num_full_context_prompts=1,
)
"""Enough to show a fault; the clean run asks for enough to show that there is none."""


def judge_fault(fault: Fault, clean: Run, folder: Path) -> Judgement:
    """The judgement of a change with the fault; only the candidate is served anew."""
    repo = copy_subject(folder / "repo")
    path = repo / fault.file
    source = path.read_text()
    assert source.count(fault.old) == 1, "the fault no longer fits the source"
    path.write_text(
        source.replace(fault.old, fault.new).replace("from torch", f"{fault.imports}from torch", 1)
    )
    git(repo, "commit", "--quiet", "--all", "--message", "a bad change")

    def collect_candidate(run: CpuRun) -> None:
        for record in clean.evidence:
            known = isinstance(record, (ArmEvidence, LedgerEvidence, SuiteEvidence))
            if known and record.arm is not Arm.CANDIDATE:
                run.recorder.record(record)
        # The scripted runs have faults of their own in test_edges_say_no.py.
        collect_cpu_tier(
            replace(run, arms=(Arm.CANDIDATE,), sizes=FAULT_SIZES, collect_probes=lambda _: None)
        )

    result = validate(validate_options(repo, folder / "bundle"), collect_cpu=collect_candidate)
    judgement = read_bundle(folder / "bundle").judgement
    assert result.exit_code is judgement.exit_code
    return judgement


@pytest.fixture(scope="module")
def faulty(clean_run: Run, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Judgement]:
    """The judgement of each fault by name; the faulty candidates are served side by side."""

    def judged(name: str) -> Judgement:
        return judge_fault(FAULTS[name][0], clean_run, tmp_path_factory.mktemp("fault"))

    with ThreadPoolExecutor(len(FAULTS)) as pool:
        return dict(zip(FAULTS, pool.map(judged, FAULTS), strict=True))


def failed(judgement: Judgement) -> set[str]:
    return {check.check for check in judgement.checks if check.outcome is Outcome.FAIL}


def test_the_clean_path_passes_all_that_a_cpu_can_show_and_stays_undecided_for_the_gpu_tier(
    clean_run: Run,
) -> None:
    outcomes = {check.check: check.outcome for check in clean_run.judgement.checks}
    # Timing on a busy machine may decide nothing; it must never fail here.
    timing = outcomes.pop("PERF001")
    on_a_gpu = {outcomes.pop(check) for check in ("ISO009", "PERF002")}
    without = {check.id for check in (*kernel_rule_checks(), WaitClobbersMemory())} | {GuardedHooks.id}
    # The copy has neither kernels nor hooks.
    assert {outcomes.pop(check) for check in without} == {Outcome.NOT_APPLICABLE}
    assert {name for name, outcome in outcomes.items() if outcome is not Outcome.PASS} == set()
    assert timing in (Outcome.PASS, Outcome.INCONCLUSIVE)
    assert on_a_gpu == {Outcome.NOT_RUN}
    assert (clean_run.judgement.verdict, clean_run.exit_code) == (Verdict.UNDECIDED, ExitCode.UNDECIDED)


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_rejected_by_the_check_named_for_it(
    name: str, faulty: dict[str, Judgement]
) -> None:
    judgement = faulty[name]
    assert (judgement.exit_code, judgement.verdict) == (ExitCode.REJECT, Verdict.REJECT)
    assert FAULTS[name][1] in failed(judgement)
