"""Both arms, served by a real engine, against the recompute without any cache."""

from itertools import pairwise

import pytest

pytestmark = pytest.mark.engine

CACHE_BLOCK = 128
"""Tokens per cache block; with prefix caching a prefill chunk ends where a block ends."""


@pytest.fixture(params=["baseline", "candidate"])
def engine(request):
    """Each arm in turn, with an empty record."""
    arm = request.getfixturevalue(request.param)
    arm.clear()
    return arm


def assert_steps(engine, *, num_prefills, num_decodes):
    """Every prefill step ran plain, every decode step on the arm under test and nowhere else."""
    if engine.model.planner is None:
        assert (engine.num_plain, engine.num_executed) == (num_prefills + num_decodes, 0)
    else:
        assert (engine.num_plain, engine.num_executed) == (num_prefills, num_decodes)
        assert engine.reasons()["pure-decode"] == num_decodes


@pytest.mark.parametrize("length", [1, 2, 3, 4, 127, 128, 250])
def test_a_prompt_of_any_length_is_continued_as_the_recompute_says(engine, oracle, prompts_of, length):
    prompts = prompts_of([length], seed=length)
    outputs = engine.generate(prompts, 12)
    assert oracle.largest_errors(prompts, outputs) < oracle.tolerance
    assert_steps(engine, num_prefills=2 if length > CACHE_BLOCK else 1, num_decodes=11)


def test_the_last_token_of_a_prompt_alone_in_its_chunk_counts_as_a_decode(engine, oracle, prompts_of):
    prompts = prompts_of([CACHE_BLOCK + 1], seed=129)
    outputs = engine.generate(prompts, 12)
    assert oracle.largest_errors(prompts, outputs) < oracle.tolerance
    assert_steps(engine, num_prefills=1, num_decodes=12)


@pytest.mark.parametrize("num_reqs", range(2, 9))
def test_a_ragged_batch_is_continued_as_the_recompute_says(engine, oracle, prompts_of, num_reqs):
    prompts = prompts_of([31, 1, 70, 2, 1, 45, 9, 3][:num_reqs], seed=100 + num_reqs)
    outputs = engine.generate(prompts, 10)
    assert oracle.largest_errors(prompts, outputs) < oracle.tolerance
    assert_steps(engine, num_prefills=1, num_decodes=9)


def test_one_token_prompts_start_from_nothing_even_on_recycled_state(engine, oracle, prompts_of):
    for seed in (200, 201, 202):
        prompts = prompts_of([1] * 8, seed)
        assert oracle.largest_errors(prompts, engine.generate(prompts, 4)) < oracle.tolerance


def test_a_prompt_prefilled_in_chunks_is_continued_as_the_recompute_says(engine, oracle, prompts_of):
    prompts = prompts_of([1, 40, 600], seed=300)
    outputs = engine.generate(prompts, 12)
    assert oracle.largest_errors(prompts, outputs) < oracle.tolerance
    assert engine.num_plain >= 3
    if engine.model.planner is not None:
        assert engine.reasons()["mixed"] >= 1
        assert engine.num_executed >= 8


def test_a_cached_prefix_gives_what_computing_it_gave(engine, oracle, prompts_of):
    (prompt,) = prompts_of([300], seed=400)
    first, again = engine.generate([prompt], 12), engine.generate([prompt], 12)
    assert first[0].num_cached_tokens == 0
    assert again[0].num_cached_tokens == 256
    assert oracle.largest_errors([prompt, prompt], first + again) < oracle.tolerance


def test_a_decode_that_crosses_cache_blocks_stays_exact(engine, oracle, prompts_of):
    prompts = prompts_of([120, 250], seed=500)
    outputs = engine.generate(prompts, 20)
    assert oracle.largest_errors(prompts, outputs) < oracle.tolerance


def test_the_arms_agree_on_a_long_context(baseline, candidate, oracle, prompts_of):
    (prompt,) = prompts_of([1900], seed=600)
    outputs = [engine.generate([prompt], 8)[0] for engine in (baseline, candidate)]
    errors = [oracle.largest_error(prompt, output) for output in outputs]
    assert max(errors) < oracle.tolerance


def test_steps_beyond_the_batch_limit_run_plain_and_hand_over_to_the_path(candidate, oracle, prompts_of):
    candidate.clear()
    prompts = prompts_of([5, 1, 9, 3, 2, 7, 4, 6, 8, 11, 10, 12], seed=700)
    outputs = candidate.generate(prompts, [6] * 4 + [12] * 8)
    assert oracle.largest_errors(prompts, outputs) < oracle.tolerance
    assert candidate.reasons() == {"prefill": 1, "batch-over-limit": 5, "pure-decode": 6}
    assert (candidate.num_plain, candidate.num_executed) == (6, 6)


def test_requests_that_arrive_between_decodes_take_the_step_off_the_path_and_give_it_back(
    candidate, oracle, prompts_of
):
    candidate.clear()
    prompts = prompts_of([20, 33, 1], seed=800)
    outputs = _serve_staggered(candidate, prompts, start_steps=[0, 4, 8], max_tokens=16)
    assert oracle.largest_errors(prompts, outputs) < oracle.tolerance
    paths = [plan.path for plan in candidate.plans]
    switches = sum(before != after for before, after in pairwise(paths))
    assert switches == 5
    assert candidate.reasons()["mixed"] == 2


def _serve_staggered(engine, prompts, start_steps, max_tokens):
    """Adds request i before engine step `start_steps[i]` and returns the completions in order."""
    from vllm import SamplingParams

    params = SamplingParams(temperature=0.0, ignore_eos=True, logprobs=5, max_tokens=max_tokens)
    core, done, step = engine.llm.llm_engine, {}, 0
    while len(done) < len(prompts):
        for i, first_step in enumerate(start_steps):
            if first_step == step:
                core.add_request(f"staggered-{i}", {"prompt_token_ids": prompts[i]}, params)
        for output in core.step():
            if output.finished:
                done[output.request_id] = output
        step += 1
    return [done[f"staggered-{i}"] for i in range(len(prompts))]
