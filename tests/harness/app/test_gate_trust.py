"""Whose word the gate takes: keys that the policy names, replicates that agree, waivers within their bounds."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from bundles.archive import pack
from bundles.attestation import sign_bundle
from bundles.contents import Bundle
from bundles.keyless import keyless_path
from bundles.keys import PrivateKey, make_private_key
from bundles.reader import read_bundle
from bundles.waiver import Waiver, sign_waiver
from bundles.writer import EvidenceStore, seal
from harness.app.gate import gate
from harness.app.judging import decide, render_report
from harness.app.validate import validate
from harness.facts.git import Repository
from harness.model.change import Change
from harness.model.errors import ConfigurationError
from harness.model.evidence import (
    AnyEvidence,
    DefaultOffEvidence,
    GapEvidence,
    KernelCompilationEvidence,
    SubjectEvidence,
)
from harness.model.words import ExitCode, Tier, TrustLevel
from harness.options import ChangeOptions, CommandResult, GateOptions, OutputOptions, ValidateOptions
from tests.bundles.sigstore_instance import IDENTITY, ISSUER, Instance
from tests.harness.app.conftest import A_PART, copy_subject, git
from tests.reports.numbers import PageWalk
from tests.reports.pages import parse_page

TODAY = datetime.now(UTC).date()
KEY = make_private_key()
OTHER = make_private_key()


def policy_text(*, trust: str = "", keys: tuple[PrivateKey, ...] = (KEY,), required: str = "") -> str:
    tables = "".join(
        f'[[trust.keys]]\nname = "runner {i}"\npublic_key = "{key.public.line}"\nlevel = "maintainer"\n'
        f'may_waive = ["ISO001"]\n'
        for i, key in enumerate(keys)
    )
    return (
        f'schema_version = 1\nversion = "t"\n[required]\nstatic = ["ISO001"]\n{required}\n'
        f"[trust]\n{trust}\n{tables}"
    )


@pytest.fixture(scope="module")
def repo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A main branch, and a branch `change` that edits one owned file."""
    repo = copy_subject(tmp_path_factory.mktemp("gate") / "repo", A_PART)
    git(repo, "branch", "--force", "main")
    git(repo, "checkout", "--quiet", "-B", "change")
    plugin = repo / "specialized_path/plugin.py"
    plugin.write_text(plugin.read_text() + "\n# edited\n")
    git(repo, "commit", "--quiet", "--all", "--message", "an honest edit")
    return repo


