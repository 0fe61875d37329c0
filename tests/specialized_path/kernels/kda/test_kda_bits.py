"""KDA gives the same bits whatever the run, the replay, the batch position, the schedule or the step's length."""

from itertools import pairwise

import pytest
import torch
from torch import Tensor

from specialized_path.kernels.kda.cases import KdaInputs, random_inputs
from specialized_path.kernels.kda.geometry import DIM
from specialized_path.kernels.kda.variants import KdaVariant, kda_variants
from tests.specialized_path.kernels.kda.oracle import launch
from tests.specialized_path.kernels.replay import captured
from tests.specialized_path.kernels.tolerance import assert_same_bits

pytestmark = pytest.mark.gpu

VARIANTS = [pytest.param(v, id=v.kernel.name) for v in kda_variants()]


def results(inputs: KdaInputs, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return y, inputs.state, inputs.conv_state


def assert_same_results(ours: tuple[Tensor, ...], theirs: tuple[Tensor, ...]) -> None:
    for got, expected in zip(ours, theirs, strict=True):
        assert_same_bits(got, expected)


def single(inputs: KdaInputs, request: int) -> KdaInputs:
    """One request of a batch as a batch of its own, over a copy of the pools."""
    one = inputs.to("cuda")
    tokens = inputs.tokens
    one.projected = inputs.projected[request * tokens : (request + 1) * tokens].clone()
    one.slots = inputs.slots[request : request + 1].clone()
    one.num_accepted_tokens = inputs.num_accepted_tokens[request : request + 1].clone()
    return one


@pytest.mark.parametrize("variant", VARIANTS)
def test_runs_give_the_same_bits(variant: KdaVariant) -> None:
    first = random_inputs(variant.schedule.heads, 5, variant.schedule.tokens).to("cuda")
    again = first.to("cuda")
    assert_same_results(results(first, launch(first, variant)), results(again, launch(again, variant)))


@pytest.mark.parametrize("variant", VARIANTS)
def test_replays_give_the_bits_of_an_eager_run(variant: KdaVariant) -> None:
    start = random_inputs(variant.schedule.heads, 5, variant.schedule.tokens).to("cuda")
    eager, replayed = start.to("cuda"), start.to("cuda")
    expected = results(eager, launch(eager, variant))
    y = torch.empty_like(expected[0])
    graph = captured(lambda: launch(replayed, variant, out=y, use_pdl=True))
    for _ in range(3):
        replayed.state.copy_(start.state)
        replayed.conv_state.copy_(start.conv_state)
        y.fill_(float("nan"))
        graph.replay()
        torch.cuda.synchronize()
        assert_same_results(results(replayed, y), expected)


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_request_gives_the_same_bits_at_every_batch_position(variant: KdaVariant) -> None:
    inputs = random_inputs(variant.schedule.heads, 4, variant.schedule.tokens).to("cuda")
    tokens = variant.schedule.tokens
    for shift in range(4):
        order = (torch.arange(4) + shift) % 4
        moved = inputs.to("cuda")
        moved.projected = inputs.projected.unflatten(0, (4, tokens))[order].flatten(0, 1)
        moved.slots, moved.num_accepted_tokens = inputs.slots[order], inputs.num_accepted_tokens[order]
        y = launch(moved, variant).unflatten(0, (4, tokens))
        if shift == 0:
            expected, states, windows = y, moved.state, moved.conv_state
        assert_same_results((y, moved.state, moved.conv_state), (expected[order], states, windows))


@pytest.mark.parametrize("heads", [12, 6])
@pytest.mark.parametrize("tokens", range(1, 9))
def test_all_schedules_give_the_same_bits(heads: int, tokens: int) -> None:
    start = random_inputs(heads, 3, tokens).to("cuda")
    found = []
    for variant in kda_variants():
        if (variant.schedule.heads, variant.schedule.tokens) == (heads, tokens):
            inputs = start.to("cuda")
            found.append(results(inputs, launch(inputs, variant)))
    assert len(found) > 1
    for one in found[1:]:
        assert_same_results(one, found[0])


def continued(inputs: KdaInputs, request: int, steps: int) -> tuple[list[Tensor], KdaInputs]:
    """Single steps of one request, from the state and window of its last accepted token; y of each, and the pools."""
    one = single(inputs, request)
    accepted = int(one.num_accepted_tokens)
    home = one.slots[:, :1].clone()
    first, start = int(home), int(one.slots[0, accepted - 1])
    one.state[first] = one.state[start].clone()
    one.conv_state[first, :, :3] = one.conv_state[first, :, accepted - 1 : accepted + 2].clone()
    rows, one.slots, one.num_accepted_tokens = one.projected, home, torch.ones_like(one.num_accepted_tokens)
    outs = []
    for t in range(steps):
        one.projected = rows[t : t + 1]
        outs.append(launch(one))
    return outs, one


@pytest.mark.parametrize("heads", [12, 6])
@pytest.mark.parametrize("tokens", range(2, 9))
def test_token_t_of_a_verify_step_has_the_bits_of_single_steps(heads: int, tokens: int) -> None:
    inputs = random_inputs(heads, 3, tokens, seed=tokens).to("cuda")
    after = inputs.to("cuda")
    y = launch(after).unflatten(0, (3, tokens))
    for request in range(3):
        outs, end = continued(inputs, request, tokens)
        assert_same_bits(y[request], torch.cat(outs))
        slot = int(inputs.slots[request, tokens - 1])
        assert_same_bits(after.state[slot], end.state[int(inputs.slots[request, 0])])


@pytest.mark.parametrize("tokens", range(2, 9))
def test_every_accepted_count_gives_the_continuation_of_single_steps(tokens: int) -> None:
    """Two verify steps; the second starts behind each of the first's tokens."""
    first = random_inputs(6, 1, tokens, seed=tokens).to("cuda")
    more = random_inputs(6, 1, tokens, seed=100 + tokens).to("cuda").projected
    verified = first.to("cuda")
    launch(verified)
    for accepted in range(1, tokens + 1):
        second = verified.to("cuda")
        second.projected = more
        second.num_accepted_tokens[:] = accepted
        y = launch(second)
        _, ours = continued(first, 0, accepted)
        outs = []
        for t in range(tokens):
            ours.projected = more[t : t + 1]
            outs.append(launch(ours))
        assert_same_bits(y, torch.cat(outs))


def test_alternating_accepted_counts_follow_single_steps_over_50_verify_steps() -> None:
    tokens, accepted = 4, 2
    inputs = random_inputs(6, 1, tokens).to("cuda")
    inputs.num_accepted_tokens[:] = 1
    inputs.state[int(inputs.slots[0, 0])] = 0
    _, ours = continued(inputs, 0, 0)
    for step in range(50):
        inputs.projected = random_inputs(6, 1, tokens, seed=step).to("cuda").projected
        y = launch(inputs)
        accepted = 1 + (step * 3 + step // 4) % tokens
        outs = []
        for t in range(accepted):
            ours.projected = inputs.projected[t : t + 1]
            outs.append(launch(ours))
        assert_same_bits(y[:accepted], torch.cat(outs))
        inputs.num_accepted_tokens[:] = accepted


@pytest.mark.parametrize("tokens", [1, 4])
@pytest.mark.parametrize("num_reqs", [1, 5, 64])
def test_an_early_launch_waits_for_the_kernel_in_front(tokens: int, num_reqs: int) -> None:
    """A chain in which each step's output gate is the output of the step before, launched early and not."""
    steps = [random_inputs(6, num_reqs, tokens, seed=s).to("cuda") for s in range(6)]
    width = 6 * DIM

    def chain(inputs: list[KdaInputs], use_pdl: bool) -> Tensor:
        for ahead, behind in pairwise(inputs):
            launch(ahead, out=behind.projected[:, 3 * width : 4 * width], use_pdl=use_pdl)
        return launch(inputs[-1], use_pdl=use_pdl)

    plain = [step.to("cuda") for step in steps]
    expected = chain(plain, False)
    for _ in range(20):
        early = [step.to("cuda") for step in steps]
        torch.cuda.synchronize()
        assert_same_bits(chain(early, True), expected)
