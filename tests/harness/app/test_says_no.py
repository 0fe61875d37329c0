"""The judge on a real engine: the clean path is not rejected, and planted faults are, by the check named for them.

A fault is an edit of the subject's committed files, as a bad change would bring it. The baseline's evidence of the
clean run is reused, since none of the edited files is imported while the switch is off.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from bundles.reader import read_bundle
from harness.app.cpu_tier import CpuRun, collect_cpu_tier
from harness.app.validate import validate
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


SILENT_FALL_BACK = Fault(
    file="specialized_path/runtime/executor.py",
    old="        return self._run_layers(plan, token_ids, self._weights, get_forward_context().attn_metadata)",
    new="        return self._model.plain_forward(token_ids, token_ids)",
)
STATE_DROPPED = Fault(
    file="specialized_path/runtime/reference_provider.py",
    old="            weights.layer.recurrent_states(),\n            slot,\n",
    new="            weights.layer.recurrent_states().clone() if len(x) > 1 else weights.layer.recurrent_states(),\n"
    "            slot,\n",
)
TEMPERATURE_IGNORED = Fault(
    file="specialized_path/runtime/executor.py",
    old="        self._model = model\n",
    new="        from vllm.v1.sample.sampler import Sampler\n"
    "        Sampler.apply_temperature = staticmethod(lambda logits, *_: logits)\n"
    "        self._model = model\n",
)


def judge_fault(fault: Fault, clean: Run, folder: Path) -> tuple[ExitCode, Judgement]:
    """The judgement of a change with the fault; only the candidate is served anew."""
    repo = copy_subject(folder / "repo")
    path = repo / fault.file
    source = path.read_text()
    assert source.count(fault.old) == 1, "the fault no longer fits the source"
    path.write_text(source.replace(fault.old, fault.new))
    git(repo, "commit", "--quiet", "--all", "--message", "a bad change")

    def collect_candidate(run: CpuRun) -> None:
        for record in clean.evidence:
            known = isinstance(record, (ArmEvidence, LedgerEvidence, SuiteEvidence))
            if known and record.arm is not Arm.CANDIDATE:
                run.recorder.record(record)
        collect_cpu_tier(replace(run, arms=(Arm.CANDIDATE,)))

    result = validate(validate_options(repo, folder / "bundle"), collect_cpu=collect_candidate)
    return result.exit_code, read_bundle(folder / "bundle").judgement


def failed(judgement: Judgement) -> set[str]:
    return {check.check for check in judgement.checks if check.outcome is Outcome.FAIL}


def test_the_clean_path_passes_all_that_a_cpu_can_show_and_stays_undecided_for_the_gpu_tier(
    clean_run: Run,
) -> None:
    outcomes = {check.check: check.outcome for check in clean_run.judgement.checks}
    open_checks = {name for name, outcome in outcomes.items() if not outcome.lets_through}
    assert (clean_run.judgement.verdict, open_checks) == (Verdict.UNDECIDED, {"PERF002"})
    assert clean_run.exit_code is ExitCode.UNDECIDED
    assert outcomes["PERF002"] is Outcome.NOT_RUN


@pytest.mark.parametrize(
    ("fault", "check"),
    [
        pytest.param(SILENT_FALL_BACK, "COR003", id="silent fall-back to the plain forward"),
        pytest.param(STATE_DROPPED, "COR001", id="KDA state update dropped at batch > 1"),
        pytest.param(TEMPERATURE_IGNORED, "SCO001", id="temperature ignored"),
    ],
)
def test_a_planted_fault_is_rejected_by_the_check_named_for_it(
    fault: Fault, check: str, clean_run: Run, tmp_path: Path
) -> None:
    exit_code, judgement = judge_fault(fault, clean_run, tmp_path)
    assert (exit_code, judgement.verdict) == (ExitCode.REJECT, Verdict.REJECT)
    assert check in failed(judgement)