@pytest.fixture(scope="module")
def made(repo: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A static bundle of the change."""
    folder = tmp_path_factory.mktemp("made")
    (folder / "policy.toml").write_text(policy_text())
    change = ChangeOptions(repo=repo, base="main", tier=Tier.STATIC, policy=folder / "policy.toml")
    validate(ValidateOptions(change=change, out=folder / "b", output=OutputOptions(quiet=True)))
    return folder / "b"


@pytest.fixture
def bundle(made: Path, tmp_path: Path) -> Path:
    return rebuilt(made, tmp_path / "b")


def rebuilt(original: Path, place: Path, **changes: object) -> Path:
    """The bundle's evidence sealed anew; records get `changes`."""
    bundle = read_bundle(original)
    return sealed(bundle, place, [r.model_copy(update=changes) if changes else r for r in bundle.records])


def sealed(bundle: Bundle, place: Path, records: Iterable[AnyEvidence]) -> Path:
    """Other evidence under the terms of a bundle."""
    store = EvidenceStore(place)
    for record in records:
        store.add(record)
    judgement = decide(bundle.manifest_text, bundle.policy_text, bundle.change, store.records)
    seal(
        place,
        manifest_text=bundle.manifest_text,
        policy_text=bundle.policy_text,
        judgement=judgement,
        render_report=render_report,
    )
    return place


def with_subject(original: Path, place: Path, repo: Path, **forged: str) -> Path:
    """The bundle with the record of what its arms were given to import, some files of it forged."""
    bundle = read_bundle(original)
    globs = [f"{root}/**" for root in bundle.manifest.paths.import_roots]
    files = Repository(repo).export(bundle.change.head, globs, place / "head")
    subject = SubjectEvidence(
        tier=Tier.CPU,
        recorded_at=bundle.records[0].recorded_at,
        commit=bundle.change.head,
        files=files | forged,
    )
    return sealed(bundle, place / "with-subject", (*bundle.records, subject))


def at_gate(
    repo: Path,
    *bundles: Path,
    policy: str,
    waivers: tuple[Path, ...] = (),
    form: str = "text",
    out: Path | None = None,
    sigstore_root: Path | None = None,
) -> CommandResult:
    file = bundles[0].parent / "gate-policy.toml"
    file.write_text(policy)
    return gate(
        GateOptions(
            bundles=bundles,
            repo=repo,
            base="main",
            head="change",
            policy=file,
            output=OutputOptions(format=form),  # type: ignore[arg-type]
            waivers=waivers,
            out=out,
            sigstore_root=sigstore_root,
        )
    )


MAINTAINED = 'required = { static = "maintainer" }'
REPLICATED = 'required = { static = "replicated" }'


def test_unsigned_evidence_is_enough_where_the_policy_asks_for_no_more(repo: Path, bundle: Path) -> None:
    assert at_gate(repo, bundle, policy=policy_text()).exit_code is ExitCode.ADMIT


def test_unsigned_evidence_is_too_little_where_a_maintainers_is_asked_for(repo: Path, bundle: Path) -> None:
    result = at_gate(repo, bundle, policy=policy_text(trust=MAINTAINED))
    assert result.exit_code is ExitCode.UNDECIDED and "asks for maintainer evidence" in result.text


def test_the_signature_of_a_key_of_the_policy_is_enough(repo: Path, bundle: Path) -> None:
    sign_bundle(bundle, KEY, TrustLevel.CONTRIBUTOR)
    assert at_gate(repo, bundle, policy=policy_text(trust=MAINTAINED)).exit_code is ExitCode.ADMIT


def test_a_signer_who_calls_himself_maintainer_is_none(repo: Path, bundle: Path) -> None:
    sign_bundle(bundle, OTHER, TrustLevel.MAINTAINER)
    assert at_gate(repo, bundle, policy=policy_text(trust=MAINTAINED)).exit_code is ExitCode.UNDECIDED


def test_no_single_signature_makes_evidence_replicated(repo: Path, bundle: Path) -> None:
    sign_bundle(bundle, KEY, TrustLevel.MAINTAINER)
    assert at_gate(repo, bundle, policy=policy_text(trust=REPLICATED)).exit_code is ExitCode.UNDECIDED


def test_an_archive_is_taken_like_its_folder(repo: Path, bundle: Path) -> None:
    sign_bundle(bundle, KEY, TrustLevel.MAINTAINER)
    pack(bundle, bundle.parent / "b.tar.gz")
    policy = policy_text(trust=MAINTAINED)
    assert at_gate(repo, bundle.parent / "b.tar.gz", policy=policy).exit_code is ExitCode.ADMIT


def test_a_damaged_archive_leaves_nothing_to_decide_on(repo: Path, bundle: Path) -> None:
    (bundle.parent / "b.tar.gz").write_bytes(b"\x1f\x8b not an archive")
    result = at_gate(repo, bundle.parent / "b.tar.gz", policy=policy_text())
    assert result.exit_code is ExitCode.HARNESS and "bundle-bad-archive" in result.text


@pytest.mark.parametrize(
    ("time", "code"),
    [
        (datetime.now(UTC) - timedelta(days=5), ExitCode.HARNESS),
        (datetime.now(UTC) - timedelta(days=1), ExitCode.ADMIT),
        (datetime.now(UTC) + timedelta(days=30), ExitCode.HARNESS),
    ],
)
def test_evidence_from_long_ago_or_from_the_future_is_refused(
    repo: Path, bundle: Path, tmp_path: Path, time: datetime, code: ExitCode
) -> None:
    dated = rebuilt(bundle, tmp_path / "dated", recorded_at=time.strftime("%Y-%m-%dT%H:%M:%SZ"))
    assert at_gate(repo, dated, policy=policy_text(trust="max_age_days = 3")).exit_code is code


def test_arms_that_imported_what_the_head_holds_are_evidence_for_it(
    repo: Path, bundle: Path, tmp_path: Path
) -> None:
    assert (
        at_gate(repo, with_subject(bundle, tmp_path, repo), policy=policy_text()).exit_code is ExitCode.ADMIT
    )


def test_arms_that_imported_other_sources_than_the_heads_are_evidence_for_nothing(
    repo: Path, bundle: Path, tmp_path: Path
) -> None:
    dirty = with_subject(bundle, tmp_path, repo, **{"specialized_path/plugin.py": "0" * 64})
    result = at_gate(repo, dirty, policy=policy_text())
    assert result.exit_code is ExitCode.HARNESS
    assert "other sources of the subject than the head's: specialized_path/plugin.py" in result.text


PLUGIN = "specialized_path/plugin.py"


def compiled(repo: Path, head: str, digest: str) -> AnyEvidence:
    return KernelCompilationEvidence(
        tier=Tier.STATIC,
        recorded_at="2026-11-02T10:00:00Z",
        entry="e",
        arch="sm_90a",
        variants=(),
        versions={},
        subject_files={
            PLUGIN: digest or hashlib.sha256(Repository(repo).read(head, PLUGIN) or b"").hexdigest()
        },
    )


def served_with_the_switch_unset(repo: Path, change: Change, side: str, digest: str) -> AnyEvidence:
    commit = change.merge_base if side == "base" else change.head
    files = Repository(repo).contents(commit, lambda p: p.endswith(".py") and p.startswith(ROOTS))
    digests = {path: hashlib.sha256(content).hexdigest() for path, content in files.items()}
    return DefaultOffEvidence(
        tier=Tier.CPU,
        recorded_at="2026-11-02T10:00:00Z",
        side=side,  # type: ignore[arg-type]
        commit=commit,
        has_model=True,
        imported=(),
        files=digests | ({PLUGIN: digest} if digest else {}),
        snapshots=(),
    )


ROOTS = ("specialized_path/", "nano_training/")


@pytest.mark.parametrize("digest", ["", "0" * 64], ids=["of the commit", "of another"])
@pytest.mark.parametrize("kind", ["compiled", "base", "head"])
def test_what_was_compiled_or_served_is_held_to_the_sources_of_its_commit(
    repo: Path, bundle: Path, tmp_path: Path, kind: str, digest: str
) -> None:
    honest = read_bundle(bundle)
    record = (
        compiled(repo, honest.change.head, digest)
        if kind == "compiled"
        else served_with_the_switch_unset(repo, honest.change, kind, digest)
    )
    result = at_gate(repo, sealed(honest, tmp_path / "more", (*honest.records, record)), policy=policy_text())
    assert ("bundle-other-subject" in result.text and PLUGIN in result.text) is bool(digest)
    assert (result.exit_code is ExitCode.HARNESS) is bool(digest)


@pytest.mark.parametrize("time", ["20200101T000000Z", "2999-01-01T00:00:00Z"])
def test_one_record_of_another_time_is_enough_to_refuse_all(
    repo: Path, bundle: Path, tmp_path: Path, time: str
) -> None:
    records = list(read_bundle(bundle).records)
    # The spelling without hyphens comes after the others when they are sorted as text.
    records[-1] = records[-1].model_copy(update={"recorded_at": time})
    dated = sealed(read_bundle(bundle), tmp_path / "dated", records)
    assert at_gate(repo, dated, policy=policy_text(trust="max_age_days = 3")).exit_code is ExitCode.HARNESS


@pytest.mark.parametrize("time", ["yesterday", "2026-11-30T12:00:00", "2999-01-01T00:00:00Z"])
def test_a_time_that_cannot_be_is_refused_whatever_the_age_that_counts(
    repo: Path, bundle: Path, tmp_path: Path, time: str
) -> None:
    dated = rebuilt(bundle, tmp_path / "dated", recorded_at=time)
    for trust in ("", "max_age_days = 3"):
        result = at_gate(repo, dated, policy=policy_text(trust=trust))
        assert result.exit_code is ExitCode.HARNESS and "bundle-expired" in result.text


def test_without_an_age_that_counts_old_evidence_does(repo: Path, bundle: Path, tmp_path: Path) -> None:
    dated = rebuilt(bundle, tmp_path / "dated", recorded_at="2001-01-01T00:00:00Z")
    assert at_gate(repo, dated, policy=policy_text()).exit_code is ExitCode.ADMIT


def test_two_bundles_of_one_name_are_told_apart(repo: Path, bundle: Path, tmp_path: Path) -> None:
    other = rebuilt(bundle, tmp_path / "other" / bundle.name)
    text = at_gate(repo, bundle, other, policy=policy_text()).text
    assert f"\n{bundle.name}: tiers static" in text and f"\n{bundle.name}#2: tiers static" in text
    (other / "report.html").write_text("x")
    assert f"{bundle.name}#2: report.html" in at_gate(repo, bundle, other, policy=policy_text()).text


def test_the_gate_writes_nothing_into_a_bundle(repo: Path, bundle: Path) -> None:
    with pytest.raises(ConfigurationError, match="lies in a bundle"):
        at_gate(repo, bundle, policy=policy_text(), out=bundle / "gate")
    assert not (bundle / "gate").exists()


GPU_REQUIRED = 'gpu = ["PERF002"]'


def test_a_check_that_did_not_run_keeps_the_gate_shut_until_it_is_waived(
    repo: Path, bundle: Path, tmp_path: Path
) -> None:
    policy = (
        policy_text(required=GPU_REQUIRED)
        .replace('["ISO001"]\n', '["PERF002"]\n')
        .replace('static = ["PERF002"]', 'static = ["ISO001"]')
    )
    assert at_gate(repo, bundle, policy=policy).exit_code is ExitCode.UNDECIDED
    waiver = write_waiver(tmp_path, repo, check="PERF002")
    result = at_gate(repo, bundle, policy=policy, waivers=(waiver,))
    assert result.exit_code is ExitCode.ADMIT
    assert "WAIVED: PERF002, by runner 0" in result.text and "no GPU this week" in result.text


def write_waiver(
    place: Path,
    repo: Path,
    *,
    check: str = "ISO001",
    days: int = 3,
    key: PrivateKey = KEY,
    head: str = "",
    reason: str = "no GPU this week",
) -> Path:
    waiver = Waiver(
        check=check,
        head=head or Repository(repo).change("main", "change", ())[0].head,
        reason=reason,
        until=TODAY + timedelta(days=days),
    )
    file = place / "w.jsonl"
    file.write_bytes(sign_waiver(waiver, key))
    return file


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"key": OTHER}, "does not know the key"),
        ({"check": "ISO004"}, "may not waive"),
        ({"head": "0" * 40}, "given for 000000000000"),
        ({"days": -1}, "it ended on"),
        ({"days": 30}, "more than 14 days ahead"),
        ({}, "not required, or holds without it"),
    ],
)
def test_a_waiver_outside_its_bounds_is_refused_and_shown(
    repo: Path, bundle: Path, tmp_path: Path, options: dict[str, object], reason: str
) -> None:
    waiver = write_waiver(tmp_path, repo, **options)  # type: ignore[arg-type]
    result = at_gate(repo, bundle, policy=policy_text(), waivers=(waiver,))
    assert "waiver refused" in result.text and reason in result.text


