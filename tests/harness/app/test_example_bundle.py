"""The recorded bundle in examples/: its evidence holds, is judged again, and is no evidence for any later commit."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bundles.archive import unpack
from bundles.contents import Bundle
from bundles.error import BundleError
from bundles.files import list_files
from bundles.reader import read_bundle
from bundles.verify import JUDGED_BY_OTHERS, MADE_ANEW, verify_bundle
from harness.app.bundles import merge, show
from harness.app.judging import decide, render_report
from harness.facts.packages import digest_of_judge
from harness.model.errors import ConfigurationError
from harness.model.evidence import LedgerEvidence, SourceEvidence, SuiteEvidence
from harness.model.words import Arm, ExitCode, Tier
from harness.options import CombineOptions, OutputOptions, VerifyOptions
from tests.harness.app.conftest import ROOT, gate_once_the_sources_moved_on

EXAMPLE = ROOT / "examples" / "bundles" / "kimi-k3-cpu-smoke.tar.gz"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bundle as it was recorded."""
    place = tmp_path_factory.mktemp("recorded")
    unpack(EXAMPLE, place)
    return place


@pytest.fixture(scope="module")
def recorded(folder: Path) -> Bundle:
    return read_bundle(folder)


@pytest.fixture(scope="module")
def judged_again(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its evidence, judged by the sources that are here."""
    out = tmp_path_factory.mktemp("again") / "b"
    merge(CombineOptions(bundles=(EXAMPLE,), out=out, output=OutputOptions(quiet=True)))
    return out


def test_it_is_small() -> None:
    assert EXAMPLE.stat().st_size < 1 << 20


def test_it_holds_answers_and_ledgers_of_three_engines(recorded: Bundle) -> None:
    answered = {r.arm for r in recorded.records if isinstance(r, SuiteEvidence)}
    traced = {r.arm for r in recorded.records if isinstance(r, LedgerEvidence)}
    assert answered == traced == set(Arm)


def test_nothing_of_it_was_altered_and_at_most_the_judge_has_changed_since(folder: Path) -> None:
    result = verify_bundle(folder, decide, render_report, judge_sha256=digest_of_judge())
    slugs = {difference.slug for difference in result.differences}
    assert slugs <= {JUDGED_BY_OTHERS, *MADE_ANEW}


def test_judged_again_it_is_intact_and_its_evidence_is_the_same(judged_again: Path, recorded: Bundle) -> None:
    assert verify_bundle(judged_again, decide, render_report).intact
    again = [r for r in read_bundle(judged_again).records if not isinstance(r, SourceEvidence)]
    assert [r.model_copy() for r in again] == [r.model_copy() for r in recorded.records]


def test_of_a_merged_bundle_is_shown_what_came_from_where(judged_again: Path, recorded: Bundle) -> None:
    shown = show(VerifyOptions(bundle=judged_again, output=OutputOptions(format="json")))
    (part,) = json.loads(shown.text)["parts"]
    assert part == {
        "content_sha256": recorded.content_sha256,
        "claimed_signers": [],
        "tiers": ["cpu", "static"],
        "hardware": ["AMD EPYC, 2 cores"],
        "num_records": len(recorded.records),
    }


def test_the_gate_calls_it_stale_once_the_subjects_sources_have_moved_on(
    judged_again: Path, tmp_path: Path
) -> None:
    result = gate_once_the_sources_moved_on(judged_again, tmp_path / "repo")
    assert result.exit_code is ExitCode.HARNESS
    assert "it is stale" in result.text and "other sources of the subject than the head's" in result.text


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_whatever_is_done_to_any_of_its_files_is_found(folder: Path, data: st.DataObject) -> None:
    files = list_files(folder)
    path = data.draw(st.sampled_from(sorted(files)))
    file, content = files[path], files[path].read_bytes()
    at = data.draw(st.integers(0, len(content) - 1))
    new = data.draw(
        st.sampled_from(
            [
                content[:at] + bytes([content[at] ^ (1 << at % 8)]) + content[at + 1 :],
                content[:at] + b" " + content[at:],
                content[:at] + content[at + 1 :],
                content[:at],
                files[data.draw(st.sampled_from(sorted(set(files) - {path})))].read_bytes(),
            ]
        )
    )
    try:
        file.write_bytes(new)
        with pytest.raises(BundleError):
            read_bundle(folder)
    finally:
        file.write_bytes(content)


def test_a_tier_that_two_bundles_have_is_not_merged_silently(
    judged_again: Path, tmp_path: Path, recorded: Bundle
) -> None:
    assert {record.tier for record in recorded.records} >= {Tier.STATIC, Tier.CPU}
    copy = tmp_path / "copy"
    shutil.copytree(judged_again, copy)
    options = CombineOptions(bundles=(judged_again, copy), out=tmp_path / "out", output=OutputOptions())
    with pytest.raises(ConfigurationError, match="More than one bundle has tier cpu"):
        merge(options)
