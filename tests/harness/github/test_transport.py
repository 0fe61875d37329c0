"""Limits and outages are waited for, a bounded time, and the token is told to nobody."""

from __future__ import annotations

import traceback
from pathlib import Path

import pytest

from harness.github.calls import GitHub, Output
from harness.github.transport import MAX_ATTEMPTS, MAX_WAIT_S, GitHubError, Transport
from harness.model.errors import ConfigurationError
from tests.harness.github.server import REPOSITORY, TOKEN, FakeClock, FakeGitHub, Fault

HEAD, BASE = "a" * 40, "b" * 40


@pytest.fixture
def pull(server: FakeGitHub) -> int:
    server.add_pull(12, HEAD, BASE)
    return 12


def fail(server: FakeGitHub, status: int, *, times: int = 1, message: str = "m", **headers: str) -> None:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    server.faults.append(
        Fault(method="GET", path="/pulls/12$", status=status, headers=named, times=times, message=message)
    )


def test_an_exhausted_rate_limit_is_waited_for_until_its_reset(
    server: FakeGitHub, github: GitHub, clock: FakeClock, pull: int
) -> None:
    reset = str(int(clock.now()) + 300)
    fail(server, 403, message="API rate limit exceeded", x_ratelimit_remaining="0", x_ratelimit_reset=reset)
    assert github.pull_request(pull).number == 12 and clock.slept == [301]


def test_a_secondary_limit_is_waited_for_as_long_as_it_says(
    server: FakeGitHub, github: GitHub, clock: FakeClock, pull: int
) -> None:
    fail(server, 429, message="You have exceeded a secondary rate limit", retry_after="17")
    assert github.pull_request(pull).number == 12 and clock.slept == [17]


def test_a_secondary_limit_that_says_nothing_costs_a_minute_and_then_two(
    server: FakeGitHub, github: GitHub, clock: FakeClock, pull: int
) -> None:
    fail(server, 403, message="You have exceeded a secondary rate limit", times=2)
    assert github.pull_request(pull).number == 12 and clock.slept == [60, 120]


def test_a_limit_that_lasts_longer_than_a_job_may_wait_is_an_error_that_says_so(
    server: FakeGitHub, github: GitHub, clock: FakeClock, pull: int
) -> None:
    fail(server, 429, retry_after=str(int(MAX_WAIT_S) + 1))
    with pytest.raises(GitHubError, match="answered 429") as error:
        github.pull_request(pull)
    assert error.value.slug == "github-rate-limit" and "901 s" in error.value.advice and not clock.slept


def test_an_outage_that_passes_is_not_noticed(
    server: FakeGitHub, github: GitHub, clock: FakeClock, pull: int
) -> None:
    fail(server, 502, times=2)
    assert github.pull_request(pull).number == 12 and clock.slept == [1, 2]


def test_an_outage_that_does_not_pass_ends_after_a_bounded_number_of_attempts(
    server: FakeGitHub, github: GitHub, pull: int
) -> None:
    fail(server, 503, times=1000)
    with pytest.raises(GitHubError, match="answered 503") as error:
        github.pull_request(pull)
    assert error.value.slug == "github-outage" and len(server.requests) == MAX_ATTEMPTS


def test_a_host_that_is_not_there_is_an_error_and_no_crash(clock: FakeClock) -> None:
    github = GitHub(Transport(TOKEN, url="http://127.0.0.1:9", clock=clock), REPOSITORY)
    with pytest.raises(GitHubError, match="no answer") as error:
        github.pull_request(1)
    assert error.value.status is None and len(clock.slept) == MAX_ATTEMPTS - 1


def test_a_refusal_is_not_tried_again_and_names_the_permissions(
    server: FakeGitHub, github: GitHub, clock: FakeClock
) -> None:
    server.faults.append(
        Fault(method="POST", path="/check-runs", status=403, message="Resource not accessible by integration")
    )
    with pytest.raises(GitHubError, match="Resource not accessible") as error:
        github.create_check_run("fasttrack", HEAD, Output(title="t", summary="s"))
    assert "fork" in error.value.advice and not clock.slept and not server.checks


def test_a_token_is_in_no_error_though_github_echoes_it(
    server: FakeGitHub, github: GitHub, pull: int
) -> None:
    fail(server, 422, message=f"bad token {TOKEN}")
    with pytest.raises(GitHubError) as error:
        github.pull_request(pull)
    told = "".join(traceback.format_exception(error.value)) + error.value.advice
    assert "***" in told and TOKEN not in told


def test_a_token_is_not_sent_over_plain_http_to_another_machine() -> None:
    with pytest.raises(ConfigurationError, match="not https"):
        Transport(TOKEN, url="http://api.github.com")


def test_a_next_page_on_another_host_is_not_asked_for(server: FakeGitHub, github: GitHub) -> None:
    for _ in range(3):
        server.add_comment("hello", "someone")
    server.page_size, server.url = 2, "http://localhost:1"
    with pytest.raises(GitHubError, match="next page of the same host"):
        list(github.comments(12))


def test_all_pages_of_comments_are_read(server: FakeGitHub, github: GitHub) -> None:
    server.page_size = 2
    ids = [server.add_comment("hello", "someone") for _ in range(5)]
    assert [comment.id for comment in github.comments(12)] == ids


def test_an_answer_that_is_not_what_github_describes_is_an_error_and_no_crash(
    server: FakeGitHub, github: GitHub, pull: int
) -> None:
    del server.pulls[12]["head"]["sha"]
    with pytest.raises(GitHubError, match=r"not a PullRequest: head\.sha"):
        github.pull_request(pull)


def test_an_artifact_is_fetched_without_the_token_and_no_further_than_its_limit(
    server: FakeGitHub, github: GitHub, tmp_path: Path
) -> None:
    server.add_artifact("a", b"x" * 1000, HEAD)
    artifact = next(github.artifacts("a"))
    github.download_artifact(artifact, tmp_path / "a.zip", 1000)
    with pytest.raises(GitHubError, match="at most 999 bytes"):
        github.download_artifact(artifact, tmp_path / "b.zip", 999)
    assert (tmp_path / "a.zip").read_bytes() == b"x" * 1000


def test_an_artifact_is_not_fetched_over_plain_http_from_another_host(
    server: FakeGitHub, github: GitHub, tmp_path: Path
) -> None:
    server.add_artifact("a", b"x", HEAD)
    artifact = next(github.artifacts("a"))
    server.url = "http://localhost:1"
    with pytest.raises(GitHubError, match="a redirect to https"):
        github.download_artifact(artifact, tmp_path / "a.zip", 1000)


def test_an_artifact_that_is_gone_is_an_error_that_says_so(
    server: FakeGitHub, github: GitHub, tmp_path: Path
) -> None:
    server.add_artifact("a", b"x", HEAD)
    server.faults.append(Fault(method="GET", path="/zip$", status=410, message="Artifact has expired"))
    with pytest.raises(GitHubError, match="answered 410: Artifact has expired"):
        github.download_artifact(next(github.artifacts("a")), tmp_path / "a.zip", 1000)
