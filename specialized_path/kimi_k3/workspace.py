"""The buffers of the decode steps, owned and allocated once, and the kernels, compiled before a graph is captured."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from specialized_path.kernels.attn_res.variants import HIDDEN
from specialized_path.kernels.attn_res.variants import find_variant as find_attn_res
from specialized_path.kernels.embedding.variants import variants as embedding_variants
from specialized_path.kernels.kda.variants import find_variant as find_kda
from specialized_path.kernels.mla.launch import KV_RANK, ROW, PartialAttention
from specialized_path.kernels.mla.split_plan import SplitPlan, plan_splits
from specialized_path.kernels.mla.variants import core_row_tiles, core_variant, query_variant, value_variant
from specialized_path.kernels.projection.variants import find_variant as find_projection
from specialized_path.kernels.variant import KernelVariant
from specialized_path.kimi_k3.mlp import Mlp
from specialized_path.kimi_k3.switch import MAX_BATCH
from specialized_path.kimi_k3.weights import KdaLayer, Layer

BLOCK_SIZE = 12


class Workspace:
    """Activations of one step of up to 64 requests; all layers use them in turn."""

    def __init__(
        self, layers: tuple[Layer, ...], num_heads: int, max_context: int, device: torch.device
    ) -> None:
        """Allocates for the widest projection, and for the partial attentions of every batch."""
        num_blocks = -(-len(layers) // BLOCK_SIZE)
        rows = {"dtype": torch.bfloat16, "device": device}
        self.hidden = torch.empty(MAX_BATCH, HIDDEN, **rows)
        self.attn_out = torch.empty(MAX_BATCH, HIDDEN, **rows)
        self.mlp_in = torch.empty(MAX_BATCH, HIDDEN, **rows)
        self.mlp_out = torch.empty(MAX_BATCH, HIDDEN, **rows)
        self.prefix = torch.empty(MAX_BATCH, HIDDEN, **rows)
        self.blocks = torch.empty(MAX_BATCH, num_blocks, HIDDEN, **rows)
        self.y = torch.empty(MAX_BATCH, num_heads * 128, **rows)
        self.query = torch.empty(MAX_BATCH, num_heads, ROW, **rows)
        self._projected = torch.empty(
            MAX_BATCH * max(layer.attention.w_in.shape[0] for layer in layers), **rows
        )
        self._num_heads = num_heads
        row_tiles = core_row_tiles(num_heads)[1]
        num_ctas = torch.cuda.get_device_properties(device).multi_processor_count
        self._plans: dict[int, SplitPlan] = {
            batch: plan_splits(batch, row_tiles, max_context, num_ctas=num_ctas)
            for batch in range(1, MAX_BATCH + 1)
        }
        chunks = max(batch * plan.max_splits for batch, plan in self._plans.items())
        self._sums = torch.empty(chunks * num_heads * KV_RANK, device=device)
        self._max_and_sum = torch.empty(chunks * num_heads * 2, device=device)

    @property
    def num_bytes(self) -> int:
        """Memory that it holds."""
        return sum(t.numel() * t.element_size() for t in vars(self).values() if isinstance(t, Tensor))

    def projected(self, num_rows: int, num_columns: int) -> Tensor:
        """[rows, columns] of the fused input projection."""
        return self._projected[: num_rows * num_columns].view(num_rows, num_columns)

    def partial(self, num_reqs: int) -> PartialAttention:
        """Plan and room of the attention core for a batch."""
        plan = self._plans[num_reqs]
        shape = (num_reqs, plan.max_splits, self._num_heads)
        count = num_reqs * plan.max_splits * self._num_heads
        return PartialAttention(
            plan=plan,
            sums=self._sums[: count * KV_RANK].view(*shape, KV_RANK),
            max_and_sum=self._max_and_sum[: count * 2].view(*shape, 2),
        )


def step_variants(
    layers: tuple[Layer, ...], mlps: tuple[Mlp, ...], num_heads: int
) -> dict[str, KernelVariant]:
    """Every kernel that a pure decode step of 1 to 64 requests launches, by name."""
    attention = (variant for layer in layers for variant in _layer_variants(layer, num_heads))
    found = (*attention, *(variant for mlp in mlps for variant in mlp.variants()), *embedding_variants())
    return {variant.name: variant for variant in found}


def _layer_variants(layer: Layer, num_heads: int) -> Iterator[KernelVariant]:
    index = layer.layer_idx
    yield find_attn_res(-(-index // BLOCK_SIZE), "add" if index else "keep").kernel
    yield find_attn_res(index // BLOCK_SIZE + 1, "add" if index % BLOCK_SIZE else "replace").kernel
    for batch in range(1, MAX_BATCH + 1):
        for weight in (layer.attention.w_in, layer.w_o):
            yield find_projection(weight.shape[0], weight.shape[1], batch).kernel
        if isinstance(layer.attention, KdaLayer):
            yield find_kda(num_heads, 1, batch).kernel
    if not isinstance(layer.attention, KdaLayer):
        yield query_variant("bf16", 1)
        yield query_variant("bf16", 2)
        yield core_variant("bf16", core_row_tiles(num_heads)[0])
        yield value_variant("chunks")
