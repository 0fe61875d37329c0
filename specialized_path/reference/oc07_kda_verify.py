"""OC-7: a verify step leaves one state a token, so that rejected tokens are undone by choosing a slot."""

import torch
from torch import Tensor

from specialized_path.reference.oc04_short_conv import causal_conv
from specialized_path.reference.oc05_kda_gates import kda_gates
from specialized_path.reference.oc06_kda_step import delta_rule_step, gated_rms_norm
from specialized_path.reference.rounding import round_to


def short_conv_verify(
    x: Tensor,
    weight: Tensor,
    conv_state: Tensor,
    slots: Tensor,
    num_accepted_tokens: Tensor,
    *,
    query_lens: Tensor | None = None,
    acc_dtype: torch.dtype = torch.float32,
    out_dtype: torch.dtype | None = None,
) -> Tensor:
    """The short convolution over the q tokens of a verify step; one window, kept in the first slot, advances.

    With a = `num_accepted_tokens`, the W-1 taps before the first token are columns `a-1 ... a+W-3` of the
    window in `slots[:, 0]`. Afterwards columns `0 ... n+W-3` hold the last W-2 of those taps and the n new
    inputs (n = q, or the request's `query_lens`); columns beyond are left as they are.

    Args:
        x: [B, q, C], raw projection output.
        weight: [C, W]; no bias.
        conv_state: [slots, C, width >= q+W-2], any strides. Written in place at live first slots only.
        slots: [B, S >= q] int32 or int64, any strides; values <= 0 are null: read as zeros, never written. A
            request whose slots are all null is padding: output zero.
        num_accepted_tokens: [B], 1 ... S, tokens kept of the step before, counting the bonus one; 1 after a
            prefill or a plain decode step. Ignored for padding.
        query_lens: [B], tokens of each request, 0 ... q; rows from there on give zero and leave no trace.
            None means q for all.
        acc_dtype: type of the sum and of SiLU.
        out_dtype: type rounded to; None means `acc_dtype`, that is no rounding.

    Returns:
        [B, q, C].

    Raises:
        ValueError: too few slots, an accepted count outside 1 ... S, or a window too narrow for either.

    Source: Kimi team, "Kimi Linear" (short convolution of width 4, SiLU).
    """
    num_reqs, num_tokens, channels = x.shape
    taps = weight.shape[1] - 1
    table, start, live_rows = _read_table(slots, num_accepted_tokens, query_lens, num_tokens)
    needed = taps + max([num_tokens - 1, *start.tolist()])
    if conv_state.shape[2] < needed:
        raise ValueError(f"conv_state width: got {conv_state.shape[2]}, expected at least {needed}")
    first = table[:, 0]
    old = torch.where((first > 0)[:, None, None], conv_state[first.clamp_min(0)], 0)
    columns = start.unsqueeze(1) + torch.arange(taps, device=x.device)
    window = old.gather(2, columns.unsqueeze(1).expand(num_reqs, channels, taps))
    out, joined = causal_conv(x, weight, window, acc_dtype=acc_dtype)

    new = joined[:, :, 1:]
    lengths = live_rows.sum(dim=1)
    kept_columns = torch.where(lengths > 0, lengths + taps - 1, 0)
    written = torch.arange(new.shape[2], device=x.device) < kept_columns.unsqueeze(1)
    advanced = torch.where(written.unsqueeze(1), new, old[:, :, : new.shape[2]])
    live = first > 0
    conv_state[first[live], :, : new.shape[2]] = advanced[live]
    y = torch.where(live_rows.unsqueeze(-1), out, 0)
    return y if out_dtype is None else round_to(y, out_dtype)


def kda_recurrence_verify(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor,
    beta: Tensor,
    state: Tensor,
    slots: Tensor,
    num_accepted_tokens: Tensor,
    *,
    query_lens: Tensor | None = None,
    l2_eps: float = 1e-6,
    scale: float | None = None,
    acc_dtype: torch.dtype = torch.float32,
) -> Tensor:
    """The delta rule over a verify step: it starts from slot a-1 and leaves the state after token t in slot t.

    The start state is read before anything is written, so it may be overwritten by the same step. Between
    tokens the state is rounded to the type of the pool, as it would be by successive single steps.

    Args:
        q: [B, q, H, K], before normalisation.
        k: [B, q, H, K], before normalisation.
        v: [B, q, H, V].
        g: [B, q, H, K], log decay.
        beta: [B, q, H].
        state: [slots, H, V, K], any strides. Written in place at the live slots only.
        slots: [B, S >= q]; values <= 0 are null: read as zeros, never written. All null: output zero.
        num_accepted_tokens: [B], 1 ... S. Ignored for padding.
        query_lens: [B], tokens of each request, or None for q.
        l2_eps: of the L2 norms of q and k.
        scale: factor on q; None means K^-1/2.
        acc_dtype: type of the arithmetic and of the result.

    Returns:
        o [B, q, H, V] in `acc_dtype`, before the output norm.

    Raises:
        ValueError: too few slots, or an accepted count outside 1 ... S.

    Source: Kimi team, "Kimi Linear" (KDA).
    """
    table, start, live_rows = _read_table(slots, num_accepted_tokens, query_lens, q.shape[1])
    start_slots = table.gather(1, start.unsqueeze(1)).squeeze(1)
    current = torch.where((start_slots > 0)[:, None, None, None], state[start_slots.clamp_min(0)], 0)
    outputs = []
    for t in range(q.shape[1]):
        o, end = delta_rule_step(
            q[:, t],
            k[:, t],
            v[:, t],
            g[:, t],
            beta[:, t],
            current,
            l2_eps=l2_eps,
            scale=scale,
            acc_dtype=acc_dtype,
        )
        current = round_to(end, state.dtype)
        target = table[:, t]
        written = (target > 0) & live_rows[:, t]
        state[target[written]] = current[written]
        outputs.append(torch.where(live_rows[:, t, None, None], o, 0))
    return torch.stack(outputs, dim=1)


