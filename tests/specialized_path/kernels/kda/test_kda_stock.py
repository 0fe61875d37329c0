"""The PyTorch baseline does the same work as the oracle; it needs no GPU."""

import pytest

from specialized_path.kernels.kda.benchmarks import bytes_moved, cells
from specialized_path.kernels.kda.cases import random_inputs
from specialized_path.kernels.kda.launch import KdaWeights
from specialized_path.kernels.kda.stock import MAKERS, Step
from tests.specialized_path.kernels.kda.oracle import expect
from tests.specialized_path.kernels.tolerance import T1, assert_close, assert_same_bits, relative_l2


@pytest.mark.parametrize("tokens", [1, 3])
def test_pytorch_agrees_with_the_oracle(tokens: int) -> None:
    inputs = random_inputs(6, 2, tokens)
    expected = expect(inputs)
    step = Step(
        projected=inputs.projected,
        weights=KdaWeights(
            conv_weight=inputs.conv_weight,
            w_f_b=inputs.w_f_b,
            A_log=inputs.A_log,
            dt_bias=inputs.dt_bias,
            o_norm_weight=inputs.o_norm_weight,
        ),
        conv_state=inputs.conv_state,
        state=inputs.state,
        slots=inputs.slots,
        num_accepted_tokens=inputs.num_accepted_tokens,
    )
    y = MAKERS["torch"](step)()
    assert_close(y, expected.y, T1, term_magnitudes=expected.y_terms)
    assert_same_bits(step.conv_state, expected.conv_state)
    slots = inputs.slots.long().flatten()
    assert relative_l2(step.state[slots], expected.state[slots]) < 1e-6


def test_cells_have_different_names() -> None:
    names = [cell.name for cell in cells()]
    assert len(set(names)) == len(names)


def test_a_decode_step_moves_a_state_in_and_out() -> None:
    one, two = bytes_moved(12, 1, 1), bytes_moved(12, 2, 1)
    state = 2 * 12 * 128 * 128 * 4
    assert state < two - one < 1.1 * state
