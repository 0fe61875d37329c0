"""An event says which head it concerns, or is refused with every field that is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness.github.event import named_commits, read_event, refuse_untrusted
from harness.model.errors import ConfigurationError
from tests.harness.github.events import (
    BASE,
    FORK,
    HEAD,
    dispatch_event,
    pull_request_event,
    workflow_run_event,
    written,
)
from tests.harness.github.published import published_events
from tests.harness.github.server import REPOSITORY


def test_a_pull_request_names_number_head_and_base(tmp_path: Path) -> None:
    event = read_event(written(tmp_path, pull_request_event()), "pull_request_target")
    assert (event.pull_request, event.head_sha, event.base_sha) == (12, HEAD, BASE)


def test_a_run_of_a_fork_names_head_and_fork_and_no_pull_request(tmp_path: Path) -> None:
    event = read_event(written(tmp_path, workflow_run_event(head_repo=FORK)), "workflow_run")
    assert (event.head_sha, event.head_repository, event.pull_request) == (HEAD, FORK, None)
    assert event.run_event == "pull_request"


def test_a_dispatch_names_what_its_inputs_name(tmp_path: Path) -> None:
    event = read_event(written(tmp_path, dispatch_event()), "workflow_dispatch")
    assert (event.pull_request, event.head_sha) == (12, HEAD)


@pytest.mark.parametrize("name", ["pull_request", "workflow_run"])
def test_githubs_own_examples_are_read(tmp_path: Path, name: str) -> None:
    examples = [read_event(written(tmp_path, example), name) for example in published_events(name)]
    assert examples and all(len(event.head_sha) == 40 for event in examples)


def test_a_pull_request_whose_fork_is_gone_is_read(tmp_path: Path) -> None:
    event = pull_request_event()
    event["pull_request"]["head"]["repo"] = None
    assert read_event(written(tmp_path, event)).head_repository is None


def test_every_wrong_field_is_named_at_once(tmp_path: Path) -> None:
    event = pull_request_event(head="HEAD; rm -rf /")
    del event["pull_request"]["number"]
    event["repository"]["full_name"] = "../../etc"
    with pytest.raises(ConfigurationError) as error:
        read_event(written(tmp_path, event))
    said = error.value.message
    assert "pull_request.head.sha: got 'HEAD; rm" in said and "repository.full_name: got '../../etc'" in said
    assert "pull_request.number: got nothing" in said


@pytest.mark.parametrize(
    "event",
    [
        pytest.param([], id="a list"),
        pytest.param({}, id="nothing"),
        pytest.param({"repository": {"full_name": REPOSITORY}}, id="a push"),
        pytest.param({"repository": {"full_name": REPOSITORY}, "inputs": {}}, id="a dispatch without inputs"),
        pytest.param(pull_request_event(head="A" * 40), id="a head in capitals"),
        pytest.param(pull_request_event(number=-1), id="a negative number"),
        pytest.param(workflow_run_event(head="a" * 64), id="a sha256 head"),
    ],
)
def test_what_names_no_head_is_refused(tmp_path: Path, event: Any) -> None:
    with pytest.raises(ConfigurationError) as error:
        read_event(written(tmp_path, event))
    assert error.value.slug == "bad-event"


@pytest.mark.parametrize("data", [b"", b"{", b"\xff", b"[" * 100_000])
def test_what_is_not_json_is_refused(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "e").write_bytes(data)
    with pytest.raises(ConfigurationError) as error:
        read_event(tmp_path / "e")
    assert error.value.slug == "bad-event"


def test_an_event_is_read_as_what_github_calls_it_and_not_as_what_it_also_holds(tmp_path: Path) -> None:
    both = workflow_run_event() | {"pull_request": pull_request_event(head="c" * 40)["pull_request"]}
    assert read_event(written(tmp_path, both), "workflow_run").head_sha == HEAD


def test_a_base_in_another_repository_than_the_events_is_refused(tmp_path: Path) -> None:
    event = pull_request_event()
    event["pull_request"]["base"]["repo"]["full_name"] = FORK
    with pytest.raises(ConfigurationError, match=r"base\.repo"):
        read_event(written(tmp_path, event))


@pytest.mark.parametrize(
    ("event", "name", "repository", "slug"),
    [
        (pull_request_event(), "pull_request_target", FORK, "event-of-another-repository"),
        (workflow_run_event(), "workflow_run", "octo-org/other", "event-of-another-repository"),
        (pull_request_event(), "pull_request", REPOSITORY, "event-unprivileged"),
        (pull_request_event(), "", REPOSITORY, "event-unprivileged"),
        (workflow_run_event(event="push"), "workflow_run", REPOSITORY, "event-of-no-pull-request"),
        (workflow_run_event(event="schedule"), "workflow_run", REPOSITORY, "event-of-no-pull-request"),
    ],
)
def test_a_run_that_must_not_write_is_refused(
    tmp_path: Path, event: Any, name: str, repository: str, slug: str
) -> None:
    with pytest.raises(ConfigurationError) as error:
        refuse_untrusted(read_event(written(tmp_path, event), name), repository)
    assert error.value.slug == slug


@pytest.mark.parametrize(
    ("event", "name"),
    [
        (pull_request_event(head_repo=FORK), "pull_request_target"),
        (workflow_run_event(head_repo=FORK), "workflow_run"),
        (dispatch_event(), "workflow_dispatch"),
    ],
)
def test_a_run_of_the_bases_workflow_may_write_though_the_head_is_a_forks(
    tmp_path: Path, event: Any, name: str
) -> None:
    refuse_untrusted(read_event(written(tmp_path, event), name), REPOSITORY)


def test_the_gate_takes_head_and_base_from_the_event(tmp_path: Path) -> None:
    assert named_commits(written(tmp_path, pull_request_event()), None, None) == (BASE, HEAD)


def test_the_gate_does_not_take_another_head_than_the_events(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="the event names"):
        named_commits(written(tmp_path, pull_request_event()), None, "c" * 40)
