"""Laws of ISO003 and ISO004: each outcome once, each finding with its place, and what is missing said."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from harness.checks.isolation.iso003_guarded_hooks import GuardedHooks
from harness.checks.isolation.iso004_imports import Imports
from harness.config import load_manifest, load_policy
from harness.model.change import Change, ChangedFile
from harness.model.check import CheckContext
from harness.model.evidence import (
    AnyEvidence,
    ChangedFilesEvidence,
    HooksEvidence,
    ImportsEvidence,
    evidence_set,
)
from harness.model.finding import Finding
from harness.model.import_presets import VLLM_CORE
from harness.model.judgement import worst
from harness.model.reach import GuardState, HookedFile, Hunk, ImportForm, InwardImport, OwnImport
from harness.model.words import Outcome, Tier
from tests.harness.checks.test_iso001_changed_paths import MANIFEST, POLICY

BASE, HEAD = "b" * 40, "c" * 40
HOOK = "shared/registry.py"
COMMON: dict[str, Any] = {"tier": Tier.STATIC, "recorded_at": "2026-11-01T00:00:00Z"}


def context(*records: AnyEvidence, manifest: str = MANIFEST, policy: str = POLICY) -> CheckContext:
    change = Change(base=BASE, merge_base=BASE, head=HEAD, head_subject="x")
    return CheckContext(
        change=change,
        manifest=load_manifest(manifest),
        policy=load_policy(policy),
        evidence=evidence_set(records),
    )


def hunk(state: GuardState, *, line: int = 7, named: bool = True) -> Hunk:
    return Hunk(
        base_line=line,
        num_base_lines=0,
        head_line=line,
        num_head_lines=2,
        lines=("+a", "+b"),
        state=state,
        reason="line 7: runs with the switch off",
        guards=("line 6: fast is not None",) if state is GuardState.GUARDED else (),
        names_subject=named,
    )


def hooks(*hunks: Hunk, base: str = BASE, status: Any = "changed") -> HooksEvidence:
    file = HookedFile(path=HOOK, status=status, hunks=hunks)
    return HooksEvidence(**COMMON, base=base, commit=HEAD, files=(file,))


def edited() -> ChangedFilesEvidence:
    file = ChangedFile(
        path=HOOK,
        status="modified",
        old_mode="100644",
        new_mode="100644",
        added_lines=2,
        deleted_lines=0,
        is_binary=False,
    )
    return ChangedFilesEvidence(**COMMON, files=(file,), num_not_judged=0)


def imports(
    *inward: InwardImport, outward: Sequence[OwnImport] = (), unreadable: tuple[str, ...] = (), owned: int = 2
) -> ImportsEvidence:
    return ImportsEvidence(
        **COMMON,
        commit=HEAD,
        num_files=9,
        num_subject_files=owned,
        inward=inward,
        outward=tuple(outward),
        unreadable=unreadable,
    )


def reach(path: str, **fields: Any) -> InwardImport:
    known = {"line": 3, "target": "own.fast", "form": ImportForm.STATIC, "is_new": True}
    return InwardImport(path=path, **(known | fields))


def outcome(findings: Sequence[Finding]) -> Outcome:
    return worst([finding.outcome for finding in findings])


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (GuardState.GUARDED, Outcome.PASS),
        (GuardState.UNGUARDED, Outcome.FAIL),
        (GuardState.UNDECIDED, Outcome.INCONCLUSIVE),
    ],
)
def test_a_hunks_state_decides_and_the_hunk_is_shown(state: GuardState, expected: Outcome) -> None:
    (finding,) = GuardedHooks().run(context(hooks(hunk(state)), edited()))
    assert finding.outcome is expected
    assert finding.location is not None and (finding.location.path, finding.location.line) == (HOOK, 7)
    assert {"+a", "+b"} <= set(finding.details)


def test_a_guarded_hunk_names_its_guard() -> None:
    (finding,) = GuardedHooks().run(context(hooks(hunk(GuardState.GUARDED))))
    assert any("line 6: fast is not None" in line for line in finding.details)


def test_an_open_finding_has_reason_and_remedy() -> None:
    (finding,) = GuardedHooks().run(context(hooks(hunk(GuardState.UNGUARDED))))
    assert "runs with the switch off" in finding.message and finding.advice


def test_many_hunks_that_do_not_name_the_subject_share_a_finding() -> None:
    many = [hunk(GuardState.UNGUARDED, line=n, named=False) for n in range(10, 60)]
    findings = GuardedHooks().run(context(hooks(hunk(GuardState.UNGUARDED), *many)))
    assert len(findings) == 2
    assert len(findings[1].details) == 50


def test_without_hooks_nothing_applies() -> None:
    manifest = "\n".join(line for line in MANIFEST.splitlines() if not line.startswith("hooks"))
    (finding,) = GuardedHooks().run(context(manifest=manifest))
    assert finding.outcome is Outcome.NOT_APPLICABLE


@pytest.mark.parametrize("records", [(), (hooks(base="d" * 40),)])
def test_hooks_that_were_not_read_at_these_commits_are_not_run(records: tuple[AnyEvidence, ...]) -> None:
    assert outcome(GuardedHooks().run(context(*records))) is Outcome.NOT_RUN


def test_a_hook_that_the_diff_edits_and_the_reading_calls_unchanged_is_not_run() -> None:
    assert outcome(GuardedHooks().run(context(hooks(status="unchanged"), edited()))) is Outcome.NOT_RUN


def test_an_unchanged_hook_passes() -> None:
    assert outcome(GuardedHooks().run(context(hooks(status="unchanged")))) is Outcome.PASS


def test_a_hook_in_a_file_that_does_not_exist_fails() -> None:
    assert outcome(GuardedHooks().run(context(hooks(status="missing")))) is Outcome.FAIL


def test_an_import_in_a_hook_passes_and_is_listed() -> None:
    findings = Imports().run(context(imports(reach(HOOK, guards=("line 2: on",)))))
    assert outcome(findings) is Outcome.PASS
    assert "guarded by line 2: on" in findings[0].details[0]


@pytest.mark.parametrize(
    "path", ["shared/other.py", "vllm/v1/worker/gpu_worker.py", "vllm/models/llama/model.py"]
)
def test_an_import_outside_hooks_fails_at_its_line(path: str) -> None:
    failed = [f for f in Imports().run(context(imports(reach(path)))) if f.outcome is Outcome.FAIL]
    assert [(f.location.path, f.location.line) for f in failed if f.location] == [(path, 3)]
    assert failed[0].advice


@pytest.mark.parametrize(
    "fields",
    [{"form": ImportForm.TYPES_ONLY}, {"is_new": False}],
)
def test_an_import_that_never_runs_or_was_there_is_listed_only(fields: dict[str, Any]) -> None:
    assert outcome(Imports().run(context(imports(reach("shared/other.py", **fields))))) is Outcome.PASS


def test_an_import_by_a_name_that_is_put_together_is_inconclusive() -> None:
    found = reach("shared/other.py", target="(f'own.{x}')", form=ImportForm.DYNAMIC)
    assert outcome(Imports().run(context(imports(found)))) is Outcome.INCONCLUSIVE


def test_a_file_that_does_not_parse_is_inconclusive() -> None:
    record = imports(unreadable=("own/a.py: it is not Python",))
    assert outcome(Imports().run(context(record))) is Outcome.INCONCLUSIVE


def test_without_python_files_of_the_subject_nothing_applies() -> None:
    assert outcome(Imports().run(context(imports(owned=0)))) is Outcome.NOT_APPLICABLE


def test_without_a_reading_it_is_not_run() -> None:
    assert outcome(Imports().run(context())) is Outcome.NOT_RUN


def own(target: str, form: ImportForm = ImportForm.STATIC) -> OwnImport:
    return OwnImport(path="own/a.py", line=4, target=target, form=form)


@pytest.mark.parametrize(
    "target",
    [
        "vllm.v1.core.sched.scheduler.Scheduler",
        "vllm.v1.core.kv_cache_manager.KVCacheManager",
        "vllm.v1.sample.sampler.Sampler",
        "vllm.v1.worker.gpu_model_runner.GPUModelRunner",
        "vllm.model_executor.layers.utils._private",
        "vllm.layers._hidden.public",
        "vllm._custom_ops._secret",
    ],
)
def test_what_the_preset_keeps_out_of_reach_fails_at_its_line(target: str) -> None:
    (_, failed) = Imports().run(context(imports(outward=[own(target)])))
    assert (failed.outcome, failed.location and failed.location.line) == (Outcome.FAIL, 4)


@pytest.mark.parametrize(
    "target",
    [
        "vllm.config.VllmConfig",
        "vllm._custom_ops.rms_norm",
        "vllm._custom_ops",
        "vllm.v1.kv_cache_interface.KVCacheSpec",
        "vllm.v1.sampling_words.x",
        "vllm.platforms.__getattr__",
        "torch._C.x",
    ],
)
def test_public_names_are_listed_and_pass(target: str) -> None:
    assert outcome(Imports().run(context(imports(outward=[own(target)])))) is Outcome.PASS


def test_an_import_of_the_engine_by_a_name_that_is_put_together_is_inconclusive() -> None:
    findings = Imports().run(context(imports(outward=(own("('vllm.v1.' + name)", ImportForm.DYNAMIC),))))
    assert outcome(findings) is Outcome.INCONCLUSIVE


def test_a_forbidden_import_for_types_only_passes() -> None:
    record = imports(outward=[own("vllm.v1.core.sched.output.X", ImportForm.TYPES_ONLY)])
    assert outcome(Imports().run(context(record))) is Outcome.PASS


def test_the_policy_forbids_further_names_and_makes_exceptions() -> None:
    policy = POLICY + '[imports]\nforbidden = ["vllm.lora"]\nallowed = ["vllm.layers._hidden"]\n'
    refused = imports(outward=[own("vllm.lora.layers.X")])
    excepted = imports(outward=[own("vllm.layers._hidden")])
    assert outcome(Imports().run(context(refused, policy=policy))) is Outcome.FAIL
    assert outcome(Imports().run(context(excepted, policy=policy))) is Outcome.PASS


def test_private_names_of_the_subjects_own_model_are_free() -> None:
    assert VLLM_CORE.why_forbidden("vllm.models.whale.a._x", own=["vllm.models.whale"]) == ""
    assert VLLM_CORE.why_forbidden("vllm.models.shark.a._x", own=["vllm.models.whale"])
