"""The KDA delta rule over time, all requests and heads of a step at once."""

import torch
from torch import Tensor

from specialized_path.nano.kda_chunks import CHUNK, run_kda_chunks


def run_kda(
    q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, initial_state: Tensor, *, keep_states: bool
) -> tuple[Tensor, Tensor]:
    """Runs the recurrence in float32: token by token, or chunk by chunk where that is faster and gives the same.

    Per token: the state decays by exp(g) per key channel, the value recalled for k is corrected by beta
    towards v, and q reads the result. A token with g = 0 and beta = 0 leaves the state as it is.

    Args:
        q: [R, L, H, K], normalised and scaled.
        k: [R, L, H, K], normalised.
        v: [R, L, H, V].
        g: [R, L, H, K], logarithm of the decay.
        beta: [R, L, H].
        initial_state: [R, H, V, K], not modified.
        keep_states: Whether to return the state after every token.

    Returns:
        The outputs [R, L, H, V] and the states: [R, L, H, V, K], or [R, 1, H, V, K] with the last one only.
    """
    requests, length, heads, _ = q.shape
    if length >= CHUNK and not keep_states:
        o, last = run_kda_chunks(q, k, v, g, beta, initial_state)
        return o, last.unsqueeze(1)
    state = initial_state.flatten(0, 1).clone()
    q, k, v, decay = (x.transpose(0, 1).flatten(1, 2) for x in (q, k, v, torch.exp(g)))
    beta = beta.transpose(0, 1).flatten(1, 2).unsqueeze(-1)
    outputs, states = [], []
    for t in range(length):
        state.mul_(decay[t].unsqueeze(1))
        recalled = torch.bmm(state, k[t].unsqueeze(2)).squeeze(2)
        update = beta[t] * (v[t] - recalled)
        state.baddbmm_(update.unsqueeze(2), k[t].unsqueeze(1))
        outputs.append(torch.bmm(state, q[t].unsqueeze(2)).squeeze(2))
        if keep_states:
            states.append(state.clone())
    kept = torch.stack(states or [state])
    return (
        torch.stack(outputs).unflatten(1, (requests, heads)).transpose(0, 1),
        kept.unflatten(1, (requests, heads)).transpose(0, 1),
    )
