"""SCO005: each feature that is broken fails, by its own name and alone."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pytest

from harness.checks.scope.sco005_served_features import LAWS, ServedFeatures
from harness.model.evaluation import SuiteItem, TokenLogprobs
from harness.model.evidence import EvidenceSet, LedgerEvidence, SuiteEvidence
from harness.model.features import FEATURES
from harness.model.finding import Finding
from harness.model.manifest import Manifest
from harness.model.policy import Policy
from harness.model.words import Arm, Outcome, Tier
from tests.harness.checks.evidence_builder import MANIFEST, POLICY, change_items, context_of, without
from tests.harness.checks.feature_server import feature_evidence

JUDGED_ELSEWHERE = {"structured_output", "full_context"}


def findings_of(
    evidence: EvidenceSet, manifest: Manifest = MANIFEST, policy: Policy = POLICY
) -> dict[str, Finding]:
    return {f.subject: f for f in ServedFeatures().run(context_of(evidence, manifest, policy))}


@cache
def candidate_with(*faults: str) -> dict[str, Finding]:
    return findings_of(feature_evidence(frozenset(faults)))


def not_passed(found: dict[str, Finding]) -> dict[str, Outcome]:
    return {name: f.outcome for name, f in found.items() if f.outcome is not Outcome.PASS}


def test_every_feature_has_one_law_unless_another_check_judges_it() -> None:
    assert sorted(law.feature for law in LAWS) == sorted(set(FEATURES) - JUDGED_ELSEWHERE)


@pytest.mark.parametrize("seed", range(2))
def test_a_path_that_keeps_every_promise_passes(seed: int) -> None:
    assert not_passed(findings_of(feature_evidence(seed=seed))) == {}


DROPPED = (
    ("top_k", "min_p", "frequency_penalty", "logit_bias", "logprobs", "stop_strings", "regex", "abort"),
    ("top_p", "presence_penalty", "repetition_penalty", "several_choices", "chat_template", "stop_token_ids"),
    ("prompt_logprobs", "streaming", "grammar", "tool_calls", "temperature"),
)


@pytest.mark.parametrize("features", DROPPED)
def test_features_that_are_dropped_fail_and_no_others_do(features: tuple[str, ...]) -> None:
    broken = not_passed(candidate_with(*features))
    expected = {"temperature_sampling" if f == "temperature" else f for f in features}
    # The prompt's tokens are reported the same way for the chat template.
    expected |= {"chat_template"} if "prompt_logprobs" in features else set()
    # Its shares are those at a temperature of 2.
    expected |= {"min_p"} if "temperature" in features else set()
    assert broken == dict.fromkeys(expected, Outcome.FAIL)


def test_an_ignored_temperature_fails_by_its_draws() -> None:
    found = candidate_with(*DROPPED[2])["temperature_sampling"]
    assert found.outcome is Outcome.FAIL and "another distribution" in found.message


def test_an_ignored_seed_fails_by_its_repeats() -> None:
    found = candidate_with("seed")
    assert not_passed(found) == dict.fromkeys(("temperature_sampling", "several_choices"), Outcome.FAIL)


UNLIKELY = ("streaming tokens", "prefix_cache", "chunked_prefill")


def test_a_stream_of_other_tokens_fails() -> None:
    assert candidate_with(*UNLIKELY)["streaming"].outcome is Outcome.FAIL


@pytest.mark.parametrize("feature", ["prefix_cache", "chunked_prefill"])
def test_a_cache_or_a_split_that_never_happens_shows_nothing(feature: str) -> None:
    assert candidate_with(*UNLIKELY)[feature].outcome is Outcome.INCONCLUSIVE


def test_log_probabilities_that_are_not_finite_fail_where_they_occur() -> None:
    assert candidate_with("nan")["logprobs"].outcome is Outcome.FAIL


def test_a_feature_that_the_baseline_breaks_as_well_is_not_held_against_the_candidate() -> None:
    faults = frozenset({"stop_strings", "temperature"})
    found = not_passed(findings_of(feature_evidence(faults, faults)))
    # The shares that min_p leaves are those at a temperature of 2.
    assert found == dict.fromkeys(("stop_strings", "temperature_sampling", "min_p"), Outcome.INCONCLUSIVE)


def test_right_answers_of_the_other_path_do_not_count() -> None:
    assert {f.outcome for f in candidate_with("falls back").values()} == {Outcome.FAIL}


def test_a_feature_that_the_candidate_refuses_fails() -> None:
    # A repetition penalty is shown with the help of a bias.
    wanted = dict.fromkeys(("logit_bias", "repetition_penalty"), Outcome.FAIL)
    assert not_passed(candidate_with("refused")) == wanted


REQUIRED = POLICY.model_copy(update={"required": {Tier.CPU: ("SCO005",)}})
WITHOUT_BIAS = MANIFEST.model_copy(update={"features": tuple(f for f in FEATURES if f != "logit_bias")})


@pytest.mark.parametrize(
    ("policy", "outcome"), [(REQUIRED, Outcome.INCONCLUSIVE), (POLICY, Outcome.NOT_APPLICABLE)]
)
def test_a_feature_that_is_left_out_and_refused_lets_nothing_through_that_is_required(
    policy: Policy, outcome: Outcome
) -> None:
    found = findings_of(feature_evidence(frozenset({"refused"})), WITHOUT_BIAS, policy)
    assert found["logit_bias"].outcome is outcome


def test_a_feature_that_is_left_out_and_silently_ignored_fails() -> None:
    found = findings_of(feature_evidence(frozenset({"logit_bias"})), WITHOUT_BIAS)
    assert found["logit_bias"].outcome is Outcome.FAIL


def changed(keep: Callable[[SuiteItem], bool], *arms: Arm) -> dict[str, Finding]:
    evidence = feature_evidence()
    for arm in arms or tuple(Arm):
        evidence = change_items(evidence, "features", arm, lambda items: [i for i in items if keep(i)])
    return findings_of(evidence)


def test_requests_alone_only_leave_the_others_unknown() -> None:
    found = changed(lambda i: i.concurrency == 1 or not i.item.startswith("min_p/"))
    assert not_passed(found) == {"min_p": Outcome.INCONCLUSIVE}


def test_a_variant_that_was_never_asked_leaves_the_feature_open() -> None:
    assert not_passed(changed(lambda i: "/forced/" not in i.item)) == {"logit_bias": Outcome.INCONCLUSIVE}


def test_answers_that_one_arm_lacks_leave_the_feature_open() -> None:
    found = changed(lambda i: i.item != "top_k/1/s0/p0@c8", Arm.BASELINE_AGAIN)
    assert not_passed(found) == {"top_k": Outcome.INCONCLUSIVE}


def test_fewer_at_once_than_the_scope_declares_is_not_its_limit() -> None:
    wider = MANIFEST.scope.model_copy(update={"max_batch": 16})
    found = findings_of(feature_evidence(), MANIFEST.model_copy(update={"scope": wider}))
    assert {f.outcome for f in found.values()} == {Outcome.INCONCLUSIVE}


def test_answers_copied_from_the_baseline_are_nobodys() -> None:
    evidence = feature_evidence()
    (baseline,) = [r for r in evidence.of(SuiteEvidence) if r.arm is Arm.BASELINE]
    copied = change_items(evidence, "features", Arm.CANDIDATE, lambda _items: baseline.items)
    assert Outcome.PASS not in {f.outcome for f in findings_of(copied).values()}


@pytest.mark.parametrize("kind", [SuiteEvidence, LedgerEvidence])
def test_no_candidate_no_pass(kind: type[SuiteEvidence] | type[LedgerEvidence]) -> None:
    found = findings_of(without(feature_evidence(), kind, arm=Arm.CANDIDATE))
    assert {f.outcome for f in found.values()} == {Outcome.NOT_RUN}


def edited(update: Callable[[SuiteItem], dict[str, object]], *arms: Arm) -> dict[str, Finding]:
    evidence = feature_evidence()
    for arm in arms or tuple(Arm):
        evidence = change_items(
            evidence, "features", arm, lambda items: [i.model_copy(update=update(i)) for i in items]
        )
    return findings_of(evidence)


@pytest.mark.parametrize(
    "calls",
    [
        "no JSON",
        "7",
        "[1]",
        '{"a": 1}',
        '[{"function": "x"}]',
        '[{"function": {"name": ["x"]}}]',
        '[{"function": {"name": "set_lamp", "arguments": 3}}]',
    ],
)
def test_calls_of_a_form_that_no_client_can_read_fail_and_break_nothing_else(calls: str) -> None:
    found = edited(lambda i: {"tool_calls_text": calls if i.tool_calls_text else ""}, Arm.CANDIDATE)
    assert not_passed(found) == {"tool_calls": Outcome.FAIL}


@pytest.mark.parametrize("options", ["{}", "no JSON", "[1]"])
def test_records_that_do_not_say_what_was_asked_show_no_feature_that_options_ask_for(options: str) -> None:
    found = edited(lambda _i: {"options_text": options})
    passed = {name for name, finding in found.items() if finding.outcome is Outcome.PASS}
    assert passed <= {
        "temperature_sampling",
        "prompt_logprobs",
        "streaming",
        "chat_template",
        "chunked_prefill",
        "prefix_cache",
    }
    assert found["top_p"].outcome is Outcome.ERROR and "do not say what was asked" in found["top_p"].message


def test_a_seed_that_was_never_sent_is_not_obeyed() -> None:
    assert not_passed(edited(lambda _i: {"seed": None})) == {
        "temperature_sampling": Outcome.INCONCLUSIVE,
        "several_choices": Outcome.INCONCLUSIVE,
    }


def test_draws_that_were_asked_for_without_a_temperature_show_none() -> None:
    found = not_passed(edited(lambda _i: {"temperature": 0.0}))
    assert found == dict.fromkeys(("temperature_sampling", "top_k", "top_p", "min_p"), Outcome.INCONCLUSIVE)


def one_token_lists(item: SuiteItem) -> dict[str, object]:
    cut = (TokenLogprobs(token_ids=t.token_ids[:1], logprobs=t.logprobs[:1]) for t in item.top_logprobs)
    return {"top_logprobs": tuple(cut)}


def test_an_emitted_token_that_is_not_among_the_reported_ones_is_a_breach() -> None:
    found = edited(one_token_lists, Arm.CANDIDATE)
    assert {found[name].outcome for name in ("presence_penalty", "frequency_penalty", "logprobs")} == {
        Outcome.FAIL
    }


@pytest.mark.parametrize("feature", ["chunked_prefill", "prefix_cache", "streaming"])
def test_an_answer_that_ends_before_the_other_is_not_the_same(feature: str) -> None:
    def empty(item: SuiteItem) -> dict[str, object]:
        is_meant = item.item.startswith(f"{feature}/")
        return {"token_ids": (), "finish_reason": "stop", "token_times_ms": ()} if is_meant else {}

    assert edited(empty, Arm.CANDIDATE)[feature].outcome is Outcome.FAIL


def test_a_second_baseline_without_answers_vouches_for_no_law() -> None:
    found = edited(lambda _i: {"token_ids": (), "top_logprobs": (), "text": ""}, Arm.BASELINE_AGAIN)
    assert found["top_k"].outcome is Outcome.INCONCLUSIVE
    assert found["stop_strings"].outcome is Outcome.INCONCLUSIVE
