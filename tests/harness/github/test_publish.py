"""What is published is what the gate says of the head as it is now, and nothing that a change writes can alter that."""

from __future__ import annotations

import base64
import gzip
import json
import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from bundles.keys import make_private_key
from bundles.reader import read_bundle
from bundles.waiver import Waiver, sign_waiver
from harness.app import gate_text, publishing
from harness.app.publishing import publish
from harness.github import calls
from harness.github.artifact import MEMBER, artifact_name
from harness.github.options import PublishOptions
from harness.github.transport import GitHubError
from harness.model.errors import ConfigurationError
from harness.model.finding import Location
from harness.model.words import ExitCode, Outcome, Verdict
from harness.options import CommandResult
from reports.open_findings import OpenFinding
from tests.harness.github.events import FORK, pull_request_event, workflow_run_event, written
from tests.harness.github.server import BOT, REPOSITORY, TOKEN, FakeClock, FakeGitHub, Fault, Request
from tests.harness.github.subject import POLICY, WEAK_POLICY, Subject, make_subject
from tests.harness.github.test_artifact import packed

HOSTILE = "@octocat #1 <!-- fasttrack:gate --> <img src=x> ![i](http://e.vil) /lgtm **bold** `code`"


@pytest.fixture(scope="module")
def subject(tmp_path_factory: pytest.TempPathFactory) -> Subject:
    return make_subject(tmp_path_factory.mktemp("subject") / "repo")


