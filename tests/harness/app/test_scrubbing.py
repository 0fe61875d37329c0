"""A run on somebody's own machine leaves nothing of that person or machine in its bundle, log tails included."""

from __future__ import annotations

import socket
from dataclasses import replace
from html import escape
from pathlib import Path

import pytest

from bundles.files import list_files
from bundles.reader import read_bundle
from bundles.writer import seal
from harness.app.judging import decide, render_report
from harness.app.recorder import Progress
from harness.app.validate import open_recorder, read_question, scrubber_for
from harness.model.errors import ConfigurationError, EngineError
from harness.model.evidence import GapEvidence
from harness.model.words import Tier
from tests.harness.app.conftest import copy_subject, git, validate_options

SECRET = "correct-horse-battery"
LEAKS = ("zaphod", "magrathea", SECRET, "10.11.12.13", "glpat-", "ford@example.org")
LOG = f"""\
File "/people/zaphod/venv/lib/x.py", line 3, on magrathea
POST http://10.11.12.13:8000 Authorization: Bearer {SECRET}
remote: glpat-{"a1" * 10} of ford@example.org"""


def test_no_file_of_a_sealed_bundle_names_the_machine_or_its_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repo = copy_subject(tmp_path / "repo")
    git(
        repo, "commit", "--quiet", "--allow-empty", "--message", "As zaphod@magrathea would: ford@example.org"
    )
    for name, value in (("USER", "zaphod"), ("HOME", "/people/zaphod"), ("HF_TOKEN", SECRET)):
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(socket, "gethostname", lambda: "magrathea.example.net")
    options = validate_options(repo, tmp_path / "bundle", tier=Tier.STATIC)
    question = read_question(options.change)
    question = replace(question, change=question.published.record(question.change))
    scrubber = scrubber_for(question)
    recorder = open_recorder(question, options, Progress(quiet=True), scrubber)
    recorder.broken(Tier.CPU, "tier cpu", EngineError("engine-died", "zaphod's engine died", log_tail=LOG))
    seal(
        options.out,
        manifest_text=question.manifest_text,
        policy_text=question.policy_text,
        judgement=decide(question.manifest_text, question.policy_text, question.change, recorder.records),
        render_report=render_report,
        scrubber=scrubber,
    )
    written = {path: file.read_text("utf-8") for path, file in list_files(options.out).items()}
    public = question.change.head_subject
    assert public == "As zaphod@magrathea would: <email>"
    assert not [
        (path, leak)
        for path, text in written.items()
        for leak in LEAKS
        if leak in text.replace(public, "").replace(escape(public), "")
    ]
    (gap,) = [r for r in read_bundle(options.out).records if isinstance(r, GapEvidence)]
    assert gap.details == (
        'File "<home>/venv/lib/x.py", line 3, on <host>',
        "POST http://<ip>:8000 Authorization: Bearer <HF_TOKEN>",
        "remote: <secret> of <email>",
    )


def test_a_secret_of_the_machine_in_the_heads_message_is_refused_before_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repo = copy_subject(tmp_path / "repo")
    git(repo, "commit", "--quiet", "--allow-empty", "--message", f"Try {SECRET}")
    monkeypatch.setenv("HF_TOKEN", SECRET)
    with pytest.raises(ConfigurationError) as caught:
        scrubber_for(read_question(validate_options(repo, tmp_path / "bundle", tier=Tier.STATIC).change))
    assert caught.value.slug == "change-names-secret"