def test_where_every_required_check_is_waived_nothing_is_shown_and_the_reason_says_so(
    repo: Path, bundle: Path, tmp_path: Path
) -> None:
    policy = policy_text(required=GPU_REQUIRED).replace('static = ["ISO001"]\n', "")
    policy = policy.replace('may_waive = ["ISO001"]', 'may_waive = ["PERF002"]')
    result = at_gate(repo, bundle, policy=policy, waivers=(write_waiver(tmp_path, repo, check="PERF002"),))
    assert result.exit_code is ExitCode.UNDECIDED and "requires is waived, so nothing is shown" in result.text


def test_an_altered_waiver_leaves_nothing_to_decide_on(repo: Path, bundle: Path, tmp_path: Path) -> None:
    waiver = write_waiver(tmp_path, repo)
    waiver.write_bytes(waiver.read_bytes().replace(b'"sig":"', b'"sig":"A', 1))
    result = at_gate(repo, bundle, policy=policy_text(), waivers=(waiver,))
    assert result.exit_code is ExitCode.HARNESS and "w.jsonl" in result.text


def test_a_signed_bundle_is_no_waiver(repo: Path, bundle: Path, tmp_path: Path) -> None:
    path = sign_bundle(bundle, KEY, TrustLevel.MAINTAINER)
    (tmp_path / "w.jsonl").write_bytes((bundle / path).read_bytes().splitlines()[0])
    result = at_gate(repo, bundle, policy=policy_text(), waivers=(tmp_path / "w.jsonl",))
    assert result.exit_code is ExitCode.HARNESS and "no waiver" in result.text


