"""Writes the part of GitHub's published API description, and of its example events, that the tests hold us to.

Source: the npm packages named below (both MIT), whose versions and digests are written into the files. `npm` fetches
them from the registry, and a package of another digest is refused.
"""

from __future__ import annotations

import base64
import hashlib
import json
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

TARGET = Path(__file__).resolve().parent.parent / "tests" / "harness" / "github" / "published"
API_PACKAGE = "@octokit/openapi@23.0.2"
API_SHA512 = "pV8M7L9GY23AybNvTmo2nyjmpmnt6+2sRE/tqr0ZLQcPS4lnw7u5eZGNmwRNkBC3D7gZXbFx5AHzLUVRBXGDhg=="
EVENTS_PACKAGE = "@octokit/webhooks-examples@7.6.1"
EVENTS_SHA512 = "De6U3XB6O3DtCa7bKgCMzTHdeopqqZ6SNivMYJnK65ierKL1AnNIA0tkRYCRS7lwGT792d+Ps1WbfHlso6MynQ=="
_REPO = "/repos/{owner}/{repo}"
OPERATIONS = (
    ("post", f"{_REPO}/check-runs"),
    ("get", f"{_REPO}/check-runs/{{check_run_id}}"),
    ("patch", f"{_REPO}/check-runs/{{check_run_id}}"),
    ("get", f"{_REPO}/commits/{{ref}}/check-runs"),
    ("get", f"{_REPO}/issues/{{issue_number}}/comments"),
    ("post", f"{_REPO}/issues/{{issue_number}}/comments"),
    ("patch", f"{_REPO}/issues/comments/{{comment_id}}"),
    ("delete", f"{_REPO}/issues/comments/{{comment_id}}"),
    ("get", f"{_REPO}/commits/{{commit_sha}}/pulls"),
    ("get", f"{_REPO}/pulls"),
    ("get", f"{_REPO}/pulls/{{pull_number}}"),
    ("get", f"{_REPO}/actions/artifacts"),
    ("get", f"{_REPO}/actions/artifacts/{{artifact_id}}/{{archive_format}}"),
    ("post", f"{_REPO}/code-scanning/sarifs"),
)
EVENTS = {"pull_request": "labeled", "workflow_run": "completed", "workflow_dispatch": None}
_WORDING = ("description", "summary", "example", "examples", "externalDocs", "title", "deprecated")
_MAPS = ("properties", "patternProperties")


def main() -> int:
    """Writes both files; returns the process exit code."""
    with tempfile.TemporaryDirectory() as folder:
        api = _read(API_PACKAGE, API_SHA512, "package/generated/api.github.com.json", Path(folder))
        events = _read(EVENTS_PACKAGE, EVENTS_SHA512, "package/api.github.com/index.json", Path(folder))
    operations = [_operation(api, method, path) for method, path in OPERATIONS]
    _write("api.json", API_PACKAGE, API_SHA512, {"operations": operations})
    chosen = {name: _examples(events, name, action) for name, action in EVENTS.items()}
    _write("events.json", EVENTS_PACKAGE, EVENTS_SHA512, {"events": chosen})
    return 0


def _read(package: str, sha512: str, member: str, folder: Path) -> Any:
    """One JSON file of a package of the registry."""
    packed = subprocess.run(
        ["npm", "pack", package, "--silent"], cwd=folder, check=True, capture_output=True, text=True
    )
    archive = folder / packed.stdout.split()[-1]
    found = base64.b64encode(hashlib.sha512(archive.read_bytes()).digest()).decode()
    if found != sha512:
        sys.exit(f"{package}: its sha512 is {found}")
    with tarfile.open(archive) as tar:
        file = tar.extractfile(member)
        assert file is not None
        return json.load(file)


def _operation(api: dict[str, Any], method: str, path: str) -> dict[str, Any]:
    """What a request must be, and what GitHub answers in the description's own example."""
    operation = api["paths"][path][method]
    parameters = [_resolved(api, parameter) for parameter in operation.get("parameters", ())]
    body = _resolved(api, operation.get("requestBody"))
    success = min(code for code in operation["responses"] if code[0] in "23")
    return {
        "method": method,
        "path": path,
        "parameters": [_bare({k: p[k] for k in p if k != "x-multi-segment"}) for p in parameters],
        "body": _bare(body["content"]["application/json"]["schema"]) if body else None,
        "status": int(success),
        "answer": _answer(api, operation["responses"][success]),
    }


def _answer(api: Any, response: dict[str, Any]) -> Any:
    """The first example of a response; None when it has no body. Its schema, which is large, is left alone."""
    content = response.get("content", {}).get("application/json")
    if content is None:
        return None
    return _resolved(api, next(iter(content["examples"].values())))["value"]


def _resolved(api: Any, value: Any) -> Any:
    """`value` with every reference replaced by what it names."""
    if isinstance(value, list):
        return [_resolved(api, item) for item in value]
    if not isinstance(value, dict):
        return value
    if "$ref" in value:
        found = api
        for part in value["$ref"].removeprefix("#/").split("/"):
            found = found[part]
        return _resolved(api, found)
    return {key: _resolved(api, item) for key, item in value.items()}


def _bare(value: Any, *, names: bool = False) -> Any:
    """A schema without its wording; `names` says that the keys are names of properties."""
    if isinstance(value, list):
        return [_bare(item) for item in value]
    if not isinstance(value, dict):
        return value
    kept = {key: item for key, item in value.items() if names or key not in _WORDING}
    return {key: _bare(item, names=not names and key in _MAPS) for key, item in kept.items()}


def _examples(events: list[dict[str, Any]], name: str, action: str | None) -> list[Any]:
    """The first published examples of one event, of one action of it."""
    found = next(event["examples"] for event in events if event["name"] == name)
    return [example for example in found if example.get("action") == action][:2]


def _write(name: str, package: str, sha512: str, content: dict[str, Any]) -> None:
    about = {"package": package, "sha512": sha512, "license": "MIT", "extracted_by": "tools/github_api.py"}
    text = json.dumps({"source": about, **content}, indent=1, ensure_ascii=True, sort_keys=True)
    (TARGET / name).write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
