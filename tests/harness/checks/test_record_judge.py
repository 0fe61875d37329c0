"""Laws of checks that judge one record: it is the latest of its kind."""

from collections.abc import Iterator

from harness.checks.isolation.iso006_surface import Surface
from harness.checks.isolation.record_judge import RecordJudge, judge_latest
from harness.model.change import Change
from harness.model.check import CheckContext
from harness.model.evidence import OwnersEvidence, evidence_set
from harness.model.finding import Finding
from harness.model.policy import Policy
from harness.model.words import Outcome, Tier
from tests.harness.checks.evidence_builder import MANIFEST


class _SaysItsRecord(RecordJudge[OwnersEvidence]):
    def findings(self) -> Iterator[Finding]:
        yield self._finding(Outcome.PASS, self._record.path or "", "seen")


def owners(path: str) -> OwnersEvidence:
    return OwnersEvidence(tier=Tier.STATIC, recorded_at="2026-11-29T00:00:00Z", path=path, text="")


def test_the_latest_record_is_judged_and_named() -> None:
    records = [owners("old"), owners("new")]
    change = Change(base="b" * 40, merge_base="b" * 40, head="c" * 40, head_subject="x")
    policy = Policy(schema_version=1, version="made", required={Tier.STATIC: ("ISO006",)})
    context = CheckContext(change=change, manifest=MANIFEST, policy=policy, evidence=evidence_set(records))
    (found,) = judge_latest(
        Surface(), context, OwnersEvidence, _SaysItsRecord, subject="owners", unread="unread"
    )
    assert (found.subject, found.evidence) == ("new", (records[-1].id,))
