"""Laws of ISO001: a change that leaves its own files is told so by file, and one that does not passes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from harness.checks.isolation.iso001_changed_paths import ChangedPaths
from harness.config import load_manifest, load_policy
from harness.model.change import EMPTY_TREE, Change, ChangedFile
from harness.model.check import CheckContext
from harness.model.evidence import AnyEvidence, ChangedFilesEvidence, OwnersEvidence, evidence_set
from harness.model.finding import Finding
from harness.model.judgement import worst
from harness.model.manifest import Manifest
from harness.model.words import Outcome, Tier

MANIFEST = """
schema_version = 1
[change]
id = "own"
title = "Own path"
model = "Kimi K3"
vllm = "0.33.0"
[paths]
owned = ["own/**"]
protected = ["judge/**"]
tests = ["tests/own/**"]
docs = ["docs/**"]
import_roots = ["own"]
hooks = [{file = "shared/registry.py", max_added_lines = 3, why = "registers the path"}]
[switch]
key = "k"
on = "on"
off = "off"
[scope]
platforms = ["cpu"]
max_batch = 8
max_context = 64
[dispatch]
specialized_code = ["own.a:f"]
baseline_code = ["own.a:plain"]
decisions = [{target = "own.a:g", value = "path", specialized = "yes"}]
[models.nano]
build = ["-m", "own.build", "{out}"]
max_model_len = 64
"""
POLICY = 'schema_version = 1\nversion = "1"\n[required]\nstatic = ["ISO001"]\n'


def changed(path: str, **fields: Any) -> ChangedFile:
    known: dict[str, Any] = {
        "status": "modified",
        "old_mode": "100644",
        "new_mode": "100644",
        "added_lines": 1,
        "deleted_lines": 0,
        "is_binary": False,
    }
    return ChangedFile(path=path, **(known | fields))


def special(path: str, mode: str, **fields: Any) -> ChangedFile:
    numbers = {"added_lines": None, "deleted_lines": None}
    return changed(path, status="added", old_mode="000000", new_mode=mode, **numbers, **fields)


def run(
    *files: ChangedFile,
    num_not_judged: int = 0,
    merge_base: str = "b" * 40,
    manifest: Manifest | None = None,
    policy: str = "",
) -> Sequence[Finding]:
    record = ChangedFilesEvidence(
        tier=Tier.STATIC, recorded_at="2026-11-01T00:00:00Z", files=files, num_not_judged=num_not_judged
    )
    return findings_of([record], merge_base, manifest, policy)


def run_all(records: Sequence[AnyEvidence]) -> Sequence[Finding]:
    change = Change(base="b" * 40, merge_base="b" * 40, head="c" * 40, head_subject="x")
    context = CheckContext(
        change=change,
        manifest=load_manifest(MANIFEST),
        policy=load_policy(POLICY),
        evidence=evidence_set(records),
    )
    return ChangedPaths().run(context)


def findings_of(
    records: Sequence[AnyEvidence],
    merge_base: str = "b" * 40,
    manifest: Manifest | None = None,
    policy: str = "",
) -> Sequence[Finding]:
    change = Change(
        base=merge_base, merge_base=merge_base, head="c" * 40, head_subject="x", limited_to=("own/**",)
    )
    findings = ChangedPaths().run(
        CheckContext(
            change=change,
            manifest=manifest or load_manifest(MANIFEST),
            policy=load_policy(policy or POLICY),
            evidence=evidence_set(records),
        )
    )
    return [finding for finding in findings if finding.subject != "size and owners"]


def outcome(findings: Sequence[Finding]) -> Outcome:
    return worst([finding.outcome for finding in findings])


def test_owned_tests_and_docs_pass_in_one_finding_that_counts_them() -> None:
    (finding,) = run(
        changed("own/a.py"), changed("own/b.py"), changed("tests/own/t.py"), changed("docs/x.md")
    )
    assert finding.outcome is Outcome.PASS
    assert "2 owned, 1 test, 1 docs" in finding.message


@pytest.mark.parametrize(
    ("path", "word"),
    [
        ("vllm/v1/core/sched/scheduler.py", "protected"),
        ("judge/checks/a.py", "protected"),
        ("vllm/models/other/model.py", "another model"),
        ("setup.py", "build"),
        ("elsewhere/x.py", "shared"),
        ("own_evil/x.py", "shared"),
        ("docs/../judge/a.py", "protected"),
    ],
)
def test_one_file_outside_the_own_paths_fails_with_its_place(path: str, word: str) -> None:
    (finding,) = run(changed("own/a.py"), changed(path))
    assert finding.outcome is Outcome.FAIL
    assert finding.location is not None
    assert (finding.location.path, finding.location.line, finding.subject) == (path, 1, path)
    assert word in finding.message
    assert finding.advice


@pytest.mark.parametrize(
    ("path", "word"),
    [("vllm/models/kimi_k3/nvidia/kda.py", "without the change"), ("vllm/models/kimi/a.py", "another model")],
)
def test_a_file_of_the_same_model_is_not_called_another_models(path: str, word: str) -> None:
    manifest = load_manifest(MANIFEST.replace("own/**", "vllm/models/kimi_k3/fast/**", 1))
    (finding,) = run(changed(path), manifest=manifest)
    assert (finding.outcome, word in finding.message) == (Outcome.FAIL, True)


def test_a_rename_out_of_a_protected_folder_into_an_owned_one_fails() -> None:
    (finding,) = run(changed("own/a.py", status="renamed", old_path="judge/a.py"))
    assert (finding.outcome, finding.subject) == (Outcome.FAIL, "judge/a.py")


def test_a_copy_out_of_a_protected_folder_leaves_it_as_it_was() -> None:
    assert outcome(run(changed("own/a.py", status="copied", old_path="judge/a.py"))) is Outcome.PASS


def test_a_deleted_shared_file_fails() -> None:
    file = changed("elsewhere/x.py", status="deleted", new_mode="000000", added_lines=0, deleted_lines=9)
    assert outcome(run(file)) is Outcome.FAIL


def test_a_mode_change_alone_counts_as_an_edit() -> None:
    assert outcome(run(changed("judge/run.sh", new_mode="100755", added_lines=0))) is Outcome.FAIL
    (finding,) = run(changed("own/run.sh", new_mode="100755", added_lines=0))
    assert finding.outcome is Outcome.PASS
    assert "own/run.sh becomes executable" in finding.details


def test_a_hook_within_its_budget_passes_and_leaves_its_guard_to_iso003() -> None:
    hook, summary = run(changed("own/a.py"), changed("shared/registry.py", added_lines=3, deleted_lines=1))
    assert (hook.outcome, summary.outcome) == (Outcome.PASS, Outcome.PASS)
    assert "3 of at most 3" in hook.message
    assert "ISO003" in hook.message
    assert "1 hook" in summary.message


@pytest.mark.parametrize(
    "fields",
    [
        {"added_lines": 4},
        {"added_lines": 1, "deleted_lines": 2},
        {"added_lines": None, "deleted_lines": None, "is_binary": True},
        {"added_lines": 0, "new_mode": "100755"},
        {"added_lines": 0, "status": "deleted", "new_mode": "000000", "deleted_lines": 5},
        {"added_lines": 0, "status": "renamed", "old_path": "own/a.py"},
        {"added_lines": 0, "status": "copied", "old_path": "own/a.py"},
        {"added_lines": None, "deleted_lines": None, "status": "type_changed", "new_mode": "120000"},
    ],
)
def test_a_hook_that_does_more_than_add_its_lines_fails(fields: dict[str, Any]) -> None:
    findings = run(changed("own/a.py"), changed("shared/registry.py", **fields))
    assert [f.subject for f in findings if f.outcome is Outcome.FAIL] == ["shared/registry.py"]


def test_an_owned_binary_decides_nothing() -> None:
    binary = changed("own/k.so", added_lines=None, deleted_lines=None, is_binary=True)
    assert outcome(run(changed("own/a.py"), binary)) is Outcome.INCONCLUSIVE


def test_a_binary_among_the_tests_or_one_taken_away_passes() -> None:
    numbers: dict[str, Any] = {"added_lines": None, "deleted_lines": None, "is_binary": True}
    gone = changed("own/k.so", status="deleted", new_mode="000000", **numbers)
    assert outcome(run(changed("tests/own/data.bin", **numbers), gone)) is Outcome.PASS


def test_a_submodule_among_owned_files_fails() -> None:
    assert outcome(run(special("own/sub", "160000"))) is Outcome.FAIL


@pytest.mark.parametrize(
    "target", ["../judge/a.py", "/etc/passwd", "../../x", "sub/../../judge/a.py", "..", None]
)
def test_a_link_that_leaves_the_own_paths_fails(target: str | None) -> None:
    assert outcome(run(special("own/link", "120000", link_target=target))) is Outcome.FAIL


def test_a_link_that_stays_inside_passes_and_is_listed() -> None:
    link, summary = run(special("own/sub/link", "120000", link_target="../a.py"))
    assert (link.outcome, link.subject, summary.outcome) == (Outcome.PASS, "own/sub/link", Outcome.PASS)


def test_many_files_of_one_rule_share_a_finding_that_names_each() -> None:
    files = [changed(f"judge/f{i}.py") for i in range(5000)]
    findings = run(*files)
    assert len(findings) == 26
    named = {f.subject for f in findings[:-1]} | {line.split(" is ")[0] for line in findings[-1].details}
    assert named == {file.path for file in files}


def test_files_left_out_of_a_wholly_new_head_are_named_and_pass() -> None:
    (finding,) = run(changed("own/a.py"), num_not_judged=7, merge_base=EMPTY_TREE)
    assert finding.outcome is Outcome.PASS
    assert "7 changed files outside --paths own/** were not judged" in finding.message


def test_files_left_out_of_a_change_leave_its_isolation_open() -> None:
    (finding,) = run(changed("own/a.py"), num_not_judged=1)
    assert finding.outcome is Outcome.INCONCLUSIVE


def test_without_a_diff_nothing_is_known() -> None:
    assert outcome(findings_of([])) is Outcome.NOT_RUN
    assert outcome(run()) is Outcome.NOT_RUN


def test_a_manifest_that_owns_the_core_fails_even_when_it_was_never_checked() -> None:
    manifest = load_manifest(MANIFEST)
    paths = manifest.paths.model_copy(update={"owned": ("own/**", "vllm/**")})
    findings = run(changed("own/a.py"), manifest=manifest.model_copy(update={"paths": paths}))
    assert [(f.outcome, f.subject) for f in findings] == [(Outcome.FAIL, "vllm/**")]


UNPROTECTED = load_manifest(MANIFEST.replace('protected = ["judge/**"]', 'preset = "none"'))


def test_where_neither_manifest_nor_policy_protects_anything_nothing_is_shown() -> None:
    policy = f'preset = "none"\n{POLICY}'
    findings = run(changed("own/a.py"), manifest=UNPROTECTED, policy=policy)
    assert outcome(findings) is Outcome.INCONCLUSIVE


def test_a_manifest_cannot_take_away_what_the_policy_protects() -> None:
    paths = UNPROTECTED.paths.model_copy(update={"owned": ("own/**", "vllm/v1/**"), "docs": ("judge/**",)})
    manifest = UNPROTECTED.model_copy(update={"paths": paths})
    policy = f'protected = ["judge/**"]\n{POLICY}'
    findings = run(
        changed("vllm/v1/core/sched.py"), changed("judge/runner.py"), manifest=manifest, policy=policy
    )
    failed = {f.subject for f in findings if f.outcome is Outcome.FAIL}
    assert {"vllm/v1/core/sched.py", "judge/runner.py"} <= failed


def test_a_change_may_bring_its_first_manifest_and_may_not_edit_one() -> None:
    first = changed("fasttrack.toml", status="added", old_mode="000000")
    assert outcome(run(changed("own/a.py"), first)) is Outcome.PASS
    assert outcome(run(changed("own/a.py"), changed("fasttrack.toml"))) is Outcome.FAIL


@pytest.mark.parametrize("claim", ["owned", "tests", "docs"])
@pytest.mark.parametrize("path", ["fasttrack.toml", "own/part/fasttrack.toml"])
def test_no_manifest_may_call_itself_owned_or_a_test_or_a_document(claim: str, path: str) -> None:
    greedy = MANIFEST.replace(f'{claim} = ["', f'{claim} = ["fasttrack.toml", "own/part/**", "')
    findings = run(changed("own/a.py"), changed(path), manifest=load_manifest(greedy))
    assert {f.subject for f in findings if f.outcome is Outcome.FAIL} == {path}


@pytest.mark.parametrize("path", ["others/fasttrack.toml", "vllm/fasttrack.toml"])
def test_a_new_manifest_elsewhere_is_no_declaration_of_the_change(path: str) -> None:
    added = changed(path, status="added", old_mode="000000")
    assert outcome(run(changed("own/a.py"), added)) is Outcome.FAIL


def test_a_hook_in_a_manifest_is_an_edit_of_it() -> None:
    hooked = MANIFEST.replace("shared/registry.py", "fasttrack.toml")
    edit = changed("fasttrack.toml", added_lines=1, deleted_lines=1)
    assert outcome(run(edit, manifest=load_manifest(hooked))) is Outcome.FAIL


def test_every_decision_rests_on_the_diff() -> None:
    record = ChangedFilesEvidence(
        tier=Tier.STATIC, recorded_at="2026-11-01T00:00:00Z", files=(changed("own/a.py"),), num_not_judged=0
    )
    (finding,) = findings_of([record])
    assert finding.evidence == (record.id,)


@pytest.mark.parametrize("path", ["CODEOWNERS", "docs/CODEOWNERS"])
def test_who_reviews_what_is_no_document_of_a_change(path: str) -> None:
    assert outcome(run(changed(path))) is Outcome.FAIL


def test_an_edited_test_under_a_glob_for_everybodys_tests_decides_nothing() -> None:
    manifest = load_manifest(MANIFEST.replace('tests = ["tests/own/**"]', 'tests = ["tests/**"]'))
    assert outcome(run(changed("tests/other/test_a.py"), manifest=manifest)) is Outcome.INCONCLUSIVE


def test_a_new_test_under_a_glob_for_everybodys_tests_passes() -> None:
    manifest = load_manifest(MANIFEST.replace('tests = ["tests/own/**"]', 'tests = ["tests/**"]'))
    new = changed("tests/other/test_a.py", status="added")
    assert outcome(run(new, manifest=manifest)) is Outcome.PASS


@pytest.mark.parametrize("name", ["conftest.py", "models/conftest.py", "pytest.ini", "setup.cfg", "tox.ini"])
def test_a_new_file_that_steers_everybodys_tests_decides_nothing(name: str) -> None:
    manifest = load_manifest(MANIFEST.replace('tests = ["tests/own/**"]', 'tests = ["tests/**"]'))
    (finding,) = run(changed(f"tests/{name}", status="added"), manifest=manifest)
    assert (finding.outcome, finding.location and finding.location.path) == (
        Outcome.INCONCLUSIVE,
        f"tests/{name}",
    )


def test_a_new_file_that_steers_the_changes_own_tests_passes() -> None:
    assert outcome(run(changed("tests/own/conftest.py", status="added"))) is Outcome.PASS


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"added_lines": 0, "deleted_lines": 40}, Outcome.INCONCLUSIVE),
        ({"status": "renamed", "old_path": "docs/old.md", "added_lines": 0}, Outcome.INCONCLUSIVE),
        ({"added_lines": 3, "deleted_lines": 1}, Outcome.PASS),
        ({"status": "added", "added_lines": 9}, Outcome.PASS),
    ],
    ids=["emptied", "renamed", "a table's line", "new"],
)
def test_a_document_of_everybody_may_be_added_to_and_not_taken_from(
    fields: dict[str, Any], expected: Outcome
) -> None:
    assert outcome(run(changed("docs/index.md", **fields))) is expected


def test_a_git_lfs_pointer_is_inconclusive() -> None:
    assert outcome(run(changed("own/w.bin", is_lfs_pointer=True))) is Outcome.INCONCLUSIVE


def test_size_and_owners_are_told_and_decide_nothing() -> None:
    files = [changed("own/a.py", added_lines=40), changed("tests/own/t.py", added_lines=900)]
    record = ChangedFilesEvidence(
        tier=Tier.STATIC, recorded_at="2026-11-01T00:00:00Z", files=tuple(files), num_not_judged=0
    )
    owners = OwnersEvidence(
        tier=Tier.STATIC,
        recorded_at="2026-11-01T00:00:00Z",
        path=".github/CODEOWNERS",
        text="* @all\n/own/ @whales\n",
    )
    told = run_all([record, owners])[-1]
    assert told.outcome is Outcome.NOT_APPLICABLE
    assert "Size M: 40 lines added, 0 deleted in 1 files" in told.message
    assert "@all, @whales" in told.message


@pytest.mark.parametrize(
    ("status", "rivals", "expected"),
    [
        ("added", ("own/mod.py",), Outcome.INCONCLUSIVE),
        ("modified", ("own/mod.py",), Outcome.INCONCLUSIVE),
        ("added", ("shared/mod.py",), Outcome.FAIL),
        ("modified", ("shared/mod.py",), Outcome.INCONCLUSIVE),
        ("added", (), Outcome.PASS),
    ],
)
def test_a_module_with_two_files_does_not_pass(
    status: str, rivals: tuple[str, ...], expected: Outcome
) -> None:
    found = run(changed("own/mod/__init__.py", status=status, rivals=rivals))
    assert worst([f.outcome for f in found]) is expected
