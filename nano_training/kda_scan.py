"""The KDA delta rule for training on a GPU: chunks as in `kda_chunks`, all of them at once, time in doubling strides.

A chunk takes the state S to `S @ carry + added`. Two such maps one after the other are again one such map, so that the
states before all chunks come from a scan of log2(chunks) products instead of one product a chunk after another.
"""

import torch
from torch import Tensor
from torch.nn import functional

from specialized_path.nano.kda_chunks import CHUNK


def run_kda_scan(q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor) -> Tensor:
    """Returns the outputs [R, L, H, V] of `run_kda_chunks` from a state of zeros, up to rounding.

    Args:
        q: [R, L, H, K], normalised and scaled.
        k: [R, L, H, K], normalised.
        v: [R, L, H, V].
        g: [R, L, H, K], logarithm of the decay, -5 to 0.
        beta: [R, L, H].
    """
    length, width = q.shape[1], v.shape[-1]
    q, k, v, g, beta = (_in_chunks(x) for x in (q, k, v, g, beta.unsqueeze(-1)))
    decay = g.cumsum(-2)
    from_middle = decay - decay[..., CHUNK // 2 - 1 : CHUNK // 2, :]
    late, early = torch.exp(from_middle), (k * torch.exp(-from_middle)).transpose(-1, -2)
    from_start, until_end = torch.exp(decay), torch.exp(decay[..., -1:, :] - decay)
    solved = torch.linalg.solve_triangular(
        torch.tril(beta * ((k * late) @ early), diagonal=-1),
        beta * torch.cat((v, k * from_start), dim=-1),
        upper=False,
        unitriangular=True,
    )
    into_state = (k * until_end).transpose(-1, -2)
    written, erased = (into_state @ solved).split((width, k.shape[-1]), dim=-1)
    carry = torch.diag_embed(from_start[..., -1, :]) - erased
    before = functional.pad(_scanned(carry, written), (0, 0, 0, 0, 1, 0))[:, :, :-1]
    corrections = solved[..., :width] - solved[..., width:] @ before
    o = (q * from_start) @ before + torch.tril((q * late) @ early) @ corrections
    return o.flatten(2, 3)[:, :, :length].transpose(1, 2)


def _scanned(carry: Tensor, added: Tensor) -> Tensor:
    """The states [R, H, chunks, K, V] after each chunk, whose map is `carry @ S + added`."""
    stride = 1
    while stride < carry.shape[2]:
        later = carry[:, :, stride:]
        added = torch.cat((added[:, :, :stride], later @ added[:, :, :-stride] + added[:, :, stride:]), dim=2)
        carry = torch.cat((carry[:, :, :stride], later @ carry[:, :, :-stride]), dim=2)
        stride *= 2
    return added


def _in_chunks(x: Tensor) -> Tensor:
    """[R, L, H, D] as [R, H, chunks, CHUNK, D], the last chunk filled with tokens of zeros."""
    filled = functional.pad(x, (0, 0, 0, 0, 0, -x.shape[1] % CHUNK))
    return filled.transpose(1, 2).unflatten(2, (-1, CHUNK)).contiguous()
