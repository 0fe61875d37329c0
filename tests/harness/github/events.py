"""Events: GitHub's published examples, with the fields that a test is about."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.harness.github.published import published_events
from tests.harness.github.server import REPOSITORY

FORK = "mallory/serving"
HEAD, BASE = "a" * 40, "b" * 40


def pull_request_event(
    head: str = HEAD, *, base: str = BASE, head_repo: str = REPOSITORY, number: int = 12
) -> dict[str, Any]:
    """Of `pull_request` and `pull_request_target`, which look alike."""
    event = published_events("pull_request")[0]
    pull = event["pull_request"]
    event["repository"]["full_name"] = pull["base"]["repo"]["full_name"] = REPOSITORY
    pull["head"] |= {"sha": head, "repo": {**pull["head"]["repo"], "full_name": head_repo}}
    pull["base"]["sha"], pull["number"] = base, number
    return event  # type: ignore[no-any-return]


def workflow_run_event(
    head: str = HEAD, *, head_repo: str = REPOSITORY, event: str = "pull_request", conclusion: str = "success"
) -> dict[str, Any]:
    """Of `workflow_run`, as for a fork: without the pull request."""
    document = published_events("workflow_run")[1]
    run = document["workflow_run"]
    document["repository"]["full_name"] = REPOSITORY
    run |= {"head_sha": head, "head_branch": "topic", "event": event, "conclusion": conclusion}
    run["pull_requests"], run["head_repository"]["full_name"] = [], head_repo
    return document  # type: ignore[no-any-return]


def dispatch_event(head: str = HEAD, number: str = "12") -> dict[str, Any]:
    """Of `workflow_dispatch`, which has its inputs as text."""
    document = published_events("workflow_dispatch")[0]
    document["repository"]["full_name"] = REPOSITORY
    document["inputs"] = {"pull_request": number, "head_sha": head}
    return document  # type: ignore[no-any-return]


def written(tmp_path: Path, event: Any) -> Path:
    """The event's file."""
    path = tmp_path / "event.json"
    path.write_text(json.dumps(event))
    return path
