"""OC-8: MLA turns hidden states into absorbed query rows and the one cache row that all heads share."""

from dataclasses import dataclass

import torch
from torch import Tensor

from specialized_path.reference.norm import rms_norm
from specialized_path.reference.oc03_projection import linear
from specialized_path.reference.rounding import quantize_e4m3, round_to


@dataclass(frozen=True, slots=True, kw_only=True)
class MlaQuery:
    """What one rank's MLA layer computes before attention, for H local heads."""

    query: Tensor
    """[B, H, kv_lora_rank + rope], the absorbed query rows."""
    cache_row: Tensor
    """[B, kv_lora_rank + rope], the row to cache: normed latent, then the rope dimensions as projected."""
    gate: Tensor
    """[B, H*V], input of the sigmoid output gate."""


def split_kv_b(w_kv_b: Tensor, *, num_heads: int, qk_nope_head_dim: int) -> tuple[Tensor, Tensor]:
    """The absorbed weights W_UK and W_UV; each head's rows are its key rows, then its value rows.

    Args:
        w_kv_b: [H * (nope + V), kv_lora_rank].
        num_heads: H.
        qk_nope_head_dim: key rows of a head.

    Returns:
        W_UK [H, nope, kv_lora_rank] and W_UV [H, V, kv_lora_rank], views of `w_kv_b`.
    """
    per_head = w_kv_b.unflatten(0, (num_heads, -1))
    return per_head[:, :qk_nope_head_dim], per_head[:, qk_nope_head_dim:]


def mla_query(
    x: Tensor,
    w_fused: Tensor,
    q_a_norm_weight: Tensor,
    kv_a_norm_weight: Tensor,
    w_q_b: Tensor,
    w_uk: Tensor,
    *,
    eps: float = 1e-5,
    acc_dtype: torch.dtype = torch.float32,
) -> MlaQuery:
    """Projection, the two norms, the query up-projection and the absorption of W_UK; there is no rotation.

    Roundings, each once to `x.dtype`: the fused projection, both normed latents, the query, the absorbed
    part.

    Args:
        x: [B, D].
        w_fused: [q_lora_rank + kv_lora_rank + rope + H*V, D], order q_a | kv_c | k_pe | gate.
        q_a_norm_weight: [q_lora_rank].
        kv_a_norm_weight: [kv_lora_rank].
        w_q_b: [H * (nope + rope), q_lora_rank], each head nope first.
        w_uk: [H, nope, kv_lora_rank].
        eps: of both norms.
        acc_dtype: type of sums and norms.

    Returns:
        Query rows, cache rows and gate, in `x.dtype`.

    Raises:
        ValueError: the rows of `w_fused` leave no room for the gate.

    Source: DeepSeek-AI, "DeepSeek-V2" (multi-head latent attention); no rotation and the output gate are from
    the Kimi K3 checkpoint configuration.
    """
    num_heads, nope, kv_rank = w_uk.shape
    q_rank, rope = q_a_norm_weight.numel(), w_q_b.shape[0] // num_heads - nope
    gate_rows = w_fused.shape[0] - q_rank - kv_rank - rope
    if gate_rows <= 0 or rope < 0:
        raise ValueError(
            f"w_fused rows: got {w_fused.shape[0]}, expected more than {q_rank + kv_rank + rope}"
        )
    y = linear(x, w_fused, acc_dtype=acc_dtype)
    q_a, kv_c, k_pe, gate = y.split([q_rank, kv_rank, rope, gate_rows], dim=-1)
    q_c = round_to(rms_norm(q_a, q_a_norm_weight, eps=eps, acc_dtype=acc_dtype), x.dtype)
    kv = round_to(rms_norm(kv_c, kv_a_norm_weight, eps=eps, acc_dtype=acc_dtype), x.dtype)
    absorbed, q_pe = absorbed_query(q_c, w_q_b, w_uk, acc_dtype=acc_dtype)
    query = torch.cat([absorbed, q_pe], dim=-1)
    return MlaQuery(query=query, cache_row=torch.cat([kv, k_pe], dim=-1), gate=gate)


def absorbed_query(
    q_c: Tensor, w_q_b: Tensor, w_uk: Tensor, *, acc_dtype: torch.dtype = torch.float32
) -> tuple[Tensor, Tensor]:
    """The query of each head, its nope part multiplied into the latent space; each of the two rounded once.

    Args:
        q_c: [..., q_lora_rank], the normed query latent; its type is the one rounded to.
        w_q_b: [H * (nope + rope), q_lora_rank], each head nope first.
        w_uk: [H, nope, kv_lora_rank].
        acc_dtype: type of the sums.

    Returns:
        [..., H, kv_lora_rank], absorbed, and [..., H, rope], as projected.
    """
    num_heads, nope, _ = w_uk.shape
    q = linear(q_c, w_q_b, acc_dtype=acc_dtype).unflatten(-1, (num_heads, -1))
    q_nope, q_pe = q.tensor_split([nope], dim=-1)
    wide = torch.einsum("...hn,hnc->...hc", q_nope.to(acc_dtype), w_uk.to(acc_dtype))
    return round_to(wide, q_c.dtype), q_pe


def mla_cache_write(
    cache_row: Tensor,
    kv_cache: Tensor,
    slot_mapping: Tensor,
    *,
    k_scale: float = 1.0,
    acc_dtype: torch.dtype = torch.float32,
) -> None:
    """Row b goes to page `slot // P`, offset `slot % P`, in place; a negative slot writes nothing.

    A cache of the rows' type gets their bits; a float8_e4m3fn cache gets `row / k_scale`, pinned to the
    range.

    Args:
        cache_row: [B, R]; padded rows may hold NaN.
        kv_cache: [pages, P, R], any strides.
        slot_mapping: [B] int32 or int64; non-negative entries must differ.
        k_scale: per-tensor scale of a float8 cache; not used otherwise.
        acc_dtype: type of the division by the scale.
    """
    slots = slot_mapping.long()
    live = slots >= 0
    page_size = kv_cache.shape[1]
    rows, written = cache_row[live], slots[live]
    if kv_cache.dtype == torch.float8_e4m3fn:
        rows = quantize_e4m3(rows, scale=k_scale, acc_dtype=acc_dtype)
    kv_cache[written // page_size, written % page_size] = round_to(rows, kv_cache.dtype)
