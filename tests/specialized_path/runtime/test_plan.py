"""Which steps go where, without an engine."""

from types import SimpleNamespace

import pytest

from specialized_path.runtime.limits import Limits
from specialized_path.runtime.plan import StepPlan, StepPlanner

LIMITS = Limits(max_num_reqs=8, max_num_drafts=3, max_context_len=1000)


def kda(*, prefills=0, decodes=0, verifies=0, verify_len=None, tokens=None):
    """Metadata of a KDA layer."""
    if tokens is None:
        tokens = 10 * prefills + decodes + verifies * (verify_len or 3)
    return SimpleNamespace(
        num_prefills=prefills,
        num_decodes=decodes,
        num_spec_decodes=verifies,
        num_actual_tokens=tokens,
        uniform_spec_sequence_length=verify_len,
    )


def planned(first, *, second=None, longest=100, num_rows=None, has_token_ids=True):
    """The plan for a model of two KDA layers and one MLA layer."""
    planner = StepPlanner(kda_layers=("kda.0", "kda.1"), mla_layers=("mla",), limits=LIMITS)
    metadata = {"kda.0": first, "kda.1": second or first, "mla": SimpleNamespace(max_seq_len=longest)}
    return planner.plan(metadata, first.num_actual_tokens if num_rows is None else num_rows, has_token_ids)


@pytest.mark.parametrize("num_reqs", range(1, 9))
def test_one_token_for_each_of_up_to_eight_requests_is_specialised(num_reqs):
    expected = StepPlan(
        path="specialized", reason="pure-decode", num_reqs=num_reqs, num_tokens=num_reqs, query_len=1
    )
    assert planned(kda(decodes=num_reqs)) == expected


@pytest.mark.parametrize("query_len", [2, 3, 4])
def test_equally_many_drafts_up_to_three_are_specialised(query_len):
    expected = StepPlan(
        path="specialized",
        reason="uniform-verify",
        num_reqs=5,
        num_tokens=5 * query_len,
        query_len=query_len,
    )
    assert planned(kda(verifies=5, verify_len=query_len)) == expected


def test_a_verify_step_without_any_draft_is_a_pure_decode():
    plan = planned(kda(verifies=4, verify_len=1))
    assert (plan.path, plan.reason, plan.query_len) == ("specialized", "pure-decode", 1)


@pytest.mark.parametrize(
    ("metadata", "options", "reason"),
    [
        (kda(prefills=2), {}, "prefill"),
        (kda(prefills=1, decodes=3), {}, "mixed"),
        (kda(prefills=1, verifies=3, verify_len=2), {}, "mixed"),
        (kda(verifies=3, verify_len=None), {}, "irregular-verify"),
        (kda(decodes=2, verifies=3, verify_len=2), {}, "irregular-verify"),
        (kda(verifies=1, verify_len=5), {}, "drafts-over-limit"),
        (kda(decodes=9), {}, "batch-over-limit"),
        (kda(verifies=9, verify_len=4), {}, "batch-over-limit"),
        (kda(decodes=1), {"longest": 1001}, "context-over-limit"),
        (kda(), {}, "empty"),
        (kda(decodes=1), {"second": kda(decodes=2)}, "layers-disagree"),
        (kda(decodes=1), {"has_token_ids": False}, "input-embeddings"),
        (kda(verifies=2, verify_len=4), {"num_rows": 10}, "padding-not-whole-requests"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_step_out_of_scope_runs_plain_and_says_why(metadata, options, reason):
    plan = planned(metadata, **options)
    assert (plan.path, plan.reason) == ("plain", reason)


def test_padding_in_whole_requests_stays_specialised():
    plan = planned(kda(verifies=2, verify_len=4), num_rows=16)
    assert (plan.path, plan.num_reqs, plan.num_tokens) == ("specialized", 2, 8)


def test_the_longest_supported_context_stays_specialised():
    assert planned(kda(decodes=1), longest=1000).path == "specialized"


@pytest.mark.parametrize("metadata", [None, {}, {"kda.0": kda(decodes=1)}], ids=["none", "empty", "partial"])
def test_a_step_that_is_not_fully_described_runs_plain(metadata):
    planner = StepPlanner(kda_layers=("kda.0",), mla_layers=("mla",), limits=LIMITS)
    plan = planner.plan(metadata, 7, True)
    assert (plan.path, plan.reason, plan.num_tokens) == ("plain", "no-metadata", 7)
