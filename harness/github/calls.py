"""The calls of GitHub's REST API that the gate needs, and no others."""

from __future__ import annotations

import base64
import gzip
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from harness.github.limits import MAX_CHECK_TEXT, MAX_SARIF_BYTES, MAX_TITLE, cut_line, cut_text
from harness.github.transport import GitHubError, Transport

Conclusion = Literal["success", "failure"]
"""Never `neutral` or `skipped`, which let a required check through."""
M = TypeVar("M", bound=BaseModel)


class _Answer(BaseModel):
    """Part of an answer: what else GitHub sends is left alone."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class Repository(_Answer):
    """A repository of the answer."""

    id: int
    full_name: str
    default_branch: str


class Commit(_Answer):
    """One end of a pull request."""

    sha: str = Field(pattern="^[0-9a-f]{40}$")
    ref: str
    repo: Repository | None


class PullRequest(_Answer):
    """A pull request as it is now."""

    number: int
    state: str
    head: Commit
    base: Commit

    @property
    def is_from_fork(self) -> bool:
        """Whether the head lies in another repository, or in one that is gone."""
        return self.head.repo is None or self.base.repo is None or self.head.repo.id != self.base.repo.id


class User(_Answer):
    """Who wrote a comment."""

    login: str
    type: str


class Comment(_Answer):
    """A comment of a pull request."""

    id: int
    body: str = ""
    user: User | None
    """None: the account was deleted."""


class ArtifactRun(_Answer):
    """The run that uploaded an artifact; GitHub writes it, not the run."""

    repository_id: int | None = None
    head_repository_id: int | None = None
    head_branch: str | None = None
    head_sha: str | None = None


class Artifact(_Answer):
    """An uploaded file."""

    id: int
    name: str
    size_in_bytes: int
    expired: bool
    workflow_run: ArtifactRun | None


class CheckRun(_Answer):
    """A check run that was created."""

    id: int
    html_url: str | None = None
    external_id: str | None = None


class _Annotated(_Answer):
    """How many annotations a check run has."""

    annotations_count: int


class _AnnotatedRun(_Answer):
    """A check run as it is now."""

    status: str
    output: _Annotated


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """What a check run shows."""

    title: str
    summary: str
    """Markdown."""
    annotations: Sequence[Mapping[str, Any]] = ()
    """At most 50, as the API takes them; they are added to those that the run has."""

    def body(self) -> dict[str, Any]:
        """As the API takes it, within its limits."""
        return {
            "title": cut_line(self.title, MAX_TITLE),
            "summary": cut_text(self.summary, MAX_CHECK_TEXT),
            "annotations": list(self.annotations),
        }


class GitHub:
    """One repository of GitHub."""

    def __init__(self, transport: Transport, repository: str) -> None:
        self._transport = transport
        self._path = f"/repos/{repository}"
        self.repository = repository

    def create_check_run(self, name: str, head_sha: str, output: Output, details_url: str = "") -> CheckRun:
        """A check run in progress, which lets nothing through; `details_url` is where its log is."""
        mark = f"fasttrack-{secrets.token_hex(16)}"
        body = {"name": name, "head_sha": head_sha, "status": "in_progress", "output": output.body()}
        body |= {"external_id": mark} | ({"details_url": details_url} if details_url else {})

        def made() -> Any:
            runs = self._transport.pages(
                f"{self._path}/commits/{head_sha}/check-runs",
                {"check_name": name, "filter": "all"},
                "check_runs",
            )
            return next((run for run in runs if _parse(CheckRun, run).external_id == mark), None)

        return _parse(CheckRun, self._transport.send_once("POST", f"{self._path}/check-runs", body, made))

    def update_check_run(
        self, run: CheckRun, output: Output, conclusion: Conclusion | None, num_before: int = 0
    ) -> None:
        """Adds the output's annotations to the `num_before` that the run has; with a conclusion, concludes it."""
        ending = {"status": "completed", "conclusion": conclusion} if conclusion else {}
        path = f"{self._path}/check-runs/{run.id}"

        def updated() -> Any:
            now = self._made(_AnnotatedRun, "GET", path, None)
            is_whole = now.output.annotations_count >= num_before + len(output.annotations)
            return now if is_whole and (conclusion is None or now.status == "completed") else None

        self._transport.send_once("PATCH", path, {**ending, "output": output.body()}, updated)

    def comments(self, number: int) -> Iterator[Comment]:
        """Every comment of a pull request, oldest first."""
        for item in self._transport.pages(f"{self._path}/issues/{number}/comments"):
            yield _parse(Comment, item)

    def create_comment(self, number: int, text: str, made: Callable[[], Comment | None]) -> Comment:
        """A new comment; `made` looks for it where GitHub leaves open whether it was written."""

        def value() -> Any:
            found = made()
            return found.model_dump() if found else None

        path = f"{self._path}/issues/{number}/comments"
        return _parse(Comment, self._transport.send_once("POST", path, {"body": text}, value))

    def update_comment(self, comment: Comment, text: str) -> None:
        """Writes a comment anew."""
        self._transport.send("PATCH", f"{self._path}/issues/comments/{comment.id}", body={"body": text})

    def delete_comment(self, comment: Comment) -> None:
        """Removes a comment; one that is gone already is as well."""
        try:
            self._transport.send("DELETE", f"{self._path}/issues/comments/{comment.id}")
        except GitHubError as error:
            if error.status != 404:
                raise

    def upload_sarif(self, commit_sha: str, ref: str, sarif: str) -> None:
        """Hands a SARIF log to code scanning.

        Raises:
            GitHubError: the log is too large, or the repository takes none.
        """
        packed = gzip.compress(sarif.encode("utf-8"), mtime=0)
        if len(packed) > MAX_SARIF_BYTES:
            message = f"The SARIF log has {len(packed)} bytes packed; GitHub takes {MAX_SARIF_BYTES}."
            raise GitHubError("sarif-too-large", message)
        body = {
            "commit_sha": commit_sha,
            "ref": ref,
            "sarif": base64.b64encode(packed).decode("ascii"),
            "tool_name": "fasttrack",
        }
        self._transport.send("POST", f"{self._path}/code-scanning/sarifs", body=body)

    def pull_request(self, number: int) -> PullRequest:
        """A pull request."""
        return self._made(PullRequest, "GET", f"{self._path}/pulls/{number}", None)

    def pull_requests_of_commit(self, sha: str) -> Iterator[PullRequest]:
        """Pull requests that hold the commit."""
        for item in self._transport.pages(f"{self._path}/commits/{sha}/pulls"):
            yield _parse(PullRequest, item)

    def pull_requests_of_branch(self, owner: str, branch: str) -> Iterator[PullRequest]:
        """Open pull requests of a branch, of a fork too."""
        params = {"state": "open", "head": f"{owner}:{branch}"}
        for item in self._transport.pages(f"{self._path}/pulls", params):
            yield _parse(PullRequest, item)

    def artifacts(self, name: str) -> Iterator[Artifact]:
        """Every artifact of that name, of whatever run."""
        pages = self._transport.pages(f"{self._path}/actions/artifacts", {"name": name}, key="artifacts")
        for item in pages:
            yield _parse(Artifact, item)

    def download_artifact(self, artifact: Artifact, target: Path, max_bytes: int) -> None:
        """Writes the artifact's zip file."""
        self._transport.download(f"{self._path}/actions/artifacts/{artifact.id}/zip", target, max_bytes)

    def _made(self, model: type[M], method: str, path: str, body: Mapping[str, Any] | None) -> M:
        return _parse(model, self._transport.value(self._transport.send(method, path, body=body)))


def _parse(model: type[M], value: Any) -> M:
    try:
        return model.model_validate(value)
    except ValidationError as error:
        fields = ", ".join(".".join(str(p) for p in found["loc"]) for found in error.errors())
        message = f"GitHub's answer is not a {model.__name__}: {fields}."
        raise GitHubError("github-unexpected", message) from error
