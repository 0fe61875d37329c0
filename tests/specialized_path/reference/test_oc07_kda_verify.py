"""OC-7: a verify step against successive single steps."""

import pytest
import torch

from specialized_path.reference import (
    kda_gates,
    kda_recurrence_verify,
    kda_step,
    kda_verify,
    short_conv,
    short_conv_verify,
)

NAN = float("nan")
F64 = {"acc_dtype": torch.float64}
H, K, R, W = 2, 4, 3, 4
C = 3 * H * K


class Layer:
    """The weights of a KDA layer, and one token of it by single steps on pools of its own."""

    def __init__(self, randn):
        self.conv_weight, self.w_f_b, self.A_log = randn(C, W), randn(H * K, R), randn(H)
        self.dt_bias, self.o_norm = randn(H * K), 1 + randn(K, scale=0.2)

    def draw(self, randn, batch, tokens):
        """Raw inputs qkv, gate, f_a, b."""
        return [randn(batch, tokens, n) for n in (C, H * K, R, H)]

    def verify(self, inputs, conv_state, state, slots, accepted, **kwargs):
        weights = (self.conv_weight, self.w_f_b, self.A_log, self.dt_bias, self.o_norm)
        return kda_verify(*inputs, *weights, conv_state, state, slots, accepted, **F64, **kwargs)

    def single(self, token, conv_state, state, slots):
        """One token [B, ...] of each request, in place on the pools."""
        qkv, gate, f_a, b = token
        mixed = short_conv(qkv, self.conv_weight, conv_state, slots, **F64)
        q, k, v = mixed.unflatten(-1, (3, H, K)).unbind(1)
        g, beta = kda_gates(f_a, b, self.w_f_b, self.A_log, self.dt_bias, **F64)
        return kda_step(q, k, v, g, beta, gate, self.o_norm, state, slots, **F64)


def pools(num_slots, width, dtype=torch.float64):
    conv_state = torch.full((num_slots, C, width), NAN, dtype=dtype)
    state = torch.full((num_slots, H, K, K), NAN, dtype=dtype)
    return conv_state, state


def start(conv_state, state, slots, window, first_state):
    """What a prefill leaves: the window and the state in the first slot of each request, accepted = 1."""
    conv_state[slots[:, 0].long(), :, : W - 1] = window
    state[slots[:, 0].long()] = first_state


@pytest.mark.parametrize("num_tokens", range(1, 9))
def test_every_accepted_count_continues_as_single_steps_would_from_the_last_kept_token(randn, num_tokens):
    layer, batch = Layer(randn), num_tokens
    slots = (
        (1 + torch.randperm(batch * num_tokens, generator=torch.Generator().manual_seed(1)))
        .reshape(batch, num_tokens)
        .int()
    )
    conv_state, state = pools(batch * num_tokens + 1, num_tokens + 2)
    window, first_state = randn(batch, C, W - 1), randn(batch, H, K, K)
    start(conv_state, state, slots, window, first_state)
    kept_conv, kept_state = torch.cat([window[:1], window]), torch.cat([first_state[:1], first_state])
    own = torch.arange(1, batch + 1)
    accepted = torch.ones(batch, dtype=torch.int32)
    for step in range(num_tokens + 2):
        inputs = layer.draw(randn, batch, num_tokens)
        y = layer.verify(inputs, conv_state, state, slots, accepted)
        accepted = ((torch.arange(batch) + step) % num_tokens + 1).int()
        trial_conv, trial_state = kept_conv, kept_state
        for t in range(num_tokens):
            trial_conv, trial_state = trial_conv.clone(), trial_state.clone()
            expected = layer.single([x[:, t] for x in inputs], trial_conv, trial_state, own)
            torch.testing.assert_close(y[:, t], expected, rtol=1e-10, atol=1e-11)
            torch.testing.assert_close(state[slots[:, t].long()], trial_state[1:], rtol=1e-10, atol=1e-11)
            keep = torch.cat([torch.tensor([False]), accepted == t + 1])
            kept_conv = torch.where(keep[:, None, None], trial_conv, kept_conv)
            kept_state = torch.where(keep[:, None, None, None], trial_state, kept_state)


