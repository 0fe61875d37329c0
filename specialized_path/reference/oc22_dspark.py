"""OC-22: the drafter proposes a block in one parallel pass, then ties its tokens together one after the other."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from specialized_path.reference.attn_res import add_to_prefix
from specialized_path.reference.norm import rms_norm
from specialized_path.reference.oc03_projection import linear
from specialized_path.reference.oc08_mla_query import absorbed_query, mla_cache_write
from specialized_path.reference.oc09_mla_attention import mla_attention_visible
from specialized_path.reference.oc12_output_projection import rank_order_sum
from specialized_path.reference.oc21_output import greedy_token
from specialized_path.reference.rope import rotate_interleaved
from specialized_path.reference.rounding import round_to


@dataclass(frozen=True, slots=True, kw_only=True)
class DsparkAttentionWeights:
    """One rank's attention weights of a drafter layer, H local heads."""

    input_norm: Tensor
    """[D]."""
    w_fused: Tensor
    """[q_lora_rank + kv_lora_rank + rope, D], order q_a | kv_c | k_pe, the same on every rank."""
    q_a_norm: Tensor
    """[q_lora_rank]."""
    kv_a_norm: Tensor
    """[kv_lora_rank]."""
    w_q_b: Tensor
    """[H * (nope + rope), q_lora_rank], each head nope first."""
    w_uk: Tensor
    """[H, nope, kv_lora_rank]."""
    w_uv: Tensor
    """[H, V, kv_lora_rank]."""
    w_o: Tensor
    """[D, H*V], the columns of this rank."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DsparkMlpWeights:
    """One rank's MLP weights of a drafter layer."""

    post_attention_norm: Tensor
    """[D]."""
    w_gate_up: Tensor
    """[2*I, D], gate rows first."""
    w_down: Tensor
    """[D, I], the columns of this rank."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DsparkLayer:
    """A drafter layer: one entry a rank in each tuple."""

    attention: tuple[DsparkAttentionWeights, ...]
    mlp: tuple[DsparkMlpWeights, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DsparkPositions:
    """Where the rows of a query block stand: B requests of N rows."""

    positions: Tensor
    """[B, N], position of each row in its sequence."""
    slot_mapping: Tensor
    """[B, N], cache slot of each row; negative for a padded row."""
    block_table: Tensor
    """[B, max_pages]."""
    context_lens: Tensor
    """[B], cached context rows before the block; the rows of the block follow them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DsparkRope:
    """The rotation, and the softmax scale that goes with its extension."""

    inv_freq: Tensor
    """[rope/2], see `yarn_inv_freq`."""
    scale: float
    """Factor on the scores: (nope + rope)^-1/2, times the square of the extension's `yarn_mscale`."""
    mscale: float = 1.0
    """Factor on rotated channels."""


def dspark_context(
    aux: Tensor,
    w_context: Tensor,
    context_norm: Tensor,
    *,
    eps: float = 1e-5,
    acc_dtype: torch.dtype = torch.float32,
) -> Tensor:
    """The target's auxiliary streams of each accepted token, projected (rounded) and normed (rounded).

    Args:
        aux: [T, A, D], the A streams in layer order.
        w_context: [D, A*D].
        context_norm: [D].
        eps: of the norm.
        acc_dtype: type of sums and norm.

    Returns:
        [T, D] in `aux.dtype`.
    """
    projected = linear(aux.flatten(-2), w_context, acc_dtype=acc_dtype)
    return round_to(rms_norm(projected, context_norm, eps=eps, acc_dtype=acc_dtype), aux.dtype)


