"""The gate believes nothing that it can recompute: another change, part of one, another manifest are refused."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from bundles.contents import EvidenceFile
from bundles.reader import read_bundle
from bundles.writer import EvidenceStore, seal
from harness.app.gate import gate
from harness.app.judging import decide, render_report
from harness.app.misfits import find_misfits
from harness.app.own_reading import read_commits
from harness.app.selftest.resealing import reseal
from harness.app.validate import read_question, validate
from harness.facts.engine_source import EngineSource
from harness.model.errors import ConfigurationError
from harness.model.evidence import ChangedFilesEvidence, ImportsEvidence, SubjectEvidence
from harness.model.words import ExitCode, Outcome, Tier, Verdict
from harness.options import ChangeOptions, GateOptions, OutputOptions, ValidateOptions
from tests.harness.app.conftest import A_PART, copy_subject, git

STATIC_POLICY = 'schema_version = 1\nversion = "t"\n[required]\nstatic = ["ISO001"]\n'


def commit(repo: Path, message: str) -> None:
    git(repo, "add", "--all")
    git(repo, "commit", "--quiet", "--message", message)


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    """A main branch with the subject and a static policy, and a branch `change` that edits one owned file."""
    repo = copy_subject(tmp_path / "repo", A_PART)
    (repo / ".github/fasttrack-policy.toml").write_text(STATIC_POLICY)
    commit(repo, "a static policy")
    git(repo, "branch", "--force", "main")
    git(repo, "checkout", "--quiet", "-B", "change")
    plugin = repo / "specialized_path/plugin.py"
    plugin.write_text(plugin.read_text() + "\n# edited\n")
    commit(repo, "an honest edit")
    return repo


def spoil(repo: Path) -> None:
    """A commit before the head that edits the engine's core."""
    core = repo / "vllm/v1/core/sched.py"
    core.parent.mkdir(parents=True)
    core.write_text("x = 1\n")
    commit(repo, "an edit of the core")
    (repo / "specialized_path/plugin.py").write_text('"""Edited."""\n')
    commit(repo, "one more honest edit")


def make_bundle(repo: Path, out: Path, **options: object) -> Path:
    change = ChangeOptions(repo=repo, tier=Tier.STATIC, **{"base": "main", **options})  # type: ignore[arg-type]
    validate(ValidateOptions(change=change, out=out, output=OutputOptions(quiet=True)))
    return out


def decide_at_gate(repo: Path, bundle: Path, *, policy: Path | None = None) -> tuple[ExitCode, str]:
    result = gate(
        GateOptions(
            bundles=(bundle,), repo=repo, base="main", head="change", policy=policy, output=OutputOptions()
        )
    )
    return result.exit_code, result.text


def test_an_honest_bundle_of_the_whole_change_is_admitted(repo: Path, tmp_path: Path) -> None:
    assert decide_at_gate(repo, make_bundle(repo, tmp_path / "b"))[0] is ExitCode.ADMIT


def test_an_honest_bundle_of_a_bad_change_is_rejected(repo: Path, tmp_path: Path) -> None:
    spoil(repo)
    assert decide_at_gate(repo, make_bundle(repo, tmp_path / "b"))[0] is ExitCode.REJECT


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        pytest.param({"base": "empty", "paths": ("specialized_path/**",)}, "leaves out a part", id="--paths"),
        pytest.param({"base": "change~1"}, "the merge base is", id="a base after the bad commit"),
    ],
)
def test_a_bundle_that_hides_a_bad_commit_is_refused(
    repo: Path, tmp_path: Path, options: dict[str, object], reason: str
) -> None:
    spoil(repo)
    code, text = decide_at_gate(repo, make_bundle(repo, tmp_path / "b", **options))
    assert code is ExitCode.HARNESS and reason in text