def test_fifty_steps_of_changing_accepted_counts_do_not_part_from_single_steps(randn):
    layer, q = Layer(randn), 4
    slots = torch.tensor([[3, 1, 7, 2], [8, 5, 6, 4]], dtype=torch.int32)
    conv_state, state = pools(9, q + 2)
    window, first_state = randn(2, C, W - 1), randn(2, H, K, K)
    start(conv_state, state, slots, window, first_state)
    accepted, rng = torch.ones(2, dtype=torch.int32), torch.Generator().manual_seed(3)
    singles = [
        (window[b : b + 1].repeat(2, 1, 1), first_state[b : b + 1].repeat(2, 1, 1, 1)) for b in range(2)
    ]
    for _ in range(50):
        inputs = layer.draw(randn, 2, q)
        y = layer.verify(inputs, conv_state, state, slots, accepted)
        accepted = torch.randint(1, q + 1, (2,), generator=rng)
        for b, (conv, recurrent) in enumerate(singles):
            for t in range(int(accepted[b])):
                token = [x[b : b + 1, t] for x in inputs]
                expected = layer.single(token, conv, recurrent, torch.tensor([1]))
                torch.testing.assert_close(y[b : b + 1, t], expected, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("accepted", [1, 2, 3, 4])
def test_the_window_moves_to_the_accepted_taps_and_takes_every_new_input(randn, accepted):
    slots, weight, x = torch.tensor([[2, 1, 3, 4]]), randn(C, W), randn(1, 4, C)
    conv_state = randn(5, C, 9)
    before = conv_state.clone()
    short_conv_verify(x, weight, conv_state, slots, torch.tensor([accepted]), **F64)
    expected = before.clone()
    expected[2, :, :2] = before[2, :, accepted : accepted + 2]
    expected[2, :, 2:6] = x[0].T
    assert torch.equal(conv_state, expected)


def test_the_start_state_is_read_before_the_step_overwrites_it(randn):
    layer = Layer(randn)
    slots = torch.tensor([[1, 2, 3]])
    for accepted in (1, 2, 3):
        conv_state, state = randn(4, C, 5), randn(4, H, K, K)
        moved_conv, moved = conv_state.clone(), torch.cat([state, state[accepted : accepted + 1]])
        inputs = layer.draw(randn, 1, 3)
        y = layer.verify(inputs, conv_state, state, slots, torch.tensor([accepted]))
        apart = torch.cat([slots, torch.tensor([[4]])], dim=1)
        expected = kda_states(layer, inputs, moved_conv, moved, apart, accepted)
        torch.testing.assert_close(y, expected, rtol=1e-12, atol=1e-13)
        torch.testing.assert_close(state[1:], moved[1:4], rtol=1e-12, atol=1e-13)


def kda_states(layer, inputs, conv_state, state, slots, accepted):
    """A verify step whose start state sits in a slot of its own, the last of the table."""
    qkv, gate, f_a, b = inputs
    mixed = short_conv_verify(qkv, layer.conv_weight, conv_state, slots, torch.tensor([accepted]), **F64)
    q, k, v = mixed.unflatten(-1, (3, H, K)).unbind(2)
    g, beta = kda_gates(f_a, b, layer.w_f_b, layer.A_log, layer.dt_bias, **F64)
    o = kda_recurrence_verify(q, k, v, g, beta, state, slots, torch.tensor([slots.shape[1]]), **F64)
    normed = o * torch.rsqrt(o.square().mean(-1, keepdim=True) + 1e-5) * layer.o_norm
    return (normed * torch.sigmoid(gate.unflatten(-1, (H, K)))).flatten(-2)


def test_one_token_with_one_slot_is_the_single_step(randn):
    layer = Layer(randn)
    conv_state, state = randn(4, C, 3), randn(4, H, K, K)
    copies = conv_state.clone(), state.clone()
    slots = torch.tensor([3, 0, 1], dtype=torch.int32)
    inputs = layer.draw(randn, 3, 1)
    y = layer.verify(inputs, conv_state, state, slots[:, None], torch.ones(3))
    expected = layer.single([x[:, 0] for x in inputs], *copies, slots)
    torch.testing.assert_close(y[:, 0], expected, rtol=1e-13, atol=1e-14)
    torch.testing.assert_close((conv_state, state), copies, rtol=1e-13, atol=1e-14)


def test_padded_requests_give_zero_and_leave_the_pools_alone_whatever_their_rows_hold(randn):
    layer = Layer(randn)
    conv_state, state = randn(4, C, 5), randn(4, H, K, K)
    conv_state[0] = state[0] = NAN
    slots = torch.tensor([[0, 0, 0], [3, 1, 2], [-1, 0, -1]])
    inputs = layer.draw(randn, 3, 3)
    for x in inputs:
        x[0] = x[2] = NAN
    alone = conv_state.clone(), state.clone()
    y = layer.verify(inputs, conv_state, state, slots, torch.tensor([0, 2, 99]))
    expected = layer.verify([x[1:2] for x in inputs], *alone, slots[1:2], torch.tensor([2]))
    torch.testing.assert_close(y[1:2], expected, rtol=1e-12, atol=1e-13)
    assert y[[0, 2]].eq(0).all()
    torch.testing.assert_close((conv_state, state), alone, rtol=1e-12, atol=1e-13, equal_nan=True)


def test_a_null_tail_loses_its_states_and_nothing_else(randn):
    layer = Layer(randn)
    full_conv, full = randn(6, C, 6), randn(6, H, K, K)
    conv_state, state, before = full_conv.clone(), full.clone(), full.clone()
    inputs = layer.draw(randn, 1, 4)
    y = layer.verify(inputs, conv_state, state, torch.tensor([[5, 2, 0, -1]]), torch.tensor([2]))
    expected = layer.verify(inputs, full_conv, full, torch.tensor([[5, 2, 3, 4]]), torch.tensor([2]))
    assert torch.equal(y, expected) and torch.equal(conv_state, full_conv)
    assert torch.equal(state[[5, 2]], full[[5, 2]])
    assert torch.equal(state[[0, 1, 3, 4]], before[[0, 1, 3, 4]])


def test_a_live_request_whose_first_slot_is_null_starts_from_zeros_and_is_not_padding(randn):
    layer, outputs = Layer(randn), []
    inputs = layer.draw(randn, 1, 2)
    for first in (0, 1):
        conv_state, state = pools(4, 4)
        conv_state[1] = state[1] = 0
        slots = torch.tensor([[first, 3]], dtype=torch.int32)
        y = layer.verify(inputs, conv_state, state, slots, torch.ones(1, dtype=torch.int32))
        outputs.append((y, state[3]))
    (null, null_state), (zeroed, zeroed_state) = outputs
    assert zeroed.any() and torch.equal(null, zeroed) and torch.equal(null_state, zeroed_state)


def test_a_null_slot_reads_as_zeros_even_when_slot_zero_of_the_pool_holds_nan(randn):
    layer = Layer(randn)
    conv_state, state = randn(4, C, 5), randn(4, H, K, K)
    conv_state[0] = state[0] = NAN
    zeroed_conv, zeroed = conv_state.clone(), state.clone()
    zeroed[3] = 0
    inputs = layer.draw(randn, 1, 2)
    y = layer.verify(inputs, conv_state, state, torch.tensor([[1, 2, 0]]), torch.tensor([3]))
    expected = layer.verify(inputs, zeroed_conv, zeroed, torch.tensor([[1, 2, 3]]), torch.tensor([3]))
    assert torch.equal(y, expected)


def test_rows_past_a_requests_own_length_leave_no_trace(randn):
    layer = Layer(randn)
    slots = torch.tensor([[1, 2, 3, 4], [5, 6, 7, 8], [9, 10, 11, 12]])
    conv_state, state = randn(13, C, 6), randn(13, H, K, K)
    inputs, accepted = layer.draw(randn, 3, 4), torch.tensor([4, 1, 2])
    lens = [2, 4, 0]
    alone_conv, alone = conv_state.clone(), state.clone()
    for b, n in enumerate(lens):
        for x in inputs:
            x[b, n:] = NAN
    y = layer.verify(inputs, conv_state, state, slots, accepted, query_lens=torch.tensor(lens))
    for b, n in enumerate(lens):
        if n:
            own = [x[b : b + 1, :n] for x in inputs]
            expected = layer.verify(own, alone_conv, alone, slots[b : b + 1], accepted[b : b + 1])
            torch.testing.assert_close(y[b : b + 1, :n], expected, rtol=1e-12, atol=1e-13)
        assert y[b, n:].eq(0).all()
    torch.testing.assert_close((conv_state, state), (alone_conv, alone), rtol=1e-12, atol=1e-13)


def test_strided_tables_and_transposed_pools_mean_what_contiguous_copies_mean(randn):
    layer = Layer(randn)
    wide = torch.tensor([[9, 3, 9, 1], [9, 4, 9, 2]], dtype=torch.int32)
    conv_state, state = randn(5, C, 4), randn(5, H, K, K)
    transposed, permuted = conv_state.mT.contiguous(), state.permute(3, 0, 1, 2).contiguous()
    inputs, accepted = layer.draw(randn, 2, 2), torch.tensor([2, 1])
    y = layer.verify(inputs, transposed.mT, permuted.permute(1, 2, 3, 0), wide[:, 1::2], accepted)
    expected = layer.verify(inputs, conv_state, state, torch.tensor([[3, 1], [4, 2]]), accepted)
    torch.testing.assert_close(y, expected, rtol=1e-12, atol=1e-13)
    torch.testing.assert_close(
        (transposed.mT, permuted.permute(1, 2, 3, 0)), (conv_state, state), rtol=1e-12, atol=1e-13
    )


def test_a_narrow_state_is_rounded_after_every_token_as_single_steps_do(randn):
    layer = Layer(randn)
    conv_state, state = randn(4, C, 5), randn(4, H, K, K, dtype=torch.bfloat16)
    single_conv, single = conv_state.clone(), state.clone()
    inputs = layer.draw(randn, 1, 3)
    layer.verify(inputs, conv_state, state, torch.tensor([[1, 2, 3]]), torch.tensor([1]))
    for t in range(3):
        layer.single([x[:, t] for x in inputs], single_conv, single, torch.tensor([1]))
        assert torch.equal(state[t + 1], single[1])


@pytest.mark.parametrize(
    ("slots", "accepted", "width", "message"),
    [
        ([[1, 2]], [1], 5, "slots columns: got 2, expected at least 3"),
        ([[1, 2, 3]], [0], 5, "expected 1 ... 3"),
        ([[1, 2, 3]], [4], 9, "expected 1 ... 3"),
        ([[1, 2, 3]], [1], 4, "conv_state width: got 4, expected at least 5"),
        ([[1, 2, 3, 4, 5]], [5], 6, "conv_state width: got 6, expected at least 7"),
    ],
)
def test_tables_that_do_not_fit_the_step_are_errors(randn, slots, accepted, width, message):
    layer = Layer(randn)
    with pytest.raises(ValueError, match=message):
        layer.verify(
            layer.draw(randn, 1, 3),
            randn(6, C, width),
            randn(6, H, K, K),
            torch.tensor(slots),
            torch.tensor(accepted),
        )