def dspark_cache_row(
    x: Tensor,
    positions: Tensor,
    w_kv: Tensor,
    kv_a_norm: Tensor,
    rope: DsparkRope,
    *,
    eps: float = 1e-5,
    acc_dtype: torch.dtype = torch.float32,
) -> Tensor:
    """The cache row of one layer: normed latent, then the rotated rope channels; each rounded once more.

    A context token's row comes from `dspark_context`, a query row's from the layer's normed input; the
    weights are the same.

    Args:
        x: [..., D].
        positions: [...].
        w_kv: [kv_lora_rank + rope, D], the last rows of the layer's `w_fused`.
        kv_a_norm: [kv_lora_rank].
        rope: the rotation.
        eps: of the norm.
        acc_dtype: type of sums, norm and rotation.

    Returns:
        [..., kv_lora_rank + rope] in `x.dtype`.
    """
    kv_c, k_pe = linear(x, w_kv, acc_dtype=acc_dtype).tensor_split([kv_a_norm.numel()], dim=-1)
    latent = round_to(rms_norm(kv_c, kv_a_norm, eps=eps, acc_dtype=acc_dtype), x.dtype)
    turned = rotate_interleaved(k_pe, positions, rope.inv_freq, mscale=rope.mscale, acc_dtype=acc_dtype)
    return torch.cat([latent, turned], dim=-1)


def dspark_attention_partial(
    x: Tensor,
    weights: DsparkAttentionWeights,
    kv_cache: Tensor,
    where: DsparkPositions,
    rope: DsparkRope,
    *,
    eps: float = 1e-5,
    acc_dtype: torch.dtype = torch.float32,
) -> Tensor:
    """One rank's attention output of a block, whose rows see the context and one another in both directions.

    Args:
        x: [B, N, D], the normed input.
        weights: of this rank.
        kv_cache: [pages, P, kv_lora_rank + rope], written in place at the block's slots.
        where: positions of the block's rows.
        rope: the rotation.
        eps: of the latents' norms.
        acc_dtype: type of sums, norms and softmax.

    Returns:
        [B, N, D] in `x.dtype`, to be summed over ranks.
    """
    q_rank = weights.q_a_norm.numel()
    w_q_a, w_kv = weights.w_fused[:q_rank], weights.w_fused[q_rank:]
    row = dspark_cache_row(x, where.positions, w_kv, weights.kv_a_norm, rope, eps=eps, acc_dtype=acc_dtype)
    mla_cache_write(row.flatten(0, 1), kv_cache, where.slot_mapping.flatten())
    q_a = linear(x, w_q_a, acc_dtype=acc_dtype)
    q_c = round_to(rms_norm(q_a, weights.q_a_norm, eps=eps, acc_dtype=acc_dtype), x.dtype)
    absorbed, q_pe = absorbed_query(q_c, weights.w_q_b, weights.w_uk, acc_dtype=acc_dtype)
    turned = rotate_interleaved(
        q_pe, where.positions.unsqueeze(-1), rope.inv_freq, mscale=rope.mscale, acc_dtype=acc_dtype
    )
    live = (where.slot_mapping >= 0).sum(dim=1, keepdim=True)
    visible = torch.where(where.slot_mapping >= 0, where.context_lens.long().unsqueeze(1) + live, 0)
    latent, _ = mla_attention_visible(
        torch.cat([absorbed, turned], dim=-1),
        kv_cache,
        where.block_table,
        visible,
        kv_lora_rank=weights.kv_a_norm.numel(),
        scale=rope.scale,
        acc_dtype=acc_dtype,
    )
    values = torch.einsum("...hc,hvc->...hv", latent.to(acc_dtype), weights.w_uv.to(acc_dtype))
    return linear(round_to(values, x.dtype).flatten(-2), weights.w_o, acc_dtype=acc_dtype)


def silu_mlp_partial(
    x: Tensor, w_gate_up: Tensor, w_down: Tensor, *, acc_dtype: torch.dtype = torch.float32
) -> Tensor:
    """One rank's share of a SiLU-gated MLP: rounded after gate-up, after the activation and after down.

    Args:
        x: [..., D]; its type is the one rounded to.
        w_gate_up: [2*I, D], gate rows first.
        w_down: [D, I].
        acc_dtype: type of the sums and of the activation.

    Returns:
        [..., D] in `x.dtype`.
    """
    gate, up = linear(x, w_gate_up, acc_dtype=acc_dtype).to(acc_dtype).chunk(2, dim=-1)
    hidden = torch.nn.functional.silu(gate) * up
    return linear(round_to(hidden, x.dtype), w_down, acc_dtype=acc_dtype)


