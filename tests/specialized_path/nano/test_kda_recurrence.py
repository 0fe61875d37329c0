"""Laws of the delta-rule recurrence."""

import pytest
import torch

from specialized_path.nano.kda_recurrence import run_kda

R, H, K, V = 3, 2, 8, 8


def inputs(length, seed=0):
    """Random inputs of a plausible scale, in float64."""
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    k = torch.nn.functional.normalize(draw(R, length, H, K), dim=-1)
    g, beta = -torch.rand(R, length, H, K, dtype=torch.float64), torch.sigmoid(draw(R, length, H))
    return draw(R, length, H, K), k, draw(R, length, H, V), g, beta, draw(R, H, V, K)


@pytest.mark.parametrize("split", [1, 3, 6])
def test_a_sequence_in_two_parts_is_the_sequence(split):
    *tokens, state = inputs(7)
    whole, end = run_kda(*tokens, state, keep_states=False)
    first, middle = run_kda(*(x[:, :split] for x in tokens), state, keep_states=False)
    second, last = run_kda(*(x[:, split:] for x in tokens), middle[:, 0], keep_states=False)
    torch.testing.assert_close(torch.cat((first, second), dim=1), whole)
    torch.testing.assert_close(last, end)


def test_kept_states_are_the_ends_of_the_shorter_runs():
    *tokens, state = inputs(5)
    _, states = run_kda(*tokens, state, keep_states=True)
    ends = [run_kda(*(x[:, : t + 1] for x in tokens), state, keep_states=False)[1][:, 0] for t in range(5)]
    torch.testing.assert_close(states, torch.stack(ends, dim=1))


def test_a_token_with_full_strength_is_recalled_exactly_and_the_given_state_is_left_alone():
    _, k, v, g, _, state = inputs(1)
    before = state.clone()
    o, _ = run_kda(k, k, v, g, torch.ones(R, 1, H, dtype=torch.float64), state, keep_states=False)
    torch.testing.assert_close(o, v)
    assert torch.equal(state, before)


def test_a_padding_token_changes_no_state():
    q, k, v, g, beta, state = inputs(1)
    _, end = run_kda(q, k, v, torch.zeros_like(g), torch.zeros_like(beta), state, keep_states=False)
    assert torch.equal(end[:, 0], state)
