"""The KDA delta rule for training on a GPU: chunks as in `kda_chunks`, all of them at once, time in doubling strides.

A chunk takes the state S to `S @ carry + added`. Two such maps one after the other are again one such map, so that the
states before all chunks come from a scan of log2(chunks) products instead of one product a chunk after another.
"""

import torch
from torch import Tensor
from torch.nn import functional

from specialized_path.nano.kda_chunks import chunk_terms, in_chunks


def run_kda_scan(q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor) -> Tensor:
    """Returns the outputs [R, L, H, V] that `run_kda_chunks` gives of the same tokens and a state of zeros."""
    chunks = (in_chunks(x).contiguous() for x in (q, k, v, g, beta.unsqueeze(-1)))
    u, w, within, q_start, k_end, end = chunk_terms(*chunks)
    into_state = k_end.transpose(-1, -2)
    carry = torch.diag_embed(end.squeeze(-2)) - into_state @ w
    before = functional.pad(_scanned(carry, into_state @ u), (0, 0, 0, 0, 1, 0))[:, :, :-1]
    o = q_start @ before + within @ (u - w @ before)
    return o.flatten(2, 3)[:, :, : q.shape[1]].transpose(1, 2)


def _scanned(carry: Tensor, added: Tensor) -> Tensor:
    """The states [R, H, chunks, K, V] after each chunk, whose map is `carry @ S + added`."""
    stride = 1
    while stride < carry.shape[2]:
        later = carry[:, :, stride:]
        added = torch.cat((added[:, :, :stride], later @ added[:, :, :-stride] + added[:, :, stride:]), dim=2)
        carry = torch.cat((carry[:, :, :stride], later @ carry[:, :, :-stride]), dim=2)
        stride *= 2
    return added
