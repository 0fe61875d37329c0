"""What a contributor hands over is whole, of the head, and small enough to be attached."""

from __future__ import annotations

import hashlib
import shutil
import sys
from pathlib import Path

import pytest

from bundles.error import BundleError
from bundles.reader import read_bundle
from harness.app.selftest.resealing import reseal
from harness.app.submit import submit
from harness.github.command import submit as submit_command
from harness.github.options import SubmitOptions
from harness.model.errors import ConfigurationError
from tests.harness.github.server import REPOSITORY, FakeGitHub
from tests.harness.github.subject import Subject, make_subject


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Subject, str, Path]:
    """A head, and the folder of its bundle."""
    folder = tmp_path_factory.mktemp("submit")
    subject = make_subject(folder / "repo")
    head = subject.change()
    subject.bundle(head, folder / "bundle")
    return subject, head, folder / "bundle"


@pytest.fixture
def bundle(made: tuple[Subject, str, Path], tmp_path: Path) -> Path:
    return Path(shutil.copytree(made[2], tmp_path / "bundle"))


def asked(bundle: Path, server: FakeGitHub | None = None) -> SubmitOptions:
    if server is None:
        return SubmitOptions(bundle=bundle, repository="", pull_request=None)
    return SubmitOptions(bundle=bundle, repository=REPOSITORY, pull_request=12, api_url=server.url, token="t")


def test_a_folder_is_packed_and_named_with_its_digest(bundle: Path) -> None:
    text = submit(asked(bundle)).text
    archive = bundle.with_name("bundle.tar.gz")
    assert str(archive) in text and hashlib.sha256(archive.read_bytes()).hexdigest() in text


def test_an_archive_is_taken_as_it_is(bundle: Path) -> None:
    submit(asked(bundle))
    archive = bundle.with_name("bundle.tar.gz")
    before = archive.read_bytes()
    assert str(archive) in submit(asked(archive)).text and archive.read_bytes() == before


def test_an_altered_bundle_is_not_handed_over(bundle: Path) -> None:
    (bundle / "policy.toml").write_text("schema_version = 1\n")
    with pytest.raises(BundleError) as error:
        submit(asked(bundle))
    assert error.value.slug == "bundle-not-intact" and not bundle.with_name("bundle.tar.gz").exists()


def test_a_bundle_of_an_earlier_head_is_not_handed_over(
    made: tuple[Subject, str, Path], bundle: Path, server: FakeGitHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.harness.github.server.TOKEN", "t")
    server.add_pull(12, made[1], made[0].base)
    assert made[1] in submit(asked(bundle, server)).text
    server.pulls[12]["head"]["sha"] = "c" * 40
    with pytest.raises(ConfigurationError, match="cccccccccccc"):
        submit(asked(bundle, server))


def test_a_pull_request_without_its_repository_is_not_taken_for_looked_up(bundle: Path) -> None:
    with pytest.raises(ConfigurationError) as error:
        submit(SubmitOptions(bundle=bundle, repository="", pull_request=1))
    assert error.value.slug == "no-repository"


def test_the_repository_of_a_job_is_where_the_pull_request_is_looked_up(
    bundle: Path, server: FakeGitHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.add_pull(12, "c" * 40, "d" * 40)
    monkeypatch.setattr("tests.harness.github.server.TOKEN", "t")
    for name, value in {
        "GITHUB_REPOSITORY": REPOSITORY,
        "GITHUB_API_URL": server.url,
        "GITHUB_TOKEN": "t",
    }.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ConfigurationError, match="cccccccccccc"):
        submit_command.main([str(bundle), "--pull-request", "12"], standalone_mode=False)


@pytest.mark.parametrize("reason", ["--paths", "rejects the change"])
def test_what_the_gate_will_refuse_is_said_before_it_is_attached(bundle: Path, reason: str) -> None:
    if reason == "--paths":
        reseal(bundle, change=lambda change: change.model_copy(update={"limited_to": ("fast/**",)}))
    else:
        policy = read_bundle(bundle).policy_text.replace("protected = [", 'protected = ["fast/**", ')
        reseal(bundle, policy=lambda _: policy)
    first, *_ = submit(asked(bundle)).text.splitlines()
    assert reason in first


def test_what_github_does_not_take_is_said_before_it_is_tried(
    bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules[submit.__module__], "MAX_ATTACHMENT_BYTES", 100)
    with pytest.raises(ConfigurationError, match="takes attachments of 100"):
        submit(asked(bundle))
