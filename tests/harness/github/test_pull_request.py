"""A run's pull request is found, of a fork too, and never guessed."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.github.calls import GitHub
from harness.github.event import read_event
from harness.github.pull_request import find_pull_request
from harness.model.errors import ConfigurationError
from tests.harness.github.events import BASE, FORK, HEAD, workflow_run_event, written
from tests.harness.github.server import FakeGitHub


def found(github: GitHub, tmp_path: Path) -> tuple[int, str]:
    event = read_event(written(tmp_path, workflow_run_event(head_repo=FORK)), "workflow_run")
    pull = find_pull_request(github, event)
    return pull.number, pull.head.sha


def test_a_forks_pull_request_is_found_by_its_commit(
    server: FakeGitHub, github: GitHub, tmp_path: Path
) -> None:
    server.add_pull(12, HEAD, BASE, head_repo=FORK)
    server.pulls[12]["head"]["ref"] = "renamed"
    server.pulls_of_commit[HEAD] = [12]
    assert found(github, tmp_path) == (12, HEAD)


def test_a_forks_pull_request_is_found_by_its_branch_where_github_does_not_know_the_commit(
    server: FakeGitHub, github: GitHub, tmp_path: Path
) -> None:
    server.add_pull(12, HEAD, BASE, head_repo=FORK)
    assert found(github, tmp_path) == (12, HEAD)


def test_a_pull_request_whose_head_moved_is_found_with_its_new_head(
    server: FakeGitHub, github: GitHub, tmp_path: Path
) -> None:
    server.add_pull(12, "c" * 40, BASE, head_repo=FORK)
    assert found(github, tmp_path) == (12, "c" * 40)


def test_the_pull_request_at_the_head_is_taken_before_one_that_moved_on(
    server: FakeGitHub, github: GitHub, tmp_path: Path
) -> None:
    server.add_pull(11, "c" * 40, BASE, head_repo=FORK)
    server.add_pull(12, HEAD, BASE, head_repo=FORK)
    assert found(github, tmp_path) == (12, HEAD)


@pytest.mark.parametrize("others", [(), ("closed",), ("of another fork",), ("into another repository",)])
def test_no_pull_request_is_invented(
    server: FakeGitHub, github: GitHub, tmp_path: Path, others: tuple[str, ...]
) -> None:
    for other in others:
        server.add_pull(12, HEAD, BASE, head_repo="eve/serving" if other == "of another fork" else FORK)
        server.pulls_of_commit[HEAD] = [12]
        if other == "closed":
            server.pulls[12]["state"] = "closed"
        if other == "into another repository":
            server.pulls[12]["base"]["repo"]["full_name"] = FORK
    with pytest.raises(ConfigurationError) as error:
        found(github, tmp_path)
    assert error.value.slug == "no-pull-request"


def test_one_of_several_pull_requests_with_the_head_is_not_chosen(
    server: FakeGitHub, github: GitHub, tmp_path: Path
) -> None:
    server.add_pull(11, HEAD, BASE, head_repo=FORK)
    server.add_pull(12, HEAD, BASE, head_repo=FORK)
    with pytest.raises(ConfigurationError, match="#11, #12"):
        found(github, tmp_path)


def test_a_branch_name_is_a_value_and_no_part_of_the_query(
    server: FakeGitHub, github: GitHub, tmp_path: Path
) -> None:
    event = workflow_run_event(head_repo=FORK)
    event["workflow_run"]["head_branch"] = branch = "x&state=all#%20+ é"
    server.add_pull(12, HEAD, BASE, head_repo=FORK)
    server.pulls[12]["head"]["ref"] = branch
    pull = find_pull_request(github, read_event(written(tmp_path, event), "workflow_run"))
    assert pull.number == 12 and server.requests[-1].query["state"] == "open"