@pytest.fixture(scope="module")
def honest(subject: Subject, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """A head of which everything is in order, and its bundle."""
    head = subject.change()
    return head, subject.bundle(head, tmp_path_factory.mktemp("honest") / "cpu")


class Bench:
    """One pull request at one head, and a publisher of it."""

    def __init__(self, subject: Subject, server: FakeGitHub, clock: FakeClock, tmp_path: Path) -> None:
        self.subject, self.server, self.clock, self.tmp_path = subject, server, clock, tmp_path

    def publish(
        self, head: str, *bundles: Path, event: Any = None, name: str = "workflow_run", **options: Any
    ) -> CommandResult:
        if not self.server.pulls:
            self.server.add_pull(12, head, self.subject.base)
        asked = PublishOptions(
            event=written(self.tmp_path, event or workflow_run_event(head)),
            event_name=name,
            repository=REPOSITORY,
            token=TOKEN,
            repo=self.subject.repo,
            bundles=bundles,
            api_url=self.server.url,
            summary=self.tmp_path / "summary.md",
        )
        return publish(replace(asked, **options), clock=self.clock)

    @property
    def check(self) -> dict[str, Any]:
        """The newest check run."""
        return self.server.checks[max(self.server.checks)]

    @property
    def said(self) -> str:
        output = self.check["output"]
        return f"{output['title']}\n{output['summary']}"

    @property
    def comments(self) -> list[str]:
        return [c["body"] for c in self.server.comments.values() if c["user"]["login"] == BOT]


@pytest.fixture
def bench(subject: Subject, server: FakeGitHub, clock: FakeClock, tmp_path: Path) -> Iterator[Bench]:
    yield Bench(subject, server, clock, tmp_path)
    assert all(check["conclusion"] for check in server.checks.values()), "a check run was left open"


def test_an_honest_change_is_admitted_everywhere(bench: Bench, honest: tuple[str, Path]) -> None:
    head, bundle = honest
    assert bench.publish(head, bundle).exit_code is ExitCode.ADMIT
    assert (bench.check["conclusion"], bench.check["head_sha"]) == ("success", head)
    assert len(bench.comments) == 1 and head in bench.comments[0] and "Admit" in bench.comments[0]
    assert (
        bench.server.sarifs[0]["ref"] == "refs/pull/12/head" and bench.server.sarifs[0]["commit_sha"] == head
    )
    assert "Admit" in (bench.tmp_path / "summary.md").read_text()


def test_the_bundle_that_the_run_uploaded_is_found(bench: Bench, honest: tuple[str, Path]) -> None:
    head, bundle = honest
    bench.server.add_artifact(artifact_name("cpu", head), packed((MEMBER, bundle.read_bytes())), head)
    assert bench.publish(head).exit_code is ExitCode.ADMIT


def test_bundles_of_several_machines_are_gated_together(bench: Bench, honest: tuple[str, Path]) -> None:
    head, bundle = honest
    other = bench.subject.bundle(head, bench.tmp_path / "gpu")
    assert bench.publish(head, bundle, other).exit_code is ExitCode.ADMIT
    assert "cpu.tar.gz, gpu.tar.gz: admit" in bench.said.replace("\\", "") and bench.server.sarifs


def test_a_change_of_a_fork_is_said_to_have_made_its_own_evidence(
    bench: Bench, honest: tuple[str, Path]
) -> None:
    head, bundle = honest
    bench.server.add_pull(12, head, bench.subject.base, head_repo=FORK)
    bench.publish(head, bundle, event=workflow_run_event(head, head_repo=FORK))
    assert bench.check["conclusion"] == "success" and "lies in a fork" in bench.said


def test_a_check_run_in_progress_is_there_before_anything_is_read(
    bench: Bench, honest: tuple[str, Path]
) -> None:
    bench.publish(*honest)
    first = bench.server.requests[0]
    assert (first.method, first.body["status"]) == ("POST", "in_progress") and "conclusion" not in first.body


def test_a_change_that_edits_workflow_action_or_policy_is_rejected_for_each(bench: Bench) -> None:
    files = {
        ".github/workflows/pr-gate.yml": "on: push\n",
        ".github/actions/publish/action.yml": "a: b\n",
        ".github/fasttrack-policy.toml": WEAK_POLICY,
    }
    head = bench.subject.change(**files)
    assert bench.publish(head, bench.subject.bundle(head, bench.tmp_path / "b")).exit_code is ExitCode.REJECT
    assert bench.check["conclusion"] == "failure"
    assert {annotation["path"] for annotation in bench.server.annotations[1]} == set(files)


def test_a_weak_policy_of_an_old_base_does_not_count(bench: Bench) -> None:
    head = bench.subject.change(parent="main~1", **{"engine/core.py": "x = 1\n"})
    bundle = bench.subject.bundle(head, bench.tmp_path / "b")
    assert read_bundle(bench.tmp_path / "b").judgement.verdict is Verdict.ADMIT
    assert bench.publish(head, bundle).exit_code is ExitCode.REJECT


def test_no_bundle_is_a_failure_that_says_how_the_run_ended(bench: Bench, honest: tuple[str, Path]) -> None:
    head = honest[0]
    result = bench.publish(head, event=workflow_run_event(head, conclusion="cancelled"))
    assert result.exit_code is ExitCode.HARNESS and bench.check["conclusion"] == "failure"
    assert (
        "there is no evidence" in bench.said
        and "cancelled" in bench.said
        and "no evidence" in bench.comments[0]
    )


def test_a_bundle_of_another_head_is_a_failure_that_says_so(bench: Bench, honest: tuple[str, Path]) -> None:
    head = bench.subject.change(**{"fast/path.py": '"""Moved on."""\n'})
    assert bench.publish(head, honest[1]).exit_code is ExitCode.HARNESS
    assert bench.check["conclusion"] == "failure" and "it is stale" in bench.said and not bench.server.sarifs


def test_a_forged_bundle_is_a_failure_that_says_so(bench: Bench, honest: tuple[str, Path]) -> None:
    forged = bench.tmp_path / "cpu.tar.gz"
    forged.write_bytes(b"no archive")
    assert bench.publish(honest[0], forged).exit_code is ExitCode.HARNESS
    assert bench.check["conclusion"] == "failure" and "damaged" in bench.said


def test_an_uploaded_artifact_that_would_write_elsewhere_is_a_failure_that_says_so(
    bench: Bench, honest: tuple[str, Path]
) -> None:
    head = honest[0]
    bench.server.add_artifact(artifact_name("cpu", head), packed(("../../x", b"")), head)
    assert bench.publish(head).exit_code is ExitCode.HARNESS
    assert bench.check["conclusion"] == "failure" and "artifact is refused" in bench.comments[0]


def test_one_bad_bundle_beside_a_good_one_leaves_nothing_shown(
    bench: Bench, honest: tuple[str, Path]
) -> None:
    head, bundle = honest
    altered = bench.tmp_path / "gpu"
    shutil.copytree(bundle.with_name("cpu"), altered)
    (altered / "policy.toml").write_text("schema_version = 1\n")
    bench.publish(head, bundle, altered)
    assert bench.check["conclusion"] == "failure" and "Nothing shown" in bench.check["output"]["title"]
    assert not bench.server.sarifs


def test_a_head_that_moved_before_the_run_is_stale_and_its_comment_is_not_written(
    bench: Bench, honest: tuple[str, Path]
) -> None:
    head, bundle = honest
    bench.server.add_pull(12, "c" * 40, bench.subject.base)
    result = bench.publish(head, bundle)
    assert (bench.check["conclusion"], bench.check["head_sha"]) == ("failure", head)
    assert "Stale" in bench.said and not bench.comments and result.exit_code is ExitCode.HARNESS


def test_a_head_that_moves_while_it_is_judged_is_stale(bench: Bench, honest: tuple[str, Path]) -> None:
    head, bundle = honest

    def push(request: Request) -> None:
        if request.path == f"/repos/{REPOSITORY}/pulls":
            bench.server.pulls[12]["head"]["sha"] = "c" * 40

    bench.server.after = push
    bench.publish(head, bundle)
    assert bench.check["conclusion"] == "failure" and "Stale" in bench.said and not bench.comments


def test_a_head_that_moves_while_it_is_told_is_stale(bench: Bench, honest: tuple[str, Path]) -> None:
    def push(request: Request) -> None:
        if request.path.endswith("/sarifs"):
            bench.server.pulls[12]["head"]["sha"] = "c" * 40

    bench.server.after = push
    bench.publish(*honest)
    assert bench.check["conclusion"] == "failure" and "Stale" in bench.said


def test_a_fork_without_permissions_is_told_so_and_nothing_is_written(
    bench: Bench, honest: tuple[str, Path]
) -> None:
    bench.server.faults.append(Fault(method="POST", path="/check-runs", status=403, message="not accessible"))
    with pytest.raises(GitHubError, match="not accessible"):
        bench.publish(*honest)
    assert not bench.server.checks and not bench.comments


@pytest.mark.parametrize(
    ("path", "said"), [("/comments", "comment was not written"), ("/sarifs", "Code scanning")]
)
def test_what_cannot_be_written_beside_the_check_run_is_said_there(
    bench: Bench, honest: tuple[str, Path], path: str, said: str
) -> None:
    bench.server.faults.append(Fault(method="POST", path=path, status=403))
    bench.publish(*honest)
    assert bench.check["conclusion"] == "success" and said in bench.said


def test_code_scanning_gets_the_packed_log_of_what_the_gate_judged(bench: Bench) -> None:
    head = bench.subject.change(**{"engine/core.py": "x = 1\n"})
    bench.publish(head, bench.subject.bundle(head, bench.tmp_path / "b"))
    log = json.loads(gzip.decompress(base64.b64decode(bench.server.sarifs[0]["sarif"])))
    places = [
        r["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] for r in log["runs"][0]["results"]
    ]
    assert log["version"] == "2.1.0" and "engine/core.py" in places


def test_a_log_that_code_scanning_would_not_take_is_not_sent(
    bench: Bench, honest: tuple[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calls, "MAX_SARIF_BYTES", 10)
    bench.publish(*honest)
    assert not bench.server.sarifs and "GitHub takes 10" in bench.said


def test_an_event_of_another_repository_writes_nothing(bench: Bench, honest: tuple[str, Path]) -> None:
    event = workflow_run_event(honest[0])
    event["repository"]["full_name"] = FORK
    with pytest.raises(ConfigurationError):
        bench.publish(*honest, event=event)
    assert not bench.server.requests


def test_a_run_of_the_pull_requests_own_workflow_writes_nothing(
    bench: Bench, honest: tuple[str, Path]
) -> None:
    with pytest.raises(ConfigurationError, match="must not publish"):
        bench.publish(*honest, event=pull_request_event(honest[0]), name="pull_request")
    assert not bench.server.requests


def test_a_pull_request_that_cannot_be_found_leaves_a_failed_check_run(
    bench: Bench, honest: tuple[str, Path]
) -> None:
    bench.server.add_pull(12, honest[0], bench.subject.base, head_repo="eve/serving")
    bench.publish(*honest)
    assert bench.check["conclusion"] == "failure" and "No open pull request" in bench.said


def test_an_honest_change_that_goes_into_another_branch_is_not_let_through(
    bench: Bench, honest: tuple[str, Path]
) -> None:
    bench.server.add_pull(12, honest[0], bench.subject.base)
    bench.server.pulls[12]["base"]["ref"] = "stable"
    assert bench.publish(*honest).exit_code is ExitCode.HARNESS
    assert bench.check["conclusion"] == "failure" and "which is not the default branch" in bench.said


def test_a_bug_in_the_judge_leaves_a_failed_check_run(
    bench: Bench, honest: tuple[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publishing, "rule", lambda _: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        bench.publish(*honest)
    assert bench.check["conclusion"] == "failure" and "broke" in bench.said


def test_an_interrupt_leaves_a_failed_check_run(
    bench: Bench, honest: tuple[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(publishing, "rule", interrupt)
    with pytest.raises(KeyboardInterrupt):
        bench.publish(*honest)
    assert bench.check["conclusion"] == "failure"


def test_annotations_that_github_refuses_keep_no_verdict_from_being_told(bench: Bench) -> None:
    head = bench.subject.change(**{"engine/core.py": "x = 1\n"})
    bundle = bench.subject.bundle(head, bench.tmp_path / "b")
    bench.server.faults.append(Fault(method="PATCH", path="/check-runs/", status=422, message="bad path"))
    bench.publish(head, bundle)
    assert bench.check["conclusion"] == "failure" and "Reject" in bench.said and "bad path" in bench.said


def test_an_outage_while_the_verdict_is_told_leaves_no_success(
    bench: Bench, honest: tuple[str, Path]
) -> None:
    bench.server.faults.append(Fault(method="PATCH", path="/check-runs/", status=503, times=6))
    with pytest.raises(GitHubError):
        bench.publish(*honest)
    assert bench.check["conclusion"] == "failure"


def test_a_check_run_that_was_made_though_github_said_502_is_not_made_twice(
    bench: Bench, honest: tuple[str, Path]
) -> None:
    bench.server.page_size = 1
    bench.publish(*honest)
    bench.server.faults.append(Fault(method="POST", path="/check-runs$", status=502, is_done=True))
    bench.publish(*honest)
    assert [check["conclusion"] for check in bench.server.checks.values()] == ["success", "success"]


def test_a_check_run_that_was_not_made_when_github_said_502_is_made(
    bench: Bench, honest: tuple[str, Path]
) -> None:
    bench.server.faults.append(Fault(method="POST", path="/check-runs$", status=502))
    bench.publish(*honest)
    assert [check["conclusion"] for check in bench.server.checks.values()] == ["success"]


@pytest.mark.parametrize("is_done", [True, False])
def test_annotations_are_added_once_whatever_an_outage_leaves_open(
    bench: Bench, is_done: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publishing, "MAX_ANNOTATIONS_A_REQUEST", 1)
    head = bench.subject.change(**{"engine/core.py": "x = 1\n", "engine/loop.py": "x = 1\n"})
    bench.server.faults.append(Fault(method="PATCH", path="/check-runs/", status=502, is_done=is_done))
    bench.publish(head, bench.subject.bundle(head, bench.tmp_path / "b"))
    assert {a["path"] for a in bench.server.annotations[1]} == {"engine/core.py", "engine/loop.py"}
    assert len(bench.server.annotations[1]) == 2 and bench.check["conclusion"] == "failure"


def test_every_annotation_of_many_is_sent_in_batches_up_to_the_cap(
    bench: Bench, honest: tuple[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    many = tuple(
        OpenFinding(
            check="ISO001",
            required=True,
            outcome=Outcome.FAIL,
            subject="s" * 400,
            message="é" * 60_000,
            advice="",
            place=Location(path=f"f{i}.py", line=i),
        )
        for i in range(260)
    )
    monkeypatch.setattr(gate_text, "open_findings", lambda _: many)
    bench.publish(*honest)
    sizes = [len(r.body["output"]["annotations"]) for r in bench.server.requests if r.method == "PATCH"]
    assert sizes == [50] * 5 and "10 findings have no annotation here" in bench.said
    assert {a["annotation_level"] for a in bench.server.annotations[1]} == {"failure"}


def test_what_a_change_writes_is_text_and_nothing_else(bench: Bench) -> None:
    hostile = HOSTILE.replace('"', "").replace("`", "")
    head = bench.subject.change(title=hostile, **{f"engine/{hostile.replace('/', '')}.py": "x = 1\n"})
    waiver = bench.tmp_path / hostile.replace("/", "")
    waiver.write_text("no waiver")
    bench.publish(head, bench.subject.bundle(head, bench.tmp_path / "b"))
    bench.publish(head, bench.tmp_path / "b", waivers=(waiver,))
    body = "".join(r.body["body"] for r in bench.server.requests if r.body and "body" in r.body)
    assert body.count("octocat") > 3 and body.count("<!--") == 2 and "<img" not in body
    assert not re.search(r"@octocat|(?<![\w&])#1\b|(?<!\\)\*\*bold|(?<!\\)!\[i|^\s*/lgtm", body, re.MULTILINE)


def test_the_token_is_in_nothing_that_is_written(bench: Bench, honest: tuple[str, Path]) -> None:
    bench.server.faults.append(Fault(method="POST", path="/sarifs", status=422, message=f"bad {TOKEN}"))
    result = bench.publish(*honest)
    written_down = f"{bench.server.checks}{bench.comments}{bench.server.sarifs}{result.text}"
    assert TOKEN not in written_down + (bench.tmp_path / "summary.md").read_text() and "***" in result.text


def test_the_check_run_does_not_call_a_waived_check_let_through(
    bench: Bench, honest: tuple[str, Path]
) -> None:
    head, bundle = honest
    key, policy, waiver = make_private_key(), bench.tmp_path / "policy.toml", bench.tmp_path / "w"
    trusted = f'[[trust.keys]]\nname = "M"\npublic_key = "{key.public.line}"\nmay_waive = ["PERF002"]\n'
    policy.write_text(f'{POLICY}gpu = ["PERF002"]\n{trusted}')
    until = datetime.now(UTC).date() + timedelta(days=3)
    signed = Waiver(check="PERF002", head=head, reason="no machine", until=until)
    waiver.write_bytes(sign_waiver(signed, key))
    out = bench.tmp_path / "gate"
    assert bench.publish(head, bundle, policy=policy, waivers=(waiver,), out=out).exit_code is ExitCode.ADMIT
    assert bench.check["output"]["title"] == "Admit, in spite of checks that are waived: PERF002"
    assert "WAIVED: PERF002, by M" in bench.comments[0]
    assert "Waived: " in (out / "report.html").read_text("utf-8")
