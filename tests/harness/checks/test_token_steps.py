"""Laws of the join from tokens to engine steps."""

from __future__ import annotations

import pytest

from harness.checks.joins.token_steps import client_items, client_of, count_token_steps, index_token_steps
from harness.model.ledger import belongs_to, count_served
from harness.model.words import Arm, Tier
from tests.harness.checks.evidence_builder import MANIFEST, World, build_evidence, small_evidence

KNOWN = dict.fromkeys(("greedy-1r", "greedy-1r-2r", "greedy-11r"))


@pytest.mark.parametrize(
    ("engine_id", "client"),
    [
        ("cmpl-greedy-1r-0-9f3c", "greedy-1r"),
        ("chatcmpl-greedy-1r", "greedy-1r"),
        ("greedy-11r", "greedy-11r"),
        ("cmpl-greedy-1r-2r-0", "greedy-1r-2r"),
        ("3_cmpl-greedy-1r-0-9f3c", "greedy-1r"),
        ("0_chatcmpl-greedy-1r-9f3c", "greedy-1r"),
        ("3_greedy-1r", None),
        ("cmpl-greedy-2r-0", None),
        ("cmpl-xgreedy-1r-0", None),
        ("", None),
    ],
)
def test_an_engines_id_leads_to_the_longest_client_id_that_it_stems_from(
    engine_id: str, client: str | None
) -> None:
    assert client_of(engine_id, KNOWN) == client
    assert client is None or belongs_to(engine_id, client)


def test_every_answered_token_has_its_step() -> None:
    evidence = small_evidence()
    items = [item for _, item in client_items(evidence, Arm.CANDIDATE, Tier.CPU)]
    ledger = evidence.ledger(Arm.CANDIDATE, Tier.CPU)
    assert ledger is not None
    steps = index_token_steps(ledger, MANIFEST, (item.request_id for item in items))
    assert [len(steps[i.request_id]) for i in items] == [len(i.token_ids) for i in items]


def test_counting_by_token_and_counting_by_step_agree() -> None:
    evidence = build_evidence(
        World(
            num_greedy=8,
            num_forced=4,
            num_sampling=1,
            falls_back=lambda suite, b: b == 3 or suite == "sampling",
        )
    )
    items = [item for _, item in client_items(evidence, Arm.CANDIDATE, Tier.CPU)]
    ledger = evidence.ledger(Arm.CANDIDATE, Tier.CPU)
    assert ledger is not None
    steps = index_token_steps(ledger, MANIFEST, (item.request_id for item in items))
    by_step = count_served(ledger.rows, MANIFEST.dispatch.targets)
    assert count_token_steps(steps, items) == by_step and 0 < by_step.baseline < by_step.specialized
