"""The chunk-wise delta rule is the delta rule token by token."""

import pytest
import torch

from specialized_path.nano.kda_chunks import CHUNK, run_kda_chunks
from specialized_path.nano.kda_recurrence import run_kda

R, H, K, V = 2, 3, 8, 5


def inputs(length, *, dtype=torch.float64, decay=1.0, seed=0):
    """Random tokens and a state; the logarithm of the decay is uniform from -`decay` to 0."""
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    k = torch.nn.functional.normalize(draw(R, length, H, K), dim=-1)
    g = -decay * torch.rand(R, length, H, K, generator=generator, dtype=torch.float64)
    beta = torch.sigmoid(draw(R, length, H))
    drawn = (draw(R, length, H, K), k, draw(R, length, H, V), g, beta, draw(R, H, V, K))
    return tuple(x.to(dtype) for x in drawn)


def token_by_token(*tokens_and_state):
    """The recurrence as defined, in the dtype of its inputs."""
    q, k, v, g, beta, state = tokens_and_state
    outputs = []
    for t in range(q.shape[1]):
        state = state * torch.exp(g[:, t]).unsqueeze(-2)
        recalled = (state @ k[:, t].unsqueeze(-1)).squeeze(-1)
        state = state + (beta[:, t, :, None] * (v[:, t] - recalled)).unsqueeze(-1) * k[:, t].unsqueeze(-2)
        outputs.append((state @ q[:, t].unsqueeze(-1)).squeeze(-1))
    return torch.stack(outputs, dim=1), state


@pytest.mark.parametrize("length", [1, CHUNK - 1, CHUNK, CHUNK + 1, 5 * CHUNK + 7])
def test_chunks_give_what_the_recurrence_gives(length):
    drawn = inputs(length)
    torch.testing.assert_close(run_kda_chunks(*drawn), token_by_token(*drawn), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("decay", [0.0, 0.01, 5.0])
def test_single_precision_holds_at_every_strength_of_decay(decay):
    drawn = inputs(6 * CHUNK, decay=decay)
    exact = token_by_token(*drawn)
    single = run_kda_chunks(*(x.float() for x in drawn))
    torch.testing.assert_close([x.double() for x in single], list(exact), rtol=2e-5, atol=2e-5)


def test_the_strongest_decay_at_every_token_neither_overflows_nor_loses_the_last_token():
    q, k, v, g, beta, state = inputs(4 * CHUNK, dtype=torch.float32)
    drawn = (q, k, v, torch.full_like(g, -5.0), beta, state)
    exact = token_by_token(*(x.double() for x in drawn))
    single = run_kda_chunks(*drawn)
    torch.testing.assert_close([x.double() for x in single], list(exact), rtol=1e-5, atol=1e-6)


def test_gradients_are_those_of_the_recurrence():
    drawn = tuple(x.requires_grad_() for x in inputs(CHUNK + 5, decay=2.0))
    weight = torch.randn(R, CHUNK + 5, H, V, generator=torch.Generator().manual_seed(1), dtype=torch.float64)

    def grads(run):
        o, state = run(*drawn)
        return torch.autograd.grad((o * weight).sum() + state.square().sum(), drawn)

    torch.testing.assert_close(grads(run_kda_chunks), grads(token_by_token))


def test_the_given_state_is_left_alone():
    *tokens, state = inputs(CHUNK)
    before = state.clone()
    run_kda_chunks(*tokens, state)
    assert torch.equal(state, before)


def test_a_long_run_without_kept_states_agrees_with_the_kept_ones():
    drawn = inputs(3 * CHUNK + 2)
    o, states = run_kda(*drawn, keep_states=True)
    o_again, last = run_kda(*drawn, keep_states=False)
    torch.testing.assert_close((o_again, last[:, 0]), (o, states[:, -1]))
