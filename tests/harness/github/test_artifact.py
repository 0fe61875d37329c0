"""An uploaded artifact gives one bundle or an error, and writes nowhere else."""

from __future__ import annotations

import io
import warnings
import zipfile
from pathlib import Path

import pytest

from harness.github import artifact as module
from harness.github.artifact import MEMBER, artifact_name, collect_bundles, take_member
from harness.github.calls import GitHub
from harness.model.errors import EvidenceError
from tests.harness.github.events import BASE, FORK, HEAD
from tests.harness.github.server import FakeGitHub, repository_id


def packed(*members: tuple[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, data in members:
            archive.writestr(name, data)
    return buffer.getvalue()


def linked() -> bytes:
    link = zipfile.ZipInfo("link")
    link.external_attr = 0o120777 << 16
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(link, "/etc/passwd")
    return buffer.getvalue()


def flipped(data: bytes) -> bytes:
    at = data.index(MEMBER.encode()) + len(MEMBER) + 2
    return data[:at] + bytes([data[at] ^ 0xFF]) + data[at + 1 :]


def taken(tmp_path: Path, data: bytes) -> bytes:
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a.zip").write_bytes(data)
    take_member(tmp_path / "in/a.zip", tmp_path / "in/out")
    return (tmp_path / "in/out").read_bytes()


def test_the_bundle_of_an_artifact_is_taken_out(tmp_path: Path) -> None:
    assert taken(tmp_path, packed((MEMBER, b"bytes"))) == b"bytes"


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(packed(("../../evil", b"x")), id="a path that leaves the folder"),
        pytest.param(packed(("/tmp/evil", b"x")), id="an absolute path"),
        pytest.param(packed((MEMBER, b"x"), ("../evil", b"x")), id="one more that leaves"),
        pytest.param(packed((MEMBER, b"x"), (MEMBER, b"y")), id="the name twice"),
        pytest.param(packed((f"a/{MEMBER}", b"x")), id="in a folder"),
        pytest.param(packed(), id="nothing"),
        pytest.param(linked(), id="a link"),
        pytest.param(b"not a zip", id="no zip"),
        pytest.param(packed((MEMBER, b"x" * 1000))[:-30], id="truncated"),
        pytest.param(flipped(packed((MEMBER, b"x" * 1000))), id="damaged"),
    ],
)
def test_anything_else_is_refused_and_nothing_is_written_elsewhere(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(EvidenceError) as error:
        taken(tmp_path, data)
    assert error.value.slug == "artifact-refused"
    assert {p.name for p in tmp_path.rglob("*")} <= {"in", "a.zip", "out"}


def test_an_artifact_that_unfolds_beyond_the_limit_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_BYTES", 1 << 20)
    with pytest.raises(EvidenceError, match="unfolds to more"):
        taken(tmp_path, packed((MEMBER, bytes(2 << 20))))


def collected(server: FakeGitHub, github: GitHub, tmp_path: Path) -> dict[str, bytes]:
    server.add_pull(12, HEAD, BASE)
    found = collect_bundles(github, github.pull_request(12), HEAD, tmp_path)
    return {path.name: path.read_bytes() for path in found}


def test_the_newest_bundle_of_each_kind_is_collected(
    server: FakeGitHub, github: GitHub, tmp_path: Path
) -> None:
    server.add_artifact(artifact_name("cpu", HEAD), packed((MEMBER, b"old")), HEAD)
    server.add_artifact(artifact_name("cpu", HEAD), packed((MEMBER, b"new")), HEAD)
    server.add_artifact(artifact_name("gpu", HEAD), packed((MEMBER, b"gpu")), "c" * 40, head_branch="main")
    assert collected(server, github, tmp_path) == {"cpu.tar.gz": b"new", "gpu.tar.gz": b"gpu"}


@pytest.mark.parametrize(
    "run",
    [
        pytest.param({"head_sha": "c" * 40}, id="a run of another head"),
        pytest.param(
            dict.fromkeys(("head_sha", "repository_id", "head_repository_id")), id="a run of nothing"
        ),
        pytest.param(
            {"head_sha": "c" * 40, "head_branch": "main", "head_repository_id": repository_id(FORK)},
            id="the default branch of a fork",
        ),
    ],
)
def test_an_artifact_that_another_change_uploaded_under_the_name_does_not_count(
    server: FakeGitHub, github: GitHub, tmp_path: Path, run: dict[str, object]
) -> None:
    server.add_artifact(artifact_name("cpu", HEAD), packed((MEMBER, b"forged")), HEAD, **run)
    assert collected(server, github, tmp_path) == {}


def test_an_expired_artifact_does_not_count(server: FakeGitHub, github: GitHub, tmp_path: Path) -> None:
    server.add_artifact(artifact_name("cpu", HEAD), packed((MEMBER, b"old")), HEAD)
    server.artifacts[0]["expired"] = True
    assert collected(server, github, tmp_path) == {}