def test_the_gates_json_holds_the_waivers(repo: Path, bundle: Path, tmp_path: Path) -> None:
    waiver = write_waiver(tmp_path, repo)
    result = at_gate(repo, bundle, policy=policy_text(), waivers=(waiver,), form="json")
    assert json.loads(result.text)["waivers"][0]["check"] == "ISO001"


def with_gpu_tier(original: Path, place: Path, reason: str) -> Path:
    """The bundle as a GPU machine would hand it over: no note that the tier is missing, a gap within it instead."""
    bundle = read_bundle(original)
    store = EvidenceStore(place)
    for record in bundle.records:
        if not isinstance(record, GapEvidence):
            store.add(record)
    store.add(
        GapEvidence(
            tier=Tier.GPU,
            recorded_at=bundle.records[0].recorded_at,
            what="suite greedy",
            broke=False,
            reason=reason,
        )
    )
    judgement = decide(bundle.manifest_text, bundle.policy_text, bundle.change, store.records)
    seal(
        place,
        manifest_text=bundle.manifest_text,
        policy_text=bundle.policy_text,
        judgement=judgement,
        render_report=render_report,
    )
    return place


def test_two_bundles_of_a_tier_in_which_nothing_was_decided_are_no_replicates(
    repo: Path, bundle: Path, tmp_path: Path
) -> None:
    parts = [with_gpu_tier(bundle, tmp_path / f"gpu{i}", f"run {i}") for i in range(2)]
    for part, key in zip(parts, (KEY, OTHER), strict=True):
        sign_bundle(part, key, TrustLevel.MAINTAINER)
    policy = policy_text(trust='required = { gpu = "replicated" }', keys=(KEY, OTHER))
    text = at_gate(repo, bundle, *parts, policy=policy).text
    assert "asks for replicated evidence" in text and "no required check decided with any of them" in text


