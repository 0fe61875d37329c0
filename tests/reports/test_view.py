"""Laws of the first screen: what is open is asked for, what was not run is said, numbers come worst first."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from bundles.reader import read_bundle
from harness.model.evidence import EnvironmentEvidence, EvidenceRecord
from harness.model.finding import Measurement
from harness.model.manifest import SliceModel
from harness.model.words import Outcome, Tier
from reports.findings import DETAIL_CHARACTERS, FEWEST_CHARACTERS
from reports.headline import view_headline
from reports.record_facts import FACTS
from reports.shown import plain
from reports.view import ReportView, build_view
from tests.bundles.examples import (
    CHECK_HELP,
    environment,
    evidence_to_admit,
    plain_report,
    timing,
    write_bundle,
)
from tests.reports.flood import flooded
from tests.reports.pages import NAMES


def view_of(folder: Path) -> ReportView:
    return build_view(read_bundle(folder), CHECK_HELP)


def limits_of(view: ReportView) -> dict[str, str]:
    return {plain(limit.title): plain(limit.reason) for limit in view.limits}


@pytest.mark.parametrize("name", NAMES)
def test_every_required_check_that_is_open_is_asked_for_once(examples: dict[str, Path], name: str) -> None:
    view = view_of(examples[name])
    asked = [check.text for ask in view.asks for check in ask.checks]
    wanted = [c.id.text for c in view.checks if c.required and not c.outcome.lets_through]
    assert sorted(asked) == sorted(wanted)


def test_nothing_is_asked_for_only_when_the_change_is_admitted(examples: dict[str, Path]) -> None:
    assert {name for name in NAMES if not view_of(examples[name]).asks} == {"admit"}


def test_checks_that_are_open_for_one_reason_are_asked_for_together(examples: dict[str, Path]) -> None:
    first, *_ = view_of(examples["error"]).asks
    assert first.outcome is Outcome.ERROR
    assert len(first.checks) == 10


def test_a_check_that_said_nothing_is_asked_for_without_words_put_into_its_mouth(
    examples: dict[str, Path],
) -> None:
    (ask,) = view_of(examples["silent"]).asks
    assert (ask.outcome, ask.message, ask.advice) == (Outcome.ERROR, None, None)


def test_a_sentence_that_would_name_too_many_checks_counts_them_by_tier(examples: dict[str, Path]) -> None:
    view = view_of(examples["undecided"])
    card = next(c for c in view.checks if c.outcome is Outcome.NOT_RUN and c.tier is Tier.GPU)
    many = [replace(card, required=True, tier=tier) for tier in (Tier.CPU, Tier.GPU) for _ in range(8)]
    assert plain(view_headline(("x",), many)) == "Of 16 required checks, 16 not run (cpu tier 8, gpu tier 8)."
    assert view_headline(("x",), many[:12]) == ("x",)


def test_a_tier_that_was_not_run_is_named_with_its_reason(examples: dict[str, Path]) -> None:
    limits = limits_of(view_of(examples["undecided"]))
    assert limits["gpu tier not run (PERF002)"] == "This machine has no CUDA device."
    assert "No check at the tiers node, cluster" in limits


def test_a_tier_in_which_everything_broke_is_not_said_to_have_run(examples: dict[str, Path]) -> None:
    titles = " ".join(limits_of(view_of(examples["error"])))
    assert "cpu tier decided nothing (ISO002, SCO001, SCO002, SCO003 and 6 more)" in titles


def test_a_miniature_is_never_shown_as_the_full_model(examples: dict[str, Path]) -> None:
    for name in ("admit", "undecided", "reject"):
        assert "miniature" in limits_of(view_of(examples[name]))["The full model"]


def test_what_no_number_is_about_is_said_to_be_missing(examples: dict[str, Path]) -> None:
    assert "Throughput under load and time to first token" in limits_of(view_of(examples["admit"]))
    bundle = read_bundle(examples["admit"])
    measured = Measurement(name="output throughput, batch 8", unit="tokens/s", estimate=1.0, n=1)
    findings = tuple(f.model_copy(update={"measurements": (measured,)}) for f in bundle.judgement.findings)
    judgement = bundle.judgement.model_copy(update={"findings": findings})
    assert "Time to first token" in limits_of(build_view(replace(bundle, judgement=judgement), {}))


def test_only_the_hardware_that_was_measured_on_is_claimed(examples: dict[str, Path]) -> None:
    limits = limits_of(view_of(examples["admit"]))
    assert "No GPU took part" in limits["Hardware other than AMD EPYC 9B45, 2 cores"]
    assert "No hardware is named" in limits_of(view_of(examples["silent"]))


def test_a_machine_with_a_gpu_is_not_said_to_have_none(tmp_path: Path) -> None:
    with_gpu = EnvironmentEvidence.model_validate(environment().model_dump() | {"gpus": ("NVIDIA H200",)})
    write_bundle(tmp_path / "b", (*evidence_to_admit(), with_gpu), plain_report)
    assert "No GPU took part" not in str(limits_of(view_of(tmp_path / "b")))


def test_files_that_were_not_judged_are_counted(examples: dict[str, Path]) -> None:
    limits = limits_of(view_of(examples["undecided"]))
    assert "specialized_path/**" in limits["141 changed files outside what was judged"]
    assert "2 uncommitted files" in limits


def test_an_arm_that_did_not_start_is_among_what_is_not_shown(examples: dict[str, Path]) -> None:
    limits = limits_of(view_of(examples["error"]))
    assert "exit code 1" in limits["arm candidate (cpu tier) broke"]


def test_advisory_checks_without_a_pass_are_counted(tmp_path: Path) -> None:
    policy = 'schema_version = 1\nversion = "x"\n[required]\nstatic = ["ISO001"]\n'
    write_bundle(tmp_path / "b", evidence_to_admit(), plain_report, policy)
    view = view_of(tmp_path / "b")
    assert not view.asks
    assert "PERF002" in limits_of(view)["1 advisory checks without a pass"]


def test_the_worst_number_comes_first_and_failures_of_all_checks_come_before_passes(
    examples: dict[str, Path],
) -> None:
    outcomes = [row.outcome for row in view_of(examples["reject"]).claims]
    assert outcomes == [Outcome.FAIL, Outcome.FAIL, Outcome.PASS, Outcome.PASS]


def test_a_check_with_many_numbers_does_not_push_the_others_off_the_first_screen(tmp_path: Path) -> None:
    many = [timing(batch, 1.4) for batch in range(2, 12)]
    write_bundle(tmp_path / "b", (*evidence_to_admit(), *many), plain_report)
    first = [row.check.text for row in view_of(tmp_path / "b").claims[:4]]
    assert first == ["PERF001", "COR001", "COR002", "PERF001"]


def test_a_claim_without_a_number_is_shown_to_have_none(examples: dict[str, Path]) -> None:
    (group,) = view_of(examples["undecided"]).unmeasured
    assert (group.outcome, [c.text for c in group.checks]) == (Outcome.NOT_RUN, ["PERF002"])


def test_the_map_has_a_column_for_every_tier_with_a_check(examples: dict[str, Path]) -> None:
    view = view_of(examples["undecided"])
    assert [cell.tier for cell in view.grid[0].cells] == [Tier.STATIC, Tier.CPU, Tier.GPU]


def test_let_through_counts_required_checks_only(examples: dict[str, Path]) -> None:
    header = view_of(examples["reject"]).header
    assert (len(header.let_through.refs), len(header.required.refs)) == (8, 12)


def test_every_check_keeps_all_of_its_findings(examples: dict[str, Path]) -> None:
    for name in NAMES:
        bundle = read_bundle(examples[name])
        shown = sum(len(card.findings) for card in build_view(bundle, {}).checks)
        assert shown == len(bundle.judgement.findings)


def test_a_check_without_help_is_shown_with_its_title_alone(examples: dict[str, Path]) -> None:
    cards = build_view(read_bundle(examples["admit"]), {}).checks
    assert {card.how for card in cards} == {""}
    assert all(card.title.text for card in cards)


@pytest.mark.parametrize(("num_findings", "room"), [(1, DETAIL_CHARACTERS), (1000, FEWEST_CHARACTERS)])
def test_findings_share_the_room_for_details_and_say_how_many_there_are(
    examples: dict[str, Path], num_findings: int, room: int
) -> None:
    bundle = flooded(read_bundle(examples["undecided"]), num_findings, text="It broke. " * 9, num_details=500)
    finding = build_view(bundle, {}).checks[0].open[-1]
    assert room / 2 < sum(len(line.text) for line in finding.details) <= room
    assert finding.num_details.text == "500"


def test_every_kind_of_record_says_what_it_is() -> None:
    kinds = EvidenceRecord.__subclasses__()
    assert set(FACTS) == set(kinds)
    assert all(key in kind.model_fields for kind, keys in FACTS.items() for key in keys)


def test_the_command_of_each_record_can_be_copied(examples: dict[str, Path]) -> None:
    commands = [e.command.text for e in view_of(examples["admit"]).evidence if e.command]
    assert "fasttrack reproduce greedy --arm candidate" in commands


def test_excerpts_shrink_so_that_many_records_do_not_make_a_large_page(examples: dict[str, Path]) -> None:
    bundle = read_bundle(examples["admit"])
    lengths = [
        len(e.excerpt.text) for e in build_view(replace(bundle, evidence=bundle.evidence * 200), {}).evidence
    ]
    assert sum(lengths) <= 300_000
    assert min(lengths) > 100


def test_the_hardware_of_every_declared_deployment_is_named_once(examples: dict[str, Path]) -> None:
    bundle = read_bundle(examples["undecided"])
    here = bundle.manifest
    slice_ = SliceModel(
        config="config.json",
        max_model_len=1024,
        scope=here.scope.model_copy(update={"platforms": ("cpu", "sm_90a")}),
        dispatch=here.dispatch,
    )
    models = here.models.model_copy(update={"slice": slice_})
    both = replace(bundle, manifest=here.model_copy(update={"models": models}))
    said = " ".join(limits_of(build_view(both, CHECK_HELP)).values())
    assert "the change declares cpu, sm_90a. " in said