def test_a_message_or_path_that_looks_like_what_is_scrubbed_is_the_same_at_the_gate(
    repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("USER", "alicewonder")
    for name in ("pypi-publish-workflow", "sk-learn-baseline-notes", "ghp_a1B2c3D4a1B2c3D4", "192.168.7.9"):
        (repo / "docs" / f"{name}.md").write_text("Notes.\n")
    commit(
        repo, "alicewonder: cuDNN 9.10.2.21, with ghp_a1B2c3D4a1B2c3D4 of alice@example.org in /home/alice/x"
    )
    bundle = make_bundle(repo, tmp_path / "bundle")
    assert read_bundle(bundle).change.head_subject == (
        "alicewonder: cuDNN 9.10.2.21, with <secret> of <email> in <home>/x"
    )
    monkeypatch.setenv("USER", "gatekeeper")
    code, text = decide_at_gate(repo, bundle)
    assert code is ExitCode.ADMIT, text


def test_a_path_of_the_subject_that_is_scrubbed_is_scrubbed_alike_at_the_gate(
    repo: Path, tmp_path: Path
) -> None:
    (repo / "specialized_path/ghp_a1B2c3D4a1B2c3D4.py").write_text("x = 1\n")
    commit(repo, "a name like a token")
    bundle = read_bundle(make_bundle(repo, tmp_path / "bundle"))
    terms = read_question(ChangeOptions(repo=repo, base="main", head="change"))
    files = terms.repository.export(terms.change.head, ["specialized_path/**"], tmp_path / "head")
    record = SubjectEvidence(
        tier=Tier.CPU, recorded_at=bundle.records[0].recorded_at, commit=terms.change.head, files=files
    )
    scrubbed = terms.published.record(record)
    assert scrubbed.files != files
    with_subject = (*bundle.evidence, EvidenceFile(path="evidence/x.json", record=scrubbed, head=""))
    assert find_misfits(replace(bundle, evidence=with_subject), terms, datetime.now(UTC)) == []


def test_a_bundle_with_a_manifest_of_its_own_is_refused(repo: Path, tmp_path: Path) -> None:
    manifest = tmp_path / "other.toml"
    manifest.write_text((repo / "fasttrack.toml").read_text().replace("Kimi K3 spec", "Kimi K3 other spec"))
    code, text = decide_at_gate(repo, make_bundle(repo, tmp_path / "b", manifest=manifest))
    assert code is ExitCode.HARNESS and "not the one of the head" in text


def test_a_policy_that_cannot_be_used_is_called_by_its_own_name(repo: Path, tmp_path: Path) -> None:
    (tmp_path / "empty.toml").write_text("")
    with pytest.raises(ConfigurationError, match=r"empty\.toml"):
        decide_at_gate(repo, tmp_path, policy=tmp_path / "empty.toml")


def test_a_bundle_of_an_earlier_head_is_stale(repo: Path, tmp_path: Path) -> None:
    bundle = make_bundle(repo, tmp_path / "b")
    (repo / "specialized_path/plugin.py").write_text('"""Moved on."""\n')
    commit(repo, "moved on")
    code, text = decide_at_gate(repo, bundle)
    assert code is ExitCode.HARNESS and "stale" in text


def test_a_bundle_that_is_stale_and_not_intact_is_called_both(repo: Path, tmp_path: Path) -> None:
    bundle = make_bundle(repo, tmp_path / "bundle")
    reseal(bundle, judgement=lambda judgement: judgement.model_copy(update={"reason": "Because."}))
    git(repo, "commit", "--quiet", "--allow-empty", "--message", "the next head")
    _, text = decide_at_gate(repo, bundle)
    assert "[bundle-stale]" in text and "[judgement-differs]" in text


@pytest.mark.parametrize(
    ("is_bad", "expected"),
    [pytest.param(False, ExitCode.ADMIT, id="good"), pytest.param(True, ExitCode.REJECT, id="bad")],
)
def test_what_other_sources_of_the_judge_said_neither_counts_nor_voids_evidence(
    repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_bad: bool, expected: ExitCode
) -> None:
    if is_bad:
        spoil(repo)
    bundle = make_bundle(repo, tmp_path / "b")
    theirs = {"verdict": Verdict.UNDECIDED if not is_bad else Verdict.ADMIT, "reason": "As they say."}
    reseal(bundle, judgement=lambda judgement: judgement.model_copy(update=theirs))
    monkeypatch.setattr("harness.app.gate.digest_of_judge", lambda: "c" * 64)
    code, text = decide_at_gate(repo, bundle)
    assert code is expected and "other sources of fasttrack judged it" in text


def test_a_gate_without_an_engine_says_whose_word_it_takes(
    repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle = make_bundle(repo, tmp_path / "b")
    told = "no vLLM is here, so the bundles' word counts"
    assert told not in decide_at_gate(repo, bundle)[1]
    none = EngineSource(names=(), files={})
    monkeypatch.setattr("harness.app.own_reading.engine_source", lambda _: none)
    monkeypatch.setattr("harness.app.gate.read_commits", read_commits)
    assert told in decide_at_gate(repo, bundle)[1]


def test_evidence_that_does_not_hold_is_refused_whoever_judged_it(
    repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle = make_bundle(repo, tmp_path / "b")
    reseal(bundle, judgement=lambda judgement: judgement.model_copy(update={"reason": "Because."}))
    next((bundle / "evidence").glob("*.json")).write_text("{}")
    monkeypatch.setattr("harness.app.gate.digest_of_judge", lambda: "c" * 64)
    assert decide_at_gate(repo, bundle)[0] is ExitCode.HARNESS


def test_a_forged_list_of_changed_files_is_found_though_its_digests_hold(repo: Path, tmp_path: Path) -> None:
    spoil(repo)
    honest = read_bundle(make_bundle(repo, tmp_path / "b"))
    store = EvidenceStore(tmp_path / "forged")
    records = []
    for record in honest.records:
        if isinstance(record, ChangedFilesEvidence):
            files = tuple(f for f in record.files if f.path.startswith("specialized_path/"))
            record = record.model_copy(update={"files": files})
        store.add(record)
        records.append(record)
    judgement = decide(honest.manifest_text, honest.policy_text, honest.change, records)
    assert judgement.findings[0].outcome is Outcome.PASS
    seal(
        store.folder,
        manifest_text=honest.manifest_text,
        policy_text=honest.policy_text,
        judgement=judgement,
        render_report=render_report,
    )
    code, text = decide_at_gate(repo, store.folder)
    assert code is ExitCode.HARNESS and "not the diff" in text


def test_the_policy_is_the_one_of_the_merge_base_and_not_the_changes_own(repo: Path, tmp_path: Path) -> None:
    spoil(repo)
    weak = STATIC_POLICY.replace('["ISO001"]', "[]")
    (repo / ".github/fasttrack-policy.toml").write_text(weak)
    commit(repo, "a weaker policy")
    assert decide_at_gate(repo, make_bundle(repo, tmp_path / "b"))[0] is ExitCode.REJECT


def test_what_the_policy_protects_no_manifest_can_own(repo: Path, tmp_path: Path) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text(STATIC_POLICY.replace("[required]", 'protected = ["judge/**"]\n[required]'))
    manifest = repo / "fasttrack.toml"
    manifest.write_text(manifest.read_text().replace('docs = ["docs/**"', 'docs = ["judge/**", "docs/**"'))
    (repo / "judge").mkdir()
    (repo / "judge/runner.py").write_text("x = 1\n")
    commit(repo, "calls the judge a document")
    bundle = make_bundle(repo, tmp_path / "b", policy=policy)
    assert decide_at_gate(repo, bundle, policy=policy)[0] is ExitCode.REJECT


def test_what_a_bundle_says_of_imports_is_read_again_at_the_gate(repo: Path, tmp_path: Path) -> None:
    (repo / "reports").mkdir()
    (repo / "reports/uses.py").write_text("from specialized_path.runtime import plan\n")
    commit(repo, "another part imports the path")
    policy = tmp_path / "policy.toml"
    policy.write_text(STATIC_POLICY.replace('["ISO001"]', '["ISO004"]'))
    honest = read_bundle(make_bundle(repo, tmp_path / "b", policy=policy))
    store = EvidenceStore(tmp_path / "forged")
    records = []
    for record in honest.records:
        if isinstance(record, ImportsEvidence):
            record = record.model_copy(update={"inward": (), "outward": ()})
        store.add(record)
        records.append(record)
    judgement = decide(honest.manifest_text, honest.policy_text, honest.change, records)
    assert judgement.exit_code is ExitCode.ADMIT
    seal(
        store.folder,
        manifest_text=honest.manifest_text,
        policy_text=honest.policy_text,
        judgement=judgement,
        render_report=render_report,
    )
    assert decide_at_gate(repo, store.folder, policy=policy)[0] is ExitCode.REJECT
