"""A GitHub of one repository on this machine, which holds every request against the published description."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from tests.harness.github.published import (
    Operation,
    Request,
    find_operation,
    find_problems,
    published_operations,
)

REPOSITORY = "octo-org/serving"
TOKEN = "ghs_16C7e42F292c6912E7710c838347Ae178B4a"
BOT = "github-actions[bot]"
MAX_COMMENT, MAX_TITLE, MAX_MESSAGE_BYTES, MAX_SARIF_BYTES = 65_536, 255, 65_536, 10 << 20
Answer = tuple[int, Mapping[str, str], Any]


class FakeClock:
    """A clock that sleeping moves."""

    def __init__(self) -> None:
        self.time = 1_800_000_000.0
        self.slept: list[float] = []

    def now(self) -> float:
        return self.time

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.time += seconds


@dataclass(slots=True, kw_only=True)
class Fault:
    """What GitHub answers instead, so many times."""

    method: str
    path: str
    """A regular expression."""
    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    message: str = "nothing works"
    times: int = 1
    is_done: bool = False
    """Whether what was asked for is done all the same."""


@dataclass(slots=True)
class FakeGitHub:
    """State and rules of the server; `problems` holds every request that breaks the description."""

    page_size: int = 100
    pulls: dict[int, dict[str, Any]] = field(default_factory=dict)
    pulls_of_commit: dict[str, list[int]] = field(default_factory=dict)
    comments: dict[int, dict[str, Any]] = field(default_factory=dict)
    checks: dict[int, dict[str, Any]] = field(default_factory=dict)
    annotations: dict[int, list[Any]] = field(default_factory=dict)
    sarifs: list[dict[str, Any]] = field(default_factory=list)
    artifacts: list[dict[str, Any]] = field(default_factory=list)
    files: dict[int, bytes] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)
    requests: list[Request] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    after: Callable[[Request], None] = lambda _: None
    """Called when a request was answered: what another actor does meanwhile."""
    url: str = ""
    _operations: tuple[Operation, ...] = field(default_factory=published_operations)
    _lock: threading.RLock = field(default_factory=threading.RLock)

    def add_pull(self, number: int, head: str, base: str, *, head_repo: str = REPOSITORY) -> None:
        """An open pull request; `head_repo` names a fork."""
        pull = deepcopy(self._example("/repos/{owner}/{repo}/pulls/{pull_number}"))
        pull["number"], pull["state"] = number, "open"
        for end, sha, name, ref in (("head", head, head_repo, "topic"), ("base", base, REPOSITORY, "main")):
            repo = {"id": repository_id(name), "full_name": name, "default_branch": "main"}
            pull[end] |= {"sha": sha, "ref": ref, "repo": {**(pull[end]["repo"] or {}), **repo}}
        self.pulls[number] = pull

    def add_artifact(self, name: str, data: bytes, head: str, **run: Any) -> None:
        """An artifact of a run of the commit; `run` says otherwise."""
        example = self._example("/repos/{owner}/{repo}/actions/artifacts")["artifacts"][0]
        own = repository_id(REPOSITORY)
        about = {
            "id": 7,
            "repository_id": own,
            "head_repository_id": own,
            "head_branch": "topic",
            "head_sha": head,
        }
        artifact_id = len(self.artifacts) + 1
        changed = {"id": artifact_id, "name": name, "expired": False, "size_in_bytes": len(data)}
        self.artifacts.append({**deepcopy(example), **changed, "workflow_run": about | run})
        self.files[artifact_id] = data

    def add_comment(self, body: str, login: str, kind: str = "User") -> int:
        """A comment that somebody wrote."""
        comment_id = max(self.comments, default=0) + 1
        example = deepcopy(self._example("/repos/{owner}/{repo}/issues/{issue_number}/comments")[0])
        example |= {"id": comment_id, "body": body, "user": {**example["user"], "login": login, "type": kind}}
        self.comments[comment_id] = example
        return comment_id

    def answer(self, request: Request) -> Answer:
        """What GitHub answers."""
        with self._lock:
            answer = deepcopy(self._answer(request))
        self.after(request)
        return answer

    def _answer(self, request: Request) -> Answer:
        self.requests.append(request)
        found = find_operation(self._operations, request)
        if found is None:
            self.problems.append(f"{request.method} {request.path}: no such call")
            return 404, {}, {"message": "Not Found"}
        wrong = find_problems(*found, request)
        self.problems += [f"{request.method} {request.path}: {problem}" for problem in wrong]
        if request.headers.get("authorization") != f"Bearer {TOKEN}":
            return 401, {}, {"message": "Bad credentials"}
        fault = self._fault(request)
        if fault is None:
            return self._do(*found, request)
        if fault.is_done:
            self._do(*found, request)
        return fault.status, fault.headers, {"message": fault.message}

    def _fault(self, request: Request) -> Fault | None:
        for fault in self.faults:
            if fault.times and fault.method == request.method and re.search(fault.path, request.path):
                fault.times -= 1
                return fault
        return None

    def _example(self, path: str) -> Any:
        return next(o.answer for o in self._operations if o.path == path and o.answer is not None)

    def _do(self, operation: Operation, values: Mapping[str, str], request: Request) -> Answer:
        name = f"{operation.method} {operation.path.removeprefix('/repos/{owner}/{repo}/')}"
        status, body = operation.status, request.body
        match name:
            case "post check-runs":
                check_id = len(self.checks) + 1
                self.checks[check_id] = {**operation.answer, "id": check_id, "conclusion": None, **body}
                self.annotations[check_id] = list(body.get("output", {}).get("annotations", ()))
                return self._limited(status, self.checks[check_id], body.get("output", {}))
            case "get check-runs/{check_run_id}":
                return status, {}, self._check(int(values["check_run_id"]))
            case "get commits/{ref}/check-runs":
                sha, called = values["ref"], request.query["check_name"]
                runs = [
                    self._check(i)
                    for i, c in self.checks.items()
                    if (c["head_sha"], c["name"]) == (sha, called)
                ]
                status, headers, items = self._page(runs, request)
                return status, headers, {"total_count": len(runs), "check_runs": items}
            case "patch check-runs/{check_run_id}":
                check_id = int(values["check_run_id"])
                output = body.get("output", {})
                refused = self._limited(status, {}, output)
                if refused[0] >= 400:
                    return refused
                self.checks[check_id] |= body
                self.annotations[check_id] += output.get("annotations", [])
                return status, {}, self.checks[check_id]
            case "get issues/{issue_number}/comments":
                return self._page(list(self.comments.values()), request)
            case "post issues/{issue_number}/comments":
                if len(body["body"]) > MAX_COMMENT:
                    return 422, {}, {"message": "Body is too long (maximum is 65536 characters)"}
                return status, {}, self.comments[self.add_comment(body["body"], BOT, "Bot")]
            case "patch issues/comments/{comment_id}":
                if len(body["body"]) > MAX_COMMENT:
                    return 422, {}, {"message": "Body is too long (maximum is 65536 characters)"}
                self.comments[int(values["comment_id"])]["body"] = body["body"]
                return status, {}, self.comments[int(values["comment_id"])]
            case "delete issues/comments/{comment_id}":
                gone = self.comments.pop(int(values["comment_id"]), None)
                return (status, {}, None) if gone else (404, {}, {"message": "Not Found"})
            case "get commits/{commit_sha}/pulls":
                numbers = self.pulls_of_commit.get(values["commit_sha"], [])
                return self._page([self.pulls[n] for n in numbers], request)
            case "get pulls":
                return self._page(
                    [p for p in self.pulls.values() if _label(p) == request.query["head"]], request
                )
            case "get pulls/{pull_number}":
                pull = self.pulls.get(int(values["pull_number"]))
                return (status, {}, pull) if pull else (404, {}, {"message": "Not Found"})
            case "get actions/artifacts":
                named = [a for a in self.artifacts if a["name"] == request.query["name"]]
                status, headers, items = self._page(named, request)
                return status, headers, {"total_count": len(named), "artifacts": items}
            case "get actions/artifacts/{artifact_id}/{archive_format}":
                return status, {"Location": f"{self.url}/store/{values['artifact_id']}"}, None
            case "post code-scanning/sarifs":
                self.sarifs.append(body)
                return status, {}, operation.answer
        raise AssertionError(name)

    def _check(self, check_id: int) -> dict[str, Any]:
        check = self.checks[check_id]
        output = {**check["output"], "annotations_count": len(self.annotations[check_id])}
        return {**check, "output": output}

    def _limited(self, status: int, value: Any, output: Mapping[str, Any]) -> Answer:
        """What GitHub refuses and its description does not say."""
        for annotation in output.get("annotations", ()):
            if len(annotation.get("title", "")) > MAX_TITLE:
                return 422, {}, {"message": "title is too long"}
            if len(annotation["message"].encode()) > MAX_MESSAGE_BYTES:
                return 422, {}, {"message": "message is too long"}
        return status, {}, value

    def _page(self, items: list[Any], request: Request) -> Answer:
        size = min(int(request.query.get("per_page", "30")), self.page_size)
        page = int(request.query.get("page", "1"))
        headers = {}
        if page * size < len(items):
            query = "&".join(f"{k}={v}" for k, v in {**request.query, "page": page + 1}.items())
            headers["Link"] = f'<{self.url}{request.path}?{query}>; rel="next", <{self.url}>; rel="last"'
        return 200, headers, items[(page - 1) * size : page * size]


@contextmanager
def serving(github: FakeGitHub) -> Iterator[None]:
    """Serves it on a port of the loopback interface."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _handle(self) -> None:
            parts = urlsplit(self.path)
            data = self.rfile.read(int(self.headers.get("Content-Length", "0")))
            if parts.path.startswith("/store/"):
                leaked = [name for name, value in self.headers.items() if TOKEN in value]
                github.problems.extend(f"the store got the token in {name}" for name in leaked)
                self._send(200, {}, github.files[int(parts.path.rpartition("/")[2])])
                return
            request = Request(
                method=self.command,
                path=parts.path,
                query=dict(parse_qsl(parts.query)),
                headers={name.lower(): value for name, value in self.headers.items()},
                body=json.loads(data) if data else None,
            )
            status, headers, value = github.answer(request)
            self._send(status, headers, b"" if value is None else json.dumps(value).encode())

        do_GET = do_POST = do_PATCH = do_DELETE = _handle

        def _send(self, status: int, headers: Mapping[str, str], data: bytes) -> None:
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    github.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def repository_id(name: str) -> int:
    """A number for a repository's name."""
    return sum(name.encode())


def _label(pull: Mapping[str, Any]) -> str:
    head = pull["head"]
    return f"{head['repo']['full_name'].partition('/')[0]}:{head['ref']}"
