"""Speculation through the executor: drafts of known quality and drafts looked up in the prompt."""

import random
from collections import Counter

import pytest

pytestmark = pytest.mark.engine

MAX_TOKENS = 32


@pytest.fixture
def engine(verifying):
    """The speculating candidate with an empty record."""
    verifying.clear()
    return verifying


@pytest.fixture
def drafting(engine, prompts_of, monkeypatch):
    """Serves prompts with drafts whose first tokens are right, as many as `choose` says per request and step."""

    def serve(lengths, seed, choose):
        prompts = prompts_of(lengths, seed)
        monkeypatch.setattr(engine.runner.drafter, "propose", lambda *_args, **_kwargs: [[]] * len(lengths))
        undrafted = engine.generate(prompts, MAX_TOKENS)
        known = [p + list(o.outputs[0].token_ids) for p, o in zip(prompts, undrafted, strict=True)]
        propose = _proposer(known, choose)
        monkeypatch.setattr(engine.runner.drafter, "propose", propose)
        engine.clear()
        return prompts, engine.generate(prompts, MAX_TOKENS)

    return serve


def _proposer(known, choose):
    """Drafts the known continuation with every token from the first wrong one on replaced."""

    def propose(_num_drafts, sampled, num_tokens, token_ids, **_):
        drafts = []
        for i, new in enumerate(sampled):
            context = token_ids[i, : num_tokens[i]].tolist()
            following = next((k[len(context) :] for k in known if k[: len(context)] == context), [])
            length, num_right = choose()
            tokens = [t if j < num_right else (t + 1) % 256 for j, t in enumerate(following[:length])]
            drafts.append(tokens if new else [])
        return drafts

    return propose


@pytest.mark.parametrize("num_drafts", [1, 2, 3])
@pytest.mark.parametrize("lengths", [[9], [1], [30, 1, 5, 2]], ids=["one", "one-token prompt", "four"])
def test_every_accepted_count_continues_as_the_recompute_says(engine, drafting, oracle, lengths, num_drafts):
    rng = random.Random(num_drafts)
    prompts, outputs = drafting(lengths, 900, lambda: (num_drafts, rng.randint(0, num_drafts)))
    assert oracle.largest_errors(prompts, outputs) < oracle.tolerance
    assert set(engine.accepted) == set(range(1, num_drafts + 2))
    verify = [plan for plan in engine.plans if plan.reason == "uniform-verify"]
    assert Counter(plan.query_len for plan in verify).most_common(1)[0][0] == num_drafts + 1
    assert engine.num_executed >= len(verify) > 0


def test_right_drafts_save_steps(engine, drafting):
    drafting([12], 901, lambda: (3, 3))
    assert engine.num_executed == MAX_TOKENS // 4


def test_a_batch_with_unequal_drafts_runs_plain_and_stays_exact(engine, drafting, oracle):
    rng = random.Random(7)

    def choose():
        length = rng.randint(0, 3)
        return length, rng.randint(0, length)

    prompts, outputs = drafting([30, 1, 5, 2], 902, choose)
    assert oracle.largest_errors(prompts, outputs) < oracle.tolerance
    assert engine.reasons()["irregular-verify"] >= 5
    assert engine.num_plain >= 5


def test_a_step_without_drafts_continues_from_the_last_accepted_token(engine, drafting, oracle):
    rng = random.Random(8)
    turn = iter(range(10_000))
    prompts, outputs = drafting([17], 903, lambda: (3 * (next(turn) % 2), rng.randint(1, 3)))
    assert oracle.largest_errors(prompts, outputs) < oracle.tolerance
    assert engine.reasons()["pure-decode"] >= 5
    assert engine.reasons()["uniform-verify"] >= 5
    assert engine.accepted[2] + engine.accepted[3] + engine.accepted[4] >= 3


def test_verify_steps_beyond_the_batch_limit_run_plain_and_stay_exact(engine, drafting, oracle):
    rng = random.Random(9)
    prompts, outputs = drafting(list(range(1, 10)), 904, lambda: (3, rng.randint(0, 3)))
    assert oracle.largest_errors(prompts, outputs) < oracle.tolerance
    assert engine.reasons()["batch-over-limit"] >= 5
    assert engine.reasons()["uniform-verify"] >= 1


def test_drafts_looked_up_in_a_repetitive_prompt_stay_exact(engine, oracle, prompts_of):
    pieces = prompts_of([7, 5], seed=905)
    prompts = [pieces[0] * 5]
    outputs = engine.generate(prompts, 40)
    prompts += [pieces[1] * 8, pieces[0] * 3]
    outputs += engine.generate(prompts[1:], 24)
    assert oracle.largest_errors(prompts, outputs) < oracle.tolerance
    assert engine.reasons()["uniform-verify"] >= 5
