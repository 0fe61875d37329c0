"""KDA over many steps: fixed points, forgetting and drift."""

import pytest
import torch

from specialized_path.kernels.kda.cases import KdaInputs, random_inputs
from specialized_path.kernels.kda.geometry import DIM
from tests.specialized_path.kernels.kda.oracle import launch
from tests.specialized_path.kernels.replay import captured
from tests.specialized_path.kernels.tolerance import relative_l2

pytestmark = pytest.mark.gpu


def replay(inputs: KdaInputs, steps: int) -> torch.Tensor:
    """The same step again and again, `steps` a multiple of 100; the last y."""
    y = torch.empty(1, inputs.heads * DIM, dtype=torch.bfloat16, device="cuda")
    start = inputs.to("cuda")

    def run() -> None:
        for _ in range(100):
            launch(inputs, out=y)

    graph = captured(run)
    inputs.state.copy_(start.state)
    inputs.conv_state.copy_(start.conv_state)
    for _ in range(steps // 100):
        graph.replay()
    torch.cuda.synchronize()
    return y


def steady(seed: int = 0) -> KdaInputs:
    """One request whose window holds the same input as every step brings, and whose state starts at random."""
    inputs = random_inputs(6, 1, 1, seed=seed).to("cuda")
    slot = int(inputs.slots)
    inputs.conv_state[slot] = inputs.projected[0, : 3 * 6 * DIM].unsqueeze(-1)
    inputs.A_log[:] = 0
    return inputs


def mixed(inputs: KdaInputs) -> torch.Tensor:
    """[3, H, 128] float64: q, k, v of a steady step."""
    x = inputs.projected[0, : 3 * inputs.heads * DIM].double()
    z = x * inputs.conv_weight.double().sum(-1)
    return (z * torch.sigmoid(z)).unflatten(0, (3, inputs.heads, DIM))


def test_a_repeated_key_comes_to_recall_its_value() -> None:
    """Without decay and with beta near 1, S k becomes v."""
    inputs = steady()
    inputs.columns("f_a")[:] = 0
    inputs.dt_bias[:] = -30
    inputs.columns("b")[:] = 4
    replay(inputs, 1000)
    _, k, v = mixed(inputs)
    unit = k * torch.rsqrt(k.square().sum(-1, keepdim=True) + 1e-6)
    recalled = (inputs.state[int(inputs.slots)].double() @ unit.unsqueeze(-1)).squeeze(-1)
    assert relative_l2(recalled, v) < 1e-5


def test_full_decay_forgets_the_start() -> None:
    inputs, other = steady(), steady()
    for one in (inputs, other):
        one.columns("f_a")[:] = 0
        one.dt_bias[:] = 30
    other.state[int(other.slots)] *= -1e6
    replay(inputs, 100)
    replay(other, 100)
    # Not bit for bit: a value a hair from the middle of two neighbours can rest on either.
    assert relative_l2(other.state[int(other.slots)], inputs.state[int(inputs.slots)]) < 2.0**-23


def test_a_state_without_decay_and_writing_keeps_its_bits_for_100000_steps() -> None:
    inputs = steady()
    inputs.columns("f_a")[:] = 0
    inputs.dt_bias[:] = -30
    inputs.columns("b")[:] = -200
    start = inputs.state[int(inputs.slots)].clone()
    replay(inputs, 100_000)
    assert torch.equal(inputs.state[int(inputs.slots)], start)


def test_decay_near_1_drifts_by_no_more_than_its_rounding_over_100000_steps() -> None:
    """k = 0, so each step multiplies the state by alpha; each product and alpha itself may be 2^-23 off."""
    inputs = steady()
    width = 6 * DIM
    inputs.columns("k")[:] = 0
    inputs.conv_state[int(inputs.slots), width : 2 * width] = 0
    inputs.columns("f_a")[:] = 0
    inputs.dt_bias[:] = -14
    start = inputs.state[int(inputs.slots)].double()
    replay(inputs, 100_000)
    log_decay = -5 * torch.sigmoid(torch.tensor(-14.0, dtype=torch.float64))
    expected = start * torch.exp(log_decay * 100_000)
    assert relative_l2(inputs.state[int(inputs.slots)], expected) < 2 * 2.0**-23 * 100_000
