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
from tests.harness.app.conftest import CLEAN_SIZES, Run, copy_subject, git, validate_options

pytestmark = [pytest.mark.engine, pytest.mark.timeout(1200)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """A replacement in one file of the subject."""

    file: str
    old: str
    new: str
    imports: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Edits of the subject that do not hide each other, and the checks that must reject them."""

    edits: tuple[Edit, ...]
    caught_by: tuple[tuple[str, str], ...]
    """Check, and the subject of its finding; an empty one: any."""
    num_feature_prompts: int = 0
    num_greedy_prompts: int = 16
    """Prompts of features are chosen among these: as many as the clean run has give the same."""


SILENT_FALL_BACK = Edit(
    file="specialized_path/runtime/executor.py",
    old="        return self._run_layers(plan, token_ids, self._weights, get_forward_context().attn_metadata)",
    new="        return self._model.plain_forward(token_ids, token_ids)",
)
STATE_DROPPED = Edit(
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
TEMPERATURE_IGNORED = Edit(
    file="specialized_path/runtime/executor.py",
    old="        self._model = model\n",
    new="        from vllm.v1.sample.sampler import Sampler\n"
    "        Sampler.apply_temperature = staticmethod(lambda logits, *_: logits)\n"
    "        self._model = model\n",
)


GRAMMAR_LATE = Edit(
    file="specialized_path/runtime/executor.py",
    old="        self._provider = provider\n",
    new="        self._provider = provider\n"
    "        from vllm.v1.worker import gpu_model_runner\n"
    "        apply, last = gpu_model_runner.apply_grammar_bitmask, {}\n"
    "        def apply_late(scheduled, grammar, batch, logits):\n"
    "            for index, request in enumerate(grammar.structured_output_request_ids):\n"
    "                now = grammar.grammar_bitmask[index].copy()\n"
    "                grammar.grammar_bitmask[index] = last.get(request, now)\n"
    "                last[request] = now\n"
    "            return apply(scheduled, grammar, batch, logits)\n"
    "        gpu_model_runner.apply_grammar_bitmask = apply_late\n",
)

FAULTS = {
    "silent fall-back to the plain forward": Fault(edits=(SILENT_FALL_BACK,), caught_by=(("COR003", ""),)),
    "KDA state update dropped at batch > 1": Fault(edits=(STATE_DROPPED,), caught_by=(("COR001", ""),)),
    "temperature ignored, the grammar's mask one step late": Fault(
        edits=(TEMPERATURE_IGNORED, GRAMMAR_LATE),
        caught_by=(
            ("SCO001", ""),
            ("SCO002", ""),
            ("SCO005", "temperature_sampling"),
            ("SCO005", "regex"),
            ("SCO005", "grammar"),
        ),
        num_feature_prompts=4,
        num_greedy_prompts=CLEAN_SIZES.num_greedy_prompts,
    ),
}
FAULT_SIZES = CpuSizes(
    num_forced_prompts=8,
    num_sampling_prompts=12,
    num_structured_prompts=4,
    num_full_context_prompts=1,
    num_feature_prompts=0,
    num_mrcr_rows=8,
    num_aime_rows=8,
    num_aime_samples=1,
    num_control_requests=4,
)
"""Enough to show a fault; the clean run asks for enough to show that there is none."""


def judge_fault(fault: Fault, clean: Run, folder: Path) -> Judgement:
    """The judgement of a change with the fault; only the candidate is served anew."""
    repo = copy_subject(folder / "repo")
    for edit in fault.edits:
        path = repo / edit.file
        source = path.read_text()
        assert source.count(edit.old) == 1, "the fault no longer fits the source"
        source = source.replace(edit.old, edit.new)
        path.write_text(source.replace("from torch", f"{edit.imports}from torch", 1))
    git(repo, "commit", "--quiet", "--all", "--message", "a bad change")

    def collect_candidate(run: CpuRun) -> None:
        for record in clean.evidence:
            known = isinstance(record, (ArmEvidence, LedgerEvidence, SuiteEvidence))
            if known and record.arm is not Arm.CANDIDATE:
                run.recorder.record(record)
        # The scripted runs have faults of their own in test_edges_say_no.py.
        sizes = replace(
            FAULT_SIZES,
            num_feature_prompts=fault.num_feature_prompts,
            num_greedy_prompts=fault.num_greedy_prompts,
        )
        collect_cpu_tier(replace(run, arms=(Arm.CANDIDATE,), sizes=sizes, collect_probes=lambda _: None))

    result = validate(validate_options(repo, folder / "bundle"), collect_cpu=collect_candidate)
    judgement = read_bundle(folder / "bundle").judgement
    assert result.exit_code is judgement.exit_code
    return judgement


@pytest.fixture(scope="module")
def faulty(clean_run: Run, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Judgement]:
    """The judgement of each fault by name; the faulty candidates are served side by side."""

    def judged(name: str) -> Judgement:
        return judge_fault(FAULTS[name], clean_run, tmp_path_factory.mktemp("fault"))

    with ThreadPoolExecutor(len(FAULTS)) as pool:
        return dict(zip(FAULTS, pool.map(judged, FAULTS), strict=True))


def failed(judgement: Judgement) -> set[tuple[str, str]]:
    """Check and subject of every finding that fails, and each such check with an empty subject."""
    findings = [f for f in judgement.findings if f.outcome is Outcome.FAIL]
    return {(f.check, f.subject) for f in findings} | {(f.check, "") for f in findings}


def test_the_clean_path_passes_all_that_a_cpu_can_show_and_stays_undecided_for_the_gpu_tier(
    clean_run: Run,
) -> None:
    outcomes = {check.check: check.outcome for check in clean_run.judgement.checks}
    # Timing on a busy machine may decide nothing; it must never fail here.
    timing = outcomes.pop("PERF001")
    gpu = ("ISO009", "ISO010", "ISO011", "ISO012", "SCO006", "COR012", "COR013", "PERF002", "PERF003")
    on_a_gpu = {outcomes.pop(check) for check in gpu}
    # The manifest names no entry points for the kernels that its slice serves on a GPU, and the copy has no hooks.
    kernels = {outcomes.pop(check.id) for check in (*kernel_rule_checks(), WaitClobbersMemory())}
    assert (kernels, outcomes.pop(GuardedHooks.id)) == ({Outcome.NOT_RUN}, Outcome.NOT_APPLICABLE)
    # Nor does it have tests, without which a change of the subject shows nothing of them.
    assert outcomes.pop("COR011") is Outcome.INCONCLUSIVE
    # So few answers and requests may decide nothing either; `make validate` asks for enough.
    few = {outcomes.pop(check) for check in ("COR007", "COR008", "COR010", "SCO005")}
    not_passed = {name for name, outcome in outcomes.items() if outcome is not Outcome.PASS}
    why = [f for f in clean_run.judgement.findings if f.check in not_passed and f.outcome is not Outcome.PASS]
    assert not_passed == set(), why
    assert {timing, *few} <= {Outcome.PASS, Outcome.INCONCLUSIVE}
    assert on_a_gpu == {Outcome.NOT_RUN}
    assert (clean_run.judgement.verdict, clean_run.exit_code) == (Verdict.UNDECIDED, ExitCode.UNDECIDED)


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_rejected_by_the_checks_named_for_it(
    name: str, faulty: dict[str, Judgement]
) -> None:
    judgement = faulty[name]
    assert (judgement.exit_code, judgement.verdict) == (ExitCode.REJECT, Verdict.REJECT)
    assert set(FAULTS[name].caught_by) - failed(judgement) == set()