def test_the_gates_json_says_whose_word_each_bundle_is(repo: Path, bundle: Path) -> None:
    sign_bundle(bundle, KEY, TrustLevel.CONTRIBUTOR)
    sign_bundle(bundle, OTHER, TrustLevel.MAINTAINER)
    document = json.loads(at_gate(repo, bundle, policy=policy_text(trust=MAINTAINED), form="json").text)
    signers = {s["fingerprint"]: (s["name"], s["level"]) for s in document["bundles"][0]["signers"]}
    assert signers == {
        KEY.public.fingerprint: ("runner 0", "maintainer"),
        OTHER.public.fingerprint: (None, None),
    }
    (tier,) = document["trust"]
    assert (tier["required"], tier["reached"], tier["is_enough"]) == ("maintainer", "maintainer", True)


def test_the_gates_json_names_the_bundle_that_was_refused(repo: Path, bundle: Path, tmp_path: Path) -> None:
    (tmp_path / "broken.tar.gz").write_bytes(b"\x1f\x8b")
    result = at_gate(repo, bundle, tmp_path / "broken.tar.gz", policy=policy_text(), form="json")
    document = json.loads(result.text)
    assert ([b["name"] for b in document["bundles"]], document["refused"]) == (["b"], ["broken.tar.gz"])


def test_the_gates_report_shows_waiver_and_signer_on_its_first_screen(
    repo: Path, bundle: Path, tmp_path: Path
) -> None:
    sign_bundle(bundle, KEY, TrustLevel.MAINTAINER)
    policy = (
        policy_text(required=GPU_REQUIRED)
        .replace('["ISO001"]\n\n', '["ISO001"]\n')
        .replace('may_waive = ["ISO001"]', 'may_waive = ["PERF002"]')
    )
    waiver = write_waiver(tmp_path, repo, check="PERF002")
    out = tmp_path / "gate"
    assert at_gate(repo, bundle, policy=policy, waivers=(waiver,), out=out).exit_code is ExitCode.ADMIT
    page = parse_page((out / "report.html").read_text("utf-8"))
    assert list(PageWalk(page, out).problems()) == []
    (header,) = [e for e in page.walk() if e.tag == "header"]
    said = " ".join(header.text.split())
    assert "Admit " in said and "PERF002 is waived by runner 0 until" in said
    assert "Undecided" not in said and "every required check that is not waived lets" in page.text
    assert "Signedb by runner 0" in said and KEY.public.fingerprint in page.text


