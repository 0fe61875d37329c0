"""Laws of the runner: no check can stay silent, break unseen, or speak for another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from harness.config import load_manifest
from harness.model.change import Change
from harness.model.check import BaseCheck, CheckContext
from harness.model.errors import ConfigurationError
from harness.model.evidence import AnyEvidence, EnvironmentEvidence, GapEvidence, evidence_set
from harness.model.finding import Finding
from harness.model.judgement import Judgement
from harness.model.policy import Policy
from harness.model.record import render_canonical_json
from harness.model.words import ExitCode, Outcome, Principle, Tier, Verdict
from harness.runner import judge, order_checks

ROOT = Path(__file__).parents[2]
MANIFEST = load_manifest((ROOT / "fasttrack.toml").read_bytes())
SEEN = EnvironmentEvidence(
    tier=Tier.STATIC,
    recorded_at="2026-11-01T00:00:00Z",
    cpu="c",
    num_cores=1,
    memory_gib=1.0,
    gpus=(),
    os="o",
    python="p",
    packages={},
    harness_sha256="0",
)
Run = Callable[["Stated", CheckContext], Any]


class Stated(BaseCheck):
    """A check that does what a test states."""

    def __init__(
        self,
        name: str,
        run: Run | Outcome = Outcome.PASS,
        requires: Sequence[str] = (),
        tier: Tier = Tier.STATIC,
    ) -> None:
        self.id = name
        self.title = f"Claim of {name}"
        self.how = "As a test states."
        self.principle = Principle.ISOLATION
        self.tier = tier
        self.requires = tuple(requires)
        self._run = run
        self.num_runs = 0

    def run(self, context: CheckContext) -> Sequence[Finding]:
        self.num_runs += 1
        if isinstance(self._run, Outcome):
            return [self.finding(self._run, "s", "m", evidence=[SEEN.id])]
        found: Sequence[Finding] = self._run(self, context)
        return found


def context(
    required: dict[Tier, tuple[str, ...]] | None = None, records: Sequence[AnyEvidence] = ()
) -> CheckContext:
    return CheckContext(
        change=Change(base="a" * 40, merge_base="a" * 40, head="b" * 40, head_subject="x"),
        manifest=MANIFEST,
        policy=Policy(schema_version=1, version="1", required=required or {}),
        evidence=evidence_set([SEEN, *records]),
    )


def decide(
    tmp_path: Path, *checks: Stated, required: Sequence[str] = (), records: Sequence[AnyEvidence] = ()
) -> Judgement:
    for check in checks:
        (tmp_path / f"{check.id}.md").write_text("# page\n")
    tiers = {check.id: check.tier for check in checks}
    by_tier: dict[Tier, tuple[str, ...]] = {}
    for name in required:
        by_tier[tiers[name]] = (*by_tier.get(tiers[name], ()), name)
    return judge(context(by_tier, records), checks, pages=tmp_path, harness_version="0")


def outcomes(judgement: Judgement) -> dict[str, Outcome]:
    return {summary.check: summary.outcome for summary in judgement.checks}


def broken(_check: Stated, _context: CheckContext) -> Sequence[Finding]:
    raise ZeroDivisionError("divided at 0x7f3a12")


def test_a_change_that_every_required_check_lets_through_is_admitted(tmp_path: Path) -> None:
    judgement = decide(
        tmp_path, Stated("AAA001"), Stated("AAA002", Outcome.NOT_APPLICABLE), required=["AAA001", "AAA002"]
    )
    assert judgement.verdict is Verdict.ADMIT


def test_a_failing_check_rejects_only_when_it_is_required(tmp_path: Path) -> None:
    checks = [Stated("AAA001"), Stated("AAA002", Outcome.FAIL)]
    assert decide(tmp_path, *checks, required=["AAA001"]).verdict is Verdict.ADMIT
    assert decide(tmp_path, *checks, required=["AAA001", "AAA002"]).verdict is Verdict.REJECT


def test_an_exception_becomes_an_error_finding_with_its_traceback(tmp_path: Path) -> None:
    judgement = decide(tmp_path, Stated("AAA001", broken), required=["AAA001"])
    (finding,) = judgement.findings
    assert finding.outcome is Outcome.ERROR
    assert "ZeroDivisionError: divided at 0x…" in finding.message
    assert any("in broken" in line for line in finding.details)
    assert judgement.exit_code is ExitCode.HARNESS


def test_a_traceback_names_no_folder(tmp_path: Path) -> None:
    (finding,) = decide(tmp_path, Stated("AAA001", broken)).findings
    assert not any("/" in line for line in finding.details)


def test_a_check_that_exits_the_process_is_an_error(tmp_path: Path) -> None:
    def leave(_check: Stated, _context: CheckContext) -> Sequence[Finding]:
        raise SystemExit(0)

    assert outcomes(decide(tmp_path, Stated("AAA001", leave))) == {"AAA001": Outcome.ERROR}


def test_an_interrupt_is_not_swallowed(tmp_path: Path) -> None:
    def interrupt(_check: Stated, _context: CheckContext) -> Sequence[Finding]:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        decide(tmp_path, Stated("AAA001", interrupt))


@pytest.mark.parametrize("returned", [[], None, "text", [None], [42], ()])
def test_a_check_without_a_finding_is_an_error(tmp_path: Path, returned: object) -> None:
    judgement = decide(tmp_path, Stated("AAA001", lambda _check, _context: returned), required=["AAA001"])
    assert (outcomes(judgement), judgement.verdict) == ({"AAA001": Outcome.ERROR}, Verdict.UNDECIDED)


@pytest.mark.parametrize(
    "change",
    [{"check": "BBB001"}, {"principle": Principle.SCOPE}, {"tier": Tier.GPU}, {"evidence": ("made-up",)}],
)
def test_a_finding_in_anothers_name_or_without_its_evidence_is_an_error(
    tmp_path: Path, change: dict[str, Any]
) -> None:
    def forge(check: Stated, _context: CheckContext) -> Sequence[Finding]:
        return [check.finding(Outcome.PASS, "s", "m", evidence=[SEEN.id]).model_copy(update=change)]

    judgement = decide(tmp_path, Stated("AAA001", forge), required=["AAA001"])
    assert [finding.check for finding in judgement.findings] == ["AAA001"]
    assert outcomes(judgement) == {"AAA001": Outcome.ERROR}


def test_a_forged_finding_does_not_take_a_real_one_along(tmp_path: Path) -> None:
    def mixed(check: Stated, _context: CheckContext) -> Sequence[Finding]:
        real = check.finding(Outcome.FAIL, "s", "m", evidence=[SEEN.id])
        return [real, real.model_copy(update={"check": "BBB001"})]

    judgement = decide(tmp_path, Stated("AAA001", mixed))
    assert [finding.outcome for finding in judgement.findings] == [Outcome.FAIL, Outcome.ERROR]


@pytest.mark.parametrize("outcome", [o for o in Outcome if not o.lets_through])
def test_a_check_is_not_run_before_its_prerequisite_holds(tmp_path: Path, outcome: Outcome) -> None:
    later = Stated("AAA001", requires=["ZZZ001"])
    judgement = decide(tmp_path, later, Stated("ZZZ001", outcome))
    assert later.num_runs == 0
    assert outcomes(judgement)["AAA001"] is Outcome.NOT_RUN
    assert f"ZZZ001 ({outcome})" in judgement.findings[-1].message


def test_a_check_runs_after_the_prerequisite_that_lets_through(tmp_path: Path) -> None:
    judgement = decide(
        tmp_path, Stated("AAA001", requires=["ZZZ001"]), Stated("ZZZ001", Outcome.NOT_APPLICABLE)
    )
    assert list(outcomes(judgement).items()) == [("ZZZ001", Outcome.NOT_APPLICABLE), ("AAA001", Outcome.PASS)]


def gap(what: str, *, broke: bool = False) -> GapEvidence:
    return GapEvidence(
        tier=Tier.GPU, recorded_at="2026-11-01T00:00:00Z", what=what, broke=broke, reason="no CUDA GPU"
    )


def test_a_check_whose_tier_was_not_run_says_so_without_running(tmp_path: Path) -> None:
    check = Stated("AAA001", tier=Tier.GPU)
    judgement = decide(
        tmp_path, check, Stated("AAA002"), required=["AAA001", "AAA002"], records=[gap("tier gpu")]
    )
    assert check.num_runs == 0
    assert outcomes(judgement) == {"AAA002": Outcome.PASS, "AAA001": Outcome.NOT_RUN}
    assert "no CUDA GPU" in judgement.findings[-1].message
    assert (judgement.verdict, judgement.exit_code) == (Verdict.UNDECIDED, ExitCode.UNDECIDED)


def test_a_tier_that_broke_is_an_error_of_ours(tmp_path: Path) -> None:
    check = Stated("AAA001", tier=Tier.GPU)
    judgement = decide(tmp_path, check, required=["AAA001"], records=[gap("tier gpu", broke=True)])
    assert (outcomes(judgement), judgement.exit_code) == ({"AAA001": Outcome.ERROR}, ExitCode.HARNESS)


def test_a_gap_of_one_suite_leaves_the_tiers_checks_to_decide(tmp_path: Path) -> None:
    check = Stated("AAA001", tier=Tier.GPU)
    decide(tmp_path, check, records=[gap("suite greedy")])
    assert check.num_runs == 1


def test_deciding_twice_gives_the_same_bytes_whatever_the_order_of_the_checks(tmp_path: Path) -> None:
    def bytes_of(*names: str) -> bytes:
        checks = [Stated(name, broken if name == "AAA003" else Outcome.PASS) for name in names]
        return render_canonical_json(decide(tmp_path, *checks, required=["AAA001"]))

    assert bytes_of("AAA001", "AAA002", "AAA003") == bytes_of("AAA003", "AAA001", "AAA002")


def test_a_check_without_its_page_is_refused(tmp_path: Path) -> None:
    checks = [Stated("AAA001"), Stated("AAA002")]
    (tmp_path / "AAA001.md").write_text("# page\n")
    (tmp_path / "AAA002.md").write_text("")
    with pytest.raises(ConfigurationError, match="AAA002"):
        judge(context(), checks, pages=tmp_path, harness_version="0")


@pytest.mark.parametrize("required", [{Tier.STATIC: ("ZZZ001",)}, {Tier.GPU: ("AAA001",)}])
def test_a_required_check_that_nobody_runs_never_vanishes(
    tmp_path: Path, required: dict[Tier, tuple[str, ...]]
) -> None:
    (tmp_path / "AAA001.md").write_text("# page\n")
    with pytest.raises(ConfigurationError, match="The policy requires"):
        judge(context(required), [Stated("AAA001")], pages=tmp_path, harness_version="0")


@pytest.mark.parametrize(
    ("checks", "slug"),
    [
        ([Stated("AAA001"), Stated("AAA001")], "check-twice"),
        ([Stated("AAA001", requires=["ZZZ001"])], "unknown-check"),
        ([Stated("AAA001", requires=["AAA002"]), Stated("AAA002", requires=["AAA001"])], "check-circle"),
        ([Stated("AAA001", requires=["AAA001"])], "check-circle"),
    ],
)
def test_checks_that_do_not_fit_together_are_refused(checks: list[Stated], slug: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        order_checks(checks)
    assert caught.value.slug == slug


def test_a_check_sees_the_manifest_as_its_tier_takes_it(tmp_path: Path) -> None:
    seen: dict[Tier, int] = {}

    def note(check: Stated, context: CheckContext) -> list[Finding]:
        seen[check.tier] = context.manifest.scope.max_batch
        return [check.finding(Outcome.PASS, "s", "m")]

    decide(tmp_path, Stated("AAA001", note, tier=Tier.CPU), Stated("AAA002", note, tier=Tier.GPU))
    assert MANIFEST.models.slice is not None
    assert seen == {Tier.CPU: MANIFEST.scope.max_batch, Tier.GPU: MANIFEST.models.slice.scope.max_batch}
