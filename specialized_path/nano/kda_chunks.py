"""The KDA delta rule in chunks: all tokens of a chunk at once, time only from chunk to chunk.

The products of rank-one corrections inside a chunk are gathered by solving one small triangular system (the WY or UT
form), as published for DeltaNet (Yang et al., 2024, arXiv:2406.06484), with gates (arXiv:2412.06464) and for KDA with
its decay per channel (Kimi Linear, arXiv:2510.26692).
"""

import torch
from torch import Tensor
from torch.nn import functional

CHUNK = 16
"""Tokens of a chunk. The decay of a token is at least exp(-5): with the middle of the chunk as the reference no factor
leaves exp(-45) to exp(45), so that single precision neither overflows nor loses a product."""


@torch.compiler.disable
def run_kda_chunks(
    q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, initial_state: Tensor
) -> tuple[Tensor, Tensor]:
    """Returns what the recurrence token by token returns, up to rounding; differentiable in every argument.

    Args:
        q: [R, L, H, K], normalised and scaled.
        k: [R, L, H, K], normalised.
        v: [R, L, H, V].
        g: [R, L, H, K], logarithm of the decay, -5 to 0.
        beta: [R, L, H].
        initial_state: [R, H, V, K], not modified.

    Returns:
        The outputs [R, L, H, V] and the last state [R, H, V, K].
    """
    length = q.shape[1]
    u, w, within, q_start, k_end, end = chunk_terms(*(in_chunks(x) for x in (q, k, v, g, beta.unsqueeze(-1))))
    state = initial_state
    corrections, recalled = [], []
    # unbind, not indexing: the gradient of an index is a whole tensor of zeros, one a chunk.
    for u_n, w_n, q_n, k_n, end_n in zip(*(x.unbind(2) for x in (u, w, q_start, k_end, end)), strict=True):
        transposed = state.transpose(-1, -2)
        correction = u_n - w_n @ transposed
        corrections.append(correction)
        recalled.append(q_n @ transposed)
        state = state * end_n + correction.transpose(-1, -2) @ k_n
    o = torch.stack(recalled, dim=2) + within @ torch.stack(corrections, dim=2)
    return o.flatten(2, 3)[:, :, :length].transpose(1, 2), state


def chunk_terms(q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor) -> tuple[Tensor, ...]:
    """Returns, per chunk, what its tokens do to any state S [K, V], from inputs as `in_chunks` gives them.

    Returns:
        u, w, within, q_start, k_end, end: the corrections are `u - w @ S`, the outputs
        `q_start @ S + within @ corrections`, and S becomes `end.mT * S + k_end.mT @ corrections`.
    """
    decay = g.cumsum(-2)
    middle = decay[..., CHUNK // 2 - 1 : CHUNK // 2, :]
    late, early = torch.exp(decay - middle), torch.exp(middle - decay)
    k_early = (k * early).transpose(-1, -2)
    system = torch.tril(beta * ((k * late) @ k_early), diagonal=-1)
    from_start = torch.exp(decay)
    right = torch.cat((beta * v, beta * (k * from_start)), dim=-1)
    u, w = torch.linalg.solve_triangular(system, right, upper=False, unitriangular=True).split(
        (v.shape[-1], k.shape[-1]), dim=-1
    )
    within = torch.tril((q * late) @ k_early)
    until_end = torch.exp(decay[..., -1:, :] - decay)
    return u, w, within, q * from_start, k * until_end, from_start[..., -1:, :]


def in_chunks(x: Tensor) -> Tensor:
    """[R, L, H, D] as [R, H, chunks, CHUNK, D]; tokens of zeros, which change no state, fill the last chunk."""
    padded = functional.pad(x.transpose(1, 2), (0, 0, 0, -x.shape[1] % CHUNK))
    return padded.unflatten(2, (-1, CHUNK))
