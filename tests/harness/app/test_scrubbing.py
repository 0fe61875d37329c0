"""A run on somebody's own machine leaves nothing of that person or machine in its bundle, log tails included."""

from __future__ import annotations

import socket
from dataclasses import replace
from pathlib import Path

import pytest

from bundles.files import list_files
from bundles.machine_names import this_machine
from bundles.reader import read_bundle
from bundles.writer import seal
from harness.app.judging import decide, render_report
from harness.app.recorder import Progress
from harness.app.validate import open_recorder, read_question
from harness.model.errors import EngineError
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
    scrubber = this_machine(public=question.public_text)
    question = replace(question, change=scrubber.record(question.change))
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
    assert not [(path, leak) for path, text in written.items() for leak in LEAKS if leak in text]
    (gap,) = [r for r in read_bundle(options.out).records if isinstance(r, GapEvidence)]
    assert gap.details == (
        'File "<home>/venv/lib/x.py", line 3, on <host>',
        "POST http://<ip>:8000 Authorization: Bearer <HF_TOKEN>",
        "remote: <secret> of <email>",
    )