def dspark_block(
    embeddings: Tensor,
    layers: Sequence[DsparkLayer],
    final_norm: Tensor,
    kv_caches: Sequence[Tensor],
    where: DsparkPositions,
    rope: DsparkRope,
    *,
    eps: float = 1e-5,
    acc_dtype: torch.dtype = torch.float32,
) -> Tensor:
    """The parallel pass over a query block `[anchor, mask, ..., mask]`: pre-norm layers around a rounded residual.

    Args:
        embeddings: [B, N, D], rows of the target's embedding.
        layers: the drafter's layers.
        final_norm: [D].
        kv_caches: one a layer, [pages, P, kv_lora_rank + rope]; hold the context, get the block's rows.
        where: positions of the block's rows.
        rope: the rotation.
        eps: of all norms.
        acc_dtype: type of sums, norms and softmax.

    Returns:
        [B, N, D] in `embeddings.dtype`; the target's LM head turns it into base logits (`output_logits`).
        Rows of padding are unspecified.
    """

    def normed(residual: Tensor, weight: Tensor) -> Tensor:
        return round_to(rms_norm(residual, weight, eps=eps, acc_dtype=acc_dtype), residual.dtype)

    residual = embeddings
    for layer, kv_cache in zip(layers, kv_caches, strict=True):
        x = normed(residual, layer.attention[0].input_norm)
        shares = [
            dspark_attention_partial(x, rank, kv_cache, where, rope, eps=eps, acc_dtype=acc_dtype)
            for rank in layer.attention
        ]
        attended = rank_order_sum(torch.stack(shares), acc_dtype=acc_dtype)
        residual = add_to_prefix(residual, attended, acc_dtype=acc_dtype)
        x = normed(residual, layer.mlp[0].post_attention_norm)
        shares = [silu_mlp_partial(x, rank.w_gate_up, rank.w_down, acc_dtype=acc_dtype) for rank in layer.mlp]
        delta = rank_order_sum(torch.stack(shares), acc_dtype=acc_dtype)
        residual = add_to_prefix(residual, delta, acc_dtype=acc_dtype)
    return normed(residual, final_norm)


def markov_draft(
    base_logits: Tensor,
    anchor_token_ids: Tensor,
    w_embed: Tensor,
    w_bias: Tensor,
    *,
    acc_dtype: torch.dtype = torch.float32,
) -> tuple[Tensor, Tensor]:
    """The most likely draft, left to right: each token's logits get a low-rank bias of the token before it.

    Args:
        base_logits: [B, N, V], of the parallel pass.
        anchor_token_ids: [B], the token that the first draft follows.
        w_embed: [V, r].
        w_bias: [V, r].
        acc_dtype: type of the sums.

    Returns:
        Draft token ids [B, N] int64, and the corrected logits [B, N, V] in `acc_dtype`, from which
        `softmax(logits / temperature)` is the drafter's distribution.
    """
    previous, tokens, corrected = anchor_token_ids.long(), [], []
    for base in base_logits.unbind(1):
        bias = linear(w_embed[previous], w_bias, acc_dtype=acc_dtype, out_dtype=base_logits.dtype)
        logits = base.to(acc_dtype) + bias.to(acc_dtype)
        previous = greedy_token(logits)
        tokens.append(previous)
        corrected.append(logits)
    return torch.stack(tokens, dim=1), torch.stack(corrected, dim=1)


def draft_confidence(
    hidden: Tensor,
    markov_embedding: Tensor | None,
    weight: Tensor,
    bias: Tensor,
    *,
    acc_dtype: torch.dtype = torch.float32,
) -> Tensor:
    """The drafter's own estimate that a draft will be accepted, a logistic regression on its hidden row.

    Args:
        hidden: [..., D].
        markov_embedding: [..., r], of the token before; None for a head without it.
        weight: [D] or [D + r].
        bias: [1].
        acc_dtype: type of the sum.

    Returns:
        [...] in 0 ... 1, `acc_dtype`.
    """
    x = hidden if markov_embedding is None else torch.cat([hidden, markov_embedding], dim=-1)
    return torch.sigmoid(x.to(acc_dtype) @ weight.to(acc_dtype) + bias.to(acc_dtype))
