"""Laws of the scenarios: every edge of a scope is in them, whatever the scope."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eval_suites.edges import plain_scenarios, verify_scenarios
from harness.model.manifest import ScopeSection
from harness.model.probe import ProbeEvent, Scenario


def scope(batch: int = 8, drafts: int = 3) -> ScopeSection:
    return ScopeSection(platforms=("cpu",), max_batch=batch, max_context=512, max_draft_tokens=drafts)


SCOPES = st.builds(scope, batch=st.integers(1, 12), drafts=st.integers(0, 5))


def all_scenarios(declared: ScopeSection) -> tuple[Scenario, ...]:
    plain = plain_scenarios(declared, max_model_len=512, seed=1)
    return plain + verify_scenarios(declared, seed=2)


def named(scenarios: tuple[Scenario, ...], name: str) -> tuple[ProbeEvent, ...]:
    return next(s.events for s in scenarios if s.name == name)


@given(SCOPES)
def test_scenarios_and_their_requests_have_names_of_their_own(declared: ScopeSection) -> None:
    scenarios = all_scenarios(declared)
    assert len({s.name for s in scenarios}) == len(scenarios)
    for scenario in scenarios:
        names = [r.name for event in scenario.events for r in event.add]
        assert len(set(names)) == len(names)


@given(SCOPES)
def test_a_whole_batch_and_one_more_run_together(declared: ScopeSection) -> None:
    first, second = named(all_scenarios(declared), "batch_limit")
    assert (len(first.add), len(second.add)) == (declared.max_batch, 1)
    assert min(r.max_tokens for r in first.add) > second.before_step + second.add[0].max_tokens


@given(SCOPES)
def test_every_number_of_drafts_and_of_right_ones_is_tried(declared: ScopeSection) -> None:
    tried = {
        draft
        for s in verify_scenarios(declared, seed=1)
        for e in s.events
        for r in e.add
        for draft in r.drafts
    }
    most = declared.max_draft_tokens
    wanted = {(n, right) for n in range(most + 1) for right in range(n + 1)}
    assert tried == (wanted if most else set())


@given(SCOPES)
def test_no_draft_is_longer_than_declared(declared: ScopeSection) -> None:
    requests = [r for s in all_scenarios(declared) for e in s.events for r in e.add]
    assert max((n for r in requests for n, _ in r.drafts), default=0) <= declared.max_draft_tokens


def test_a_prompt_of_one_token_more_than_the_context_is_sent() -> None:
    (event,) = named(all_scenarios(scope()), "context_limit")
    to_the_end, beyond = event.add
    assert (to_the_end.num_tokens or 0) + to_the_end.max_tokens == 512
    assert beyond.num_tokens == 513


def test_where_the_model_takes_more_the_request_goes_beyond_the_declared_context() -> None:
    (event,) = named(plain_scenarios(scope(), max_model_len=1024, seed=1), "context_limit")
    assert (event.add[0].num_tokens or 0) + event.add[0].max_tokens > 513


@pytest.mark.parametrize("suffix", ["", "_verify"])
def test_decodes_are_interrupted_by_a_prompt_an_abort_and_a_preemption(suffix: str) -> None:
    scenarios = all_scenarios(scope())
    joined = named(scenarios, f"joined_by_a_prefill{suffix}")
    assert joined[1].before_step > 0 and (joined[1].add[0].num_tokens or 0) > 256
    assert any(event.abort for event in named(scenarios, f"aborted{suffix}"))
    held, released = named(scenarios, f"preempted{suffix}")[1:]
    assert held.hold_free_blocks and released.release_blocks and held.before_step < released.before_step


def test_the_same_prompt_comes_twice_for_the_prefix_cache() -> None:
    first, second, third = (event.add[0] for event in named(all_scenarios(scope()), "prefix_hit"))
    assert (first.text, first.num_tokens) == (second.text, second.num_tokens)
    assert (third.text, third.short_of_block) == (first.text, -1)


def test_the_same_seed_gives_the_same_scenarios() -> None:
    assert all_scenarios(scope()) == all_scenarios(scope())
