"""What a workflow's event says of the pull request, and whether its run may be trusted to write."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from harness.config import read_configuration
from harness.model.errors import ConfigurationError

SHA = "^[0-9a-f]{40}$"
REPOSITORY = r"^[A-Za-z0-9][A-Za-z0-9-]*/[A-Za-z0-9._-]+$"
PULL_REQUEST_EVENTS = ("pull_request", "pull_request_target")
MAX_SHOWN = 60
"""Characters of a wrong value that are shown."""


class _Payload(BaseModel):
    """Part of an event: GitHub adds keys, which are left alone."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class _Repository(_Payload):
    full_name: str = Field(pattern=REPOSITORY)


class _Commit(_Payload):
    sha: str = Field(pattern=SHA)
    ref: str = Field(min_length=1)
    repo: _Repository | None
    """None: the fork was deleted."""


class _PullRequest(_Payload):
    number: int = Field(gt=0)
    head: _Commit
    base: _Commit


class _WorkflowRun(_Payload):
    id: int = Field(gt=0)
    event: str
    conclusion: str | None
    head_sha: str = Field(pattern=SHA)
    head_branch: str | None
    head_repository: _Repository | None


class _Inputs(_Payload):
    pull_request: int = Field(gt=0)
    head_sha: str = Field(pattern=SHA)


class _Document(_Payload):
    repository: _Repository
    pull_request: _PullRequest | None = None
    workflow_run: _WorkflowRun | None = None
    inputs: Annotated[_Inputs | None, BeforeValidator(lambda value: value or None)] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One event of a repository, about one head commit."""

    name: str
    """As `GITHUB_EVENT_NAME` has it."""
    repository: str
    """`owner/name` of the repository whose event it is."""
    head_sha: str
    head_repository: str | None
    """Where the head commit lies; None where the fork is gone or the event does not say."""
    head_branch: str | None = None
    pull_request: int | None = None
    """None where the event does not say: GitHub leaves it out of the runs of forks."""
    base_sha: str | None = None
    run_id: int | None = None
    """The workflow run that ended, of `workflow_run`."""
    run_event: str = ""
    """What had started that run."""
    run_conclusion: str = ""


def read_event(path: Path, name: str = "") -> Event:
    """The event of a file, `$GITHUB_EVENT_PATH`.

    Args:
        path: The JSON file.
        name: `GITHUB_EVENT_NAME`; empty: as the file's own keys tell.

    Raises:
        ConfigurationError: not JSON, fields missing or wrong (all of them are named), or about no pull request.
    """
    data = read_configuration(path, "event")
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise _bad_event(f"{path.name} is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise _bad_event(f"{path.name}: got {type(value).__name__}, expected an object")
    try:
        document = _Document.model_validate(value)
    except ValidationError as error:
        raise _bad_event("\n".join(_say_fields(error))) from error
    return _event(document, name)


def named_commits(path: Path, base: str | None, head: str | None) -> tuple[str | None, str]:
    """Base and head as an event names them; what the caller names besides must be the same commit.

    Raises:
        ConfigurationError: as `read_event`, or the caller names others.
    """
    event = read_event(path)
    for given, found, option in ((base, event.base_sha, "--base"), (head, event.head_sha, "--head")):
        if given is not None and found is not None and given != found:
            message = f"{option} is {given}, and the event names {found}."
            raise ConfigurationError("event-other-commit", message, f"Leave out {option} or --pr.")
    return event.base_sha or base, event.head_sha


def refuse_untrusted(event: Event, repository: str) -> None:
    """Nothing, when the event is of `repository` and of a kind whose workflow is that of the base.

    Only such a run may hold a token that writes. `pull_request` runs the pull request's own workflow file, and a run
    that a push or anything else started concerns no pull request.

    Raises:
        ConfigurationError: it is not.
    """
    if event.repository != repository:
        message = f"The event is of {event.repository}, not of {repository}."
        raise ConfigurationError("event-of-another-repository", message, "Give the event of this very run.")
    if event.name == "pull_request":
        raise ConfigurationError(
            "event-unprivileged",
            "A pull_request run takes its workflow file from the pull request: it must not publish.",
            "Publish from a workflow_run of it: docs/github.md shows how.",
        )
    if event.name == "workflow_run" and event.run_event not in PULL_REQUEST_EVENTS:
        message = f"The run was started by {event.run_event or 'nothing known'}, not by a pull request."
        raise ConfigurationError("event-of-no-pull-request", message, "There is nothing to publish for it.")


def _event(document: _Document, name: str) -> Event:
    if document.workflow_run is not None and name in ("", "workflow_run"):
        return _workflow_run_event(document.repository.full_name, document.workflow_run)
    if document.pull_request is not None and name in ("", *PULL_REQUEST_EVENTS):
        pull = document.pull_request
        if pull.base.repo != document.repository:
            base = pull.base.repo.full_name if pull.base.repo else "no repository"
            raise _bad_event(f"pull_request.base.repo: got {base}, expected {document.repository.full_name}")
        return Event(
            name=name or PULL_REQUEST_EVENTS[0],
            repository=document.repository.full_name,
            head_sha=pull.head.sha,
            head_repository=pull.head.repo.full_name if pull.head.repo else None,
            head_branch=pull.head.ref,
            pull_request=pull.number,
            base_sha=pull.base.sha,
        )
    if document.inputs is not None and name in ("", "workflow_dispatch"):
        return Event(
            name="workflow_dispatch",
            repository=document.repository.full_name,
            head_sha=document.inputs.head_sha,
            head_repository=None,
            pull_request=document.inputs.pull_request,
        )
    raise _bad_event(f"{name or 'this'} event names no pull request, no workflow run and no inputs")


def _workflow_run_event(repository: str, run: _WorkflowRun) -> Event:
    return Event(
        name="workflow_run",
        repository=repository,
        head_sha=run.head_sha,
        head_repository=run.head_repository.full_name if run.head_repository else None,
        head_branch=run.head_branch,
        run_id=run.id,
        run_event=run.event,
        run_conclusion=run.conclusion or "",
    )


def _bad_event(message: str) -> ConfigurationError:
    advice = "Give the file that $GITHUB_EVENT_PATH names, of a pull request, a workflow_run or a dispatch."
    return ConfigurationError("bad-event", message, advice)


def _say_fields(error: ValidationError) -> list[str]:
    """One line a bad field: `path: got X, expected Y`."""
    lines = []
    for found in error.errors(include_url=False):
        path = ".".join(str(part) for part in found["loc"])
        got = "nothing" if found["type"] == "missing" else ascii(found["input"])[:MAX_SHOWN]
        lines.append(f"{path}: got {got}, expected: {found['msg']}")
    return lines