def kda_verify(
    qkv: Tensor,
    gate: Tensor,
    f_a: Tensor,
    b: Tensor,
    conv_weight: Tensor,
    w_f_b: Tensor,
    A_log: Tensor,
    dt_bias: Tensor,
    o_norm_weight: Tensor,
    conv_state: Tensor,
    state: Tensor,
    slots: Tensor,
    num_accepted_tokens: Tensor,
    *,
    query_lens: Tensor | None = None,
    lower_bound: float = -5.0,
    l2_eps: float = 1e-6,
    norm_eps: float = 1e-5,
    scale: float | None = None,
    acc_dtype: torch.dtype = torch.float32,
) -> Tensor:
    """A whole KDA verify step, from the projection's slices to the input of the output projection.

    It equals q single steps (`short_conv`, `kda_gates`, `kda_step`) that start from the state and window of
    the last accepted token; q = 1 with one slot is the single step.

    Args:
        qkv: [B, q, 3*H*K], raw, order q | k | v.
        gate: [B, q, H*K]; its type is the one rounded to.
        f_a: [B, q, R].
        b: [B, q, H].
        conv_weight: [3*H*K, W].
        w_f_b: [H*K, R].
        A_log: [H].
        dt_bias: [H*K].
        o_norm_weight: [K].
        conv_state: [slots, 3*H*K, width >= q+W-2], any strides; the window lives in `slots[:, 0]`.
        state: [slots, H, K, K] (value, key), any strides.
        slots: [B, S >= q]; values <= 0 are null: read as zeros, never written. All null: output zero.
        num_accepted_tokens: [B], 1 ... S. Ignored for padding.
        query_lens: [B], tokens of each request, or None for q.
        lower_bound: the most negative log decay.
        l2_eps: of the L2 norms of q and k.
        norm_eps: of the output norm.
        scale: factor on q; None means K^-1/2.
        acc_dtype: type of the arithmetic.

    Returns:
        [B, q, H*K] in `gate.dtype`; zero rows for padding.

    Raises:
        ValueError: too few slots, an accepted count outside 1 ... S, or a window too narrow.

    Source: Kimi team, "Kimi Linear" (KDA).
    """
    table, _, live_rows = _read_table(slots, num_accepted_tokens, query_lens, qkv.shape[1])
    mixed = short_conv_verify(
        qkv, conv_weight, conv_state, table, num_accepted_tokens, query_lens=query_lens, acc_dtype=acc_dtype
    )
    q, k, v = mixed.unflatten(-1, (3, A_log.numel(), -1)).unbind(dim=2)
    g, beta = kda_gates(f_a, b, w_f_b, A_log, dt_bias, lower_bound=lower_bound, acc_dtype=acc_dtype)
    o = kda_recurrence_verify(
        q,
        k,
        v,
        g,
        beta,
        state,
        table,
        num_accepted_tokens,
        query_lens=query_lens,
        l2_eps=l2_eps,
        scale=scale,
        acc_dtype=acc_dtype,
    )
    y = gated_rms_norm(o, gate, o_norm_weight, eps=norm_eps, acc_dtype=acc_dtype)
    return torch.where(live_rows.unsqueeze(-1), y, 0)


def _read_table(
    slots: Tensor, num_accepted_tokens: Tensor, query_lens: Tensor | None, num_tokens: int
) -> tuple[Tensor, Tensor, Tensor]:
    """The slot table [B, S], the start column [B], and the rows [B, q] that hold a token."""
    table = slots.long()
    if table.shape[1] < num_tokens:
        raise ValueError(f"slots columns: got {table.shape[1]}, expected at least {num_tokens}")
    padding = (table <= 0).all(dim=1)
    start = torch.where(padding, 0, num_accepted_tokens.long() - 1)
    if bool(((start < 0) | (start >= table.shape[1])).any()):
        raise ValueError(
            f"num_accepted_tokens: got {num_accepted_tokens.tolist()}, expected 1 ... {table.shape[1]}"
        )
    steps = torch.arange(num_tokens, device=table.device)
    lengths = torch.full_like(start, num_tokens) if query_lens is None else query_lens.long()
    return table, start, (steps < lengths.unsqueeze(1)) & ~padding.unsqueeze(1)
