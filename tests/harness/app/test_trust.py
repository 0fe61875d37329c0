"""When evidence made twice is replicated: two known holders, two runs, and something that both decided alike."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from bundles.keys import PrivateKey, make_private_key
from bundles.merge import list_choices
from bundles.reader import read_bundle
from harness.app.run_marks import marks_of
from harness.app.trust import Part, TierTrust, rule_trust, say_trust
from harness.model.evidence import AnyEvidence, ArmEvidence, SubjectEvidence, SuiteEvidence, TimingEvidence
from harness.model.judgement import CheckSummary
from harness.model.policy import TrustedKey, TrustPolicy
from harness.model.words import Arm, Outcome, Principle, Tier, TrustLevel
from tests.bundles.examples import (
    CHANGE,
    arm,
    changed_files,
    environment,
    plain_report,
    suite,
    timing,
    write_bundle,
)

KEYS = (make_private_key(), make_private_key())
LATER = "2026-11-02T10:00:59Z"
Edit = Callable[[AnyEvidence], AnyEvidence]


def policy_of(*names: str) -> TrustPolicy:
    keys = tuple(
        TrustedKey(name=name, public_key=key.public.line, level="maintainer")
        for name, key in zip(names, KEYS, strict=True)
    )
    return TrustPolicy(keys=keys)


def run(mark: str) -> list[AnyEvidence]:
    """Evidence of one run on a CPU, whose nonce, request ids and clock readings are its own."""
    offset = float(sum(map(ord, mark)))

    def item_of(record: SuiteEvidence) -> SuiteEvidence:
        items = tuple(i.model_copy(update={"request_id": f"{i.request_id}{mark}"}) for i in record.items)
        return record.model_copy(update={"items": items})

    timed = timing(1, 1.0)
    blocks = []
    for block in timed.blocks:
        (item,) = block.items
        times = tuple(offset + block.position + n / 7 for n in range(5))
        own = {"request_id": f"{item.request_id}{mark}", "token_times_ms": times}
        blocks.append(block.model_copy(update={"items": (item.model_copy(update=own),)}))
    server = arm(Arm.BASELINE)
    assert server.proof is not None
    server = server.model_copy(update={"proof": server.proof.model_copy(update={"nonce": mark})})
    return [server, item_of(suite(Arm.BASELINE)), timed.model_copy(update={"blocks": tuple(blocks)})]


NO_RUN = SubjectEvidence(tier=Tier.CPU, recorded_at=LATER, commit=CHANGE.head, files={"a.py": "0" * 64})
"""Comes out the same whenever it is made."""


def ruled(
    place: Path,
    runs: Sequence[Sequence[AnyEvidence]],
    *,
    outcomes: Sequence[Sequence[Outcome]] = ((Outcome.PASS,), (Outcome.PASS,)),
    names: tuple[str, str] = ("a", "b"),
    signers: Sequence[PrivateKey | None] = KEYS,
) -> TierTrust:
    """What the CPU tier of two bundles is worth when its required checks come out as given."""
    parts = []
    for index, (records, key) in enumerate(zip(runs, signers, strict=True)):
        write_bundle(place / str(index), [environment(), changed_files(), *records], plain_report)
        signed = () if key is None else (key.public,)
        parts.append(Part(name=f"b{index}", bundle=read_bundle(place / str(index)), signers=signed))
    choices = list_choices([part.bundle for part in parts])
    judged = [
        parts[0].bundle.judgement.model_copy(update={"checks": _summaries(outcomes[choice[Tier.CPU]])})
        for choice in choices
    ]
    (cpu,) = (t for t in rule_trust(parts, choices, judged, policy_of(*names)) if t.tier is Tier.CPU)
    return cpu


def _summaries(outcomes: Sequence[Outcome]) -> tuple[CheckSummary, ...]:
    return tuple(
        CheckSummary(
            check=f"COR{number:03}",
            title="t",
            principle=Principle.CORRECTNESS,
            tier=Tier.CPU,
            required=True,
            outcome=outcome,
            num_findings=1,
        )
        for number, outcome in enumerate(outcomes)
    )


def test_two_runs_of_two_known_holders_that_come_out_alike_are_replicated(tmp_path: Path) -> None:
    assert ruled(tmp_path, [run("one"), run("two")]).reached is TrustLevel.REPLICATED


@pytest.mark.parametrize(
    ("names", "signers"),
    [(("a", "a"), KEYS), (("a", "b"), (KEYS[0], KEYS[0])), (("a", "b"), (KEYS[0], None))],
    ids=["two keys of one holder", "one key", "one unsigned"],
)
def test_what_two_known_holders_did_not_both_sign_is_not_replicated(
    tmp_path: Path, names: tuple[str, str], signers: Sequence[PrivateKey | None]
) -> None:
    reached = ruled(tmp_path, [run("one"), run("two")], names=names, signers=signers).reached
    assert reached is not TrustLevel.REPLICATED


def dated(record: AnyEvidence) -> AnyEvidence:
    return record.model_copy(update={"recorded_at": LATER, "command": ("mine",)})


def renamed(record: AnyEvidence) -> AnyEvidence:
    """Other names for the same clock readings."""
    match record:
        case TimingEvidence():
            blocks = tuple(
                b.model_copy(
                    update={"items": tuple(i.model_copy(update={"request_id": "mine"}) for i in b.items)}
                )
                for b in record.blocks
            )
            return dated(record.model_copy(update={"cell": "mine", "blocks": blocks}))
        case SuiteEvidence():
            items = tuple(i.model_copy(update={"request_id": f"mine{i.item}"}) for i in record.items)
            return dated(record.model_copy(update={"items": items}))
        case ArmEvidence():
            assert record.proof is not None
            return dated(record.model_copy(update={"proof": record.proof.model_copy(update={"nonce": "m"})}))
        case _:
            return record


@pytest.mark.parametrize("edit", [dated, renamed])
def test_one_run_under_other_names_and_times_is_no_second_run(tmp_path: Path, edit: Edit) -> None:
    once = run("one")
    assert ruled(tmp_path, [once, [edit(r) for r in once]]).reached is TrustLevel.MAINTAINER


def test_a_record_that_both_hold_was_not_collected_twice(tmp_path: Path) -> None:
    reached = ruled(tmp_path, [[*run("one"), NO_RUN], [*run("two"), NO_RUN]]).reached
    assert reached is TrustLevel.MAINTAINER


def test_evidence_that_shows_no_run_shows_no_second_one(tmp_path: Path) -> None:
    assert ruled(tmp_path, [[NO_RUN], [dated(NO_RUN)]]).reached is TrustLevel.MAINTAINER


@pytest.mark.parametrize(
    "outcomes", [(), (Outcome.NOT_RUN,), (Outcome.INCONCLUSIVE,), (Outcome.NOT_APPLICABLE,)]
)
def test_where_no_required_check_decided_nothing_agrees(
    tmp_path: Path, outcomes: tuple[Outcome, ...]
) -> None:
    tier = ruled(tmp_path, [run("one"), run("two")], outcomes=(outcomes, outcomes))
    assert (tier.agree, tier.reached) == (None, TrustLevel.MAINTAINER)
    assert "no required check decided" in say_trust(tier)


def test_replicates_of_which_one_decided_otherwise_disagree(tmp_path: Path) -> None:
    tier = ruled(tmp_path, [run("one"), run("two")], outcomes=((Outcome.PASS,), (Outcome.NOT_RUN,)))
    assert (tier.agree, tier.reached) == (False, TrustLevel.MAINTAINER)


def test_every_kind_of_mark_of_a_run_is_another_in_the_next_run() -> None:
    marks = [dict(marks_of(run(name))) for name in ("one", "two")]
    assert set(marks[0]) == {"nonce", "request id", "arrival times"}
    assert not marks[0].items() & marks[1].items()
