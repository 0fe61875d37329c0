"""Laws of the form of an evidence file, read here or in a process beside."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from bundles import stored_form
from bundles.contents import parse_ordered_evidence
from bundles.error import BundleError
from bundles.stored_form import begin_forms, read_form
from tests.bundles.folders import first_evidence

EVIDENCE = "evidence/"


@pytest.fixture
def beside(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process is worth its start for any file, and can be had."""
    monkeypatch.setattr(stored_form, "_WORTH_A_PROCESS", 0)
    monkeypatch.setattr(stored_form, "_can_fork", lambda: True)


def evidence_of(folder: Path) -> dict[str, bytes]:
    return {f"{EVIDENCE}{file.name}": file.read_bytes() for file in (folder / "evidence").iterdir()}


@pytest.mark.usefixtures("beside")
def test_forms_read_in_a_process_beside_are_those_read_here(folder: Path) -> None:
    files = evidence_of(folder)
    assert begin_forms(files)() == {path: read_form(data, path) for path, data in files.items()}


@pytest.mark.usefixtures("beside")
def test_the_process_beside_leaves_out_what_it_cannot_read(folder: Path) -> None:
    files = evidence_of(folder)
    broken = first_evidence(folder, "suite")
    assert set(begin_forms(files | {broken: b"{"})()) == set(files) - {broken}


@pytest.mark.usefixtures("beside")
@pytest.mark.parametrize(
    ("old", "new", "slug"),
    [
        (b'"seed": 7', b'"seed": 8', "evidence-id-mismatch"),
        (b'"seed": 7', b'"seed":  7', "file-not-canonical"),
        (b'"seed": 7', b'"seed": 1e999', "evidence-wrong-type"),
        (b'"seed": 7', b'"seed": "x"', "evidence-wrong-type"),
        (b"{", b"", "evidence-malformed-json"),
    ],
)
def test_an_edit_is_found_whichever_process_reads_the_form(
    folder: Path, old: bytes, new: bytes, slug: str
) -> None:
    files, edited = evidence_of(folder), first_evidence(folder, "suite")
    assert old in files[edited]
    with pytest.raises(BundleError) as caught:
        parse_ordered_evidence(files | {edited: files[edited].replace(old, new, 1)})
    assert caught.value.slug == slug


@pytest.mark.usefixtures("beside")
def test_a_process_that_dies_leaves_the_forms_to_the_reader(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored_form, "_send_forms", lambda _files, _sender: None)
    files = evidence_of(folder)
    assert begin_forms(files)() == {} and len(parse_ordered_evidence(files)) == len(files)


def test_nothing_is_forked_where_the_system_is_not_linux(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.delattr(os, "sched_getaffinity")
    assert not stored_form._can_fork()
