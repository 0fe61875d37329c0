"""The oracle on a case's inputs in float64, and how far float32 sums may stray from it."""

import torch
from torch import Tensor

from specialized_path.kernels.mla.cases import KV_RANK, AttentionInputs
from specialized_path.kernels.mla.launch import AttentionScale
from specialized_path.reference import mla_attention_visible, visible_lens


def expected_attention(
    inputs: AttentionInputs, scale: AttentionScale, visible: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Latents and LSE in float64, unrounded, and the magnitude that float32 sums may be wrong in proportion to.

    A score that is off by d scales its probability by 1 + d, and scores are sums of products themselves: to the
    sum of the terms p |c| comes twice that sum times the largest sum of |z c| of the row.
    """
    query, cache = inputs.query, inputs.kv_cache
    if visible is None:
        visible = visible_lens(inputs.seq_lens, query.shape[1])
    options = {
        "kv_lora_rank": KV_RANK,
        "scale": scale.softmax,
        "q_scale": scale.query,
        "k_scale": scale.cache,
    }
    latents, lses, terms = [], [], []
    for b in range(query.shape[0]):
        rows, seen = query[b : b + 1].double(), visible[b : b + 1]
        pages = _compact(cache, inputs.block_table[b], int(seen.max()))
        table = torch.arange(pages.shape[0], device=query.device).unsqueeze(0)
        latent, lse = mla_attention_visible(
            rows, pages, table, seen, out_dtype=torch.float64, acc_dtype=torch.float64, **options
        )
        latents.append(latent)
        lses.append(lse)
        terms.append(_terms(rows, pages, seen, scale))
    return torch.cat(latents), torch.cat(lses), torch.cat(terms)


def _compact(cache: Tensor, table: Tensor, length: int) -> Tensor:
    """The pages that the first `length` tokens lie in, in sequence, in float64; one page for none."""
    pages = table[: max(1, -(-length // cache.shape[1]))].long()
    return take(cache, pages if length else torch.zeros_like(pages)).double()


def _terms(query: Tensor, compact: Tensor, visible: Tensor, scale: AttentionScale) -> Tensor:
    result = torch.zeros(*query.shape[:3], KV_RANK, dtype=torch.float64, device=query.device)
    factor = scale.softmax * scale.query * scale.cache
    for t in range(query.shape[1]):
        rows = compact.flatten(0, 1)[: int(visible[0, t])]
        if not len(rows):
            continue
        p = torch.softmax(query[0, t] @ rows.T * factor, dim=-1)
        largest = (query[0, t].abs() @ rows.abs().T * factor).amax(dim=-1, keepdim=True)
        result[0, t] = p @ rows[:, :KV_RANK].abs() * scale.cache * (1 + 2 * largest)
    return result


def take(tensor: Tensor, index: Tensor | tuple[Tensor, ...]) -> Tensor:
    """Rows by index, by their bits: not every PyTorch indexes float8 on a GPU."""
    bits = torch.uint8 if tensor.element_size() == 1 else torch.int16
    return tensor.view(bits)[index].view(tensor.dtype)