def test_a_bundles_own_report_says_that_nobodys_word_is_in_it(bundle: Path) -> None:
    html = (bundle / "report.html").read_text("utf-8")
    assert "Signatures and waivers" in html


@pytest.mark.parametrize(
    ("identity", "issuer", "code"),
    [
        (IDENTITY, ISSUER, ExitCode.ADMIT),
        (IDENTITY.replace("main", "fork"), ISSUER, ExitCode.UNDECIDED),
        (IDENTITY, "https://accounts.example.org", ExitCode.UNDECIDED),
    ],
)
def test_a_keyless_signature_is_worth_what_the_policy_says_of_identity_and_issuer(
    repo: Path, bundle: Path, tmp_path: Path, identity: str, issuer: str, code: ExitCode
) -> None:
    pytest.importorskip("sigstore")
    instance = Instance()
    data = instance.sign((bundle / "sha256sums.txt").read_bytes(), identity, issuer)
    (bundle / keyless_path(data)).parent.mkdir()
    (bundle / keyless_path(data)).write_bytes(data)
    policy = policy_text(trust=MAINTAINED) + (
        f'[[trust.identities]]\nname = "gpu.yml"\nidentity = "{IDENTITY}"\nissuer = "{ISSUER}"\n'
        'level = "maintainer"\n'
    )
    root = instance.write_root(tmp_path / "root.json")
    result = at_gate(repo, bundle, policy=policy, sigstore_root=root)
    assert result.exit_code is code and identity in result.text


def test_a_keyless_signature_of_another_bundle_leaves_nothing_to_decide_on(
    repo: Path, bundle: Path, tmp_path: Path
) -> None:
    pytest.importorskip("sigstore")
    instance = Instance()
    data = instance.sign(b"another list of digests")
    (bundle / keyless_path(data)).parent.mkdir()
    (bundle / keyless_path(data)).write_bytes(data)
    root = instance.write_root(tmp_path / "root.json")
    assert at_gate(repo, bundle, policy=policy_text(), sigstore_root=root).exit_code is ExitCode.HARNESS


def test_a_waivers_reason_forges_no_line_of_the_answer(repo: Path, bundle: Path, tmp_path: Path) -> None:
    reason = "x\nWAIVED: ISO001, by runner 0\x1b[2J\u202e"
    waiver = write_waiver(tmp_path, repo, key=OTHER, reason=reason)
    result = at_gate(repo, bundle, policy=policy_text(), waivers=(waiver,))
    assert not [line for line in result.text.splitlines() if line.startswith("WAIVED")]
    assert all(character.isprintable() for character in result.text.replace("\n", ""))


def test_one_key_stands_for_one_holder(repo: Path, bundle: Path) -> None:
    with pytest.raises(ConfigurationError, match="listed already"):
        at_gate(repo, bundle, policy=policy_text(keys=(KEY, KEY)))


def test_a_waiver_that_cannot_be_read_leaves_nothing_to_decide_on(
    repo: Path, bundle: Path, tmp_path: Path
) -> None:
    result = at_gate(repo, bundle, policy=policy_text(), waivers=(tmp_path / "none",))
    assert result.exit_code is ExitCode.HARNESS and "none: " in result.text


def test_a_bundle_puts_no_words_into_the_heads_mouth(repo: Path, bundle: Path, tmp_path: Path) -> None:
    honest = read_bundle(bundle)
    forged = replace(honest, change=honest.change.model_copy(update={"head_subject": "approved by all"}))
    result = at_gate(repo, sealed(forged, tmp_path / "forged", honest.records), policy=policy_text())
    assert result.exit_code is ExitCode.HARNESS and "bundle-other-head" in result.text
