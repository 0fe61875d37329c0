"""Runs pure decode steps of vLLM's Kimi K3 text model, from the embedding to the last layer."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from vllm.distributed import get_tensor_model_parallel_world_size, tensor_model_parallel_all_reduce
from vllm.forward_context import get_forward_context, is_forward_context_available
from vllm.logger import init_logger
from vllm.model_executor.layers.mamba.mamba_utils import is_conv_state_dim_first
from vllm.models.kimi_k3.nvidia.ops import attn_res

from specialized_path.kernels.attn_res.launch import attn_res_after_attention, attn_res_before_attention
from specialized_path.kernels.embedding.launch import embed
from specialized_path.kernels.kda.launch import kda_decode
from specialized_path.kernels.mla.launch import (
    Q_RANK,
    ROW,
    mla_attention_partial,
    mla_query,
    mla_value_merged,
)
from specialized_path.kernels.projection.launch import project
from specialized_path.kimi_k3.mlp import bind_mlps
from specialized_path.kimi_k3.steps import decide_step
from specialized_path.kimi_k3.switch import MAX_BATCH
from specialized_path.kimi_k3.weights import KdaLayer, Layer, MlaLayer, bind_embedding, bind_layers
from specialized_path.kimi_k3.workspace import Workspace, step_variants
from specialized_path.runtime.limits import Limits
from specialized_path.runtime.plan import StepPlan, StepPlanner

logger = init_logger(f"vllm.{__name__}")


@dataclass(frozen=True, slots=True, kw_only=True)
class StartUpCost:
    """What the path added to the start of the engine."""

    compile_seconds: float
    num_variants: int
    workspace_bytes: int
    copied_bytes: int
    """Weights that exist a second time, in another order."""


class K3Decode:
    """Plans every step that reaches the model and runs those in scope; leaves the caches as vLLM's forward would.

    Replays of a captured graph do not reach the model: `decisions` counts captures and eager steps.
    """

    def __init__(self, model: Any, max_context: int) -> None:
        """Binds the loaded weights of vLLM's `KimiLinearModel`, allocates, and compiles every variant."""
        self._model = model
        self._layers, self._embedding, self._mlps = (
            bind_layers(model),
            bind_embedding(model),
            bind_mlps(model),
        )
        num_heads = self._layers[0].w_o.shape[1] // 128
        self._workspace = Workspace(self._layers, num_heads, max_context, self._layers[0].w_o.device)
        start = time.perf_counter()
        variants = step_variants(self._layers, self._mlps, num_heads)
        for variant in variants.values():
            variant.compiled()
        self.start_up = StartUpCost(
            compile_seconds=time.perf_counter() - start,
            num_variants=len(variants),
            workspace_bytes=self._workspace.num_bytes,
            copied_bytes=sum(mlp.copied_bytes for mlp in self._mlps),
        )
        attentions = [layer.attention for layer in self._layers]
        self._planner = StepPlanner(
            kda_layers=tuple(a.module.prefix for a in attentions if isinstance(a, KdaLayer)),
            mla_layers=tuple(a.module.layer_name for a in attentions if isinstance(a, MlaLayer)),
            limits=Limits(max_num_reqs=MAX_BATCH, max_num_drafts=0, max_context_len=max_context),
        )
        self.decisions: Counter[str] = Counter()
        self.stock_mlps = {i: mlp.reason for i, mlp in enumerate(self._mlps) if mlp.reason is not None}
        """Layers whose MLP vLLM's module runs, and why."""
        logger.info(
            "Kimi K3 decode steps on specialized_path's kernels: %s; MLPs that stay vLLM's: %s",
            self.start_up,
            self.stock_mlps or "none",
        )

    def plan(self, num_rows: int, has_token_ids: bool) -> StepPlan | None:
        """Decides one step: the plan, or None for vLLM's forward; either is counted with its reason."""
        context = get_forward_context() if is_forward_context_available() else None
        reason, plan = decide_step(self._planner, context, num_rows, has_token_ids)
        if not self.decisions[reason]:
            logger.info("Kimi K3 decode: first %s step, %d rows", reason, num_rows)
        self.decisions[reason] += 1
        return plan

    def run(self, token_ids: Tensor) -> Tensor:
        """Runs a planned step; [B] token ids to the hidden states [B, 7168] before the final norm."""
        context, space, batch = get_forward_context(), self._workspace, len(token_ids)
        num_ranks = get_tensor_model_parallel_world_size()
        # Where vLLM's kernels lie in front, a kernel may not start early: here, behind its MLPs and its collectives.
        prefix = embed(
            token_ids, self._embedding.weight, vocab_start=self._embedding.vocab_start,
            out=space.prefix[:batch], use_pdl=False,
        )  # fmt: skip
        if num_ranks > 1:
            prefix = tensor_model_parallel_all_reduce(prefix)
        blocks, delta, is_ours = space.blocks[:batch], None, num_ranks == 1
        for layer, mlp in zip(self._layers, self._mlps, strict=True):
            before, after = layer.before_attention, layer.after_attention
            x, _ = attn_res_before_attention(
                prefix, blocks, delta, before.res_norm, before.res_proj, before.out_norm,
                layer_idx=layer.layer_idx, out=space.hidden[:batch], prefix_out=prefix, use_pdl=is_ours,
            )  # fmt: skip
            attn_out = self._attend(x, layer, context.attn_metadata, context.slot_mapping)
            x, _ = attn_res_after_attention(
                prefix, blocks, attn_out, after.res_norm, after.res_proj, after.out_norm,
                layer_idx=layer.layer_idx, out=space.mlp_in[:batch], prefix_out=prefix,
            )  # fmt: skip
            delta = mlp.run(x, space.mlp_out[:batch])
            is_ours = mlp.reason is None and num_ranks == 1
        norm = self._model.output_attn_res_norm
        return attn_res(
            prefix, delta, blocks, norm.weight, self._model.output_attn_res_proj.weight.squeeze(0), None,
            num_blocks=self._model.num_attn_res_blocks, block_write_idx=-1, eps=norm.variance_epsilon,
            output_norm_eps=0.0,
        )  # fmt: skip

    def _attend(
        self, x: Tensor, layer: Layer, metadata: Mapping[str, Any], slot_mapping: Mapping[str, Tensor]
    ) -> Tensor:
        batch, attention, space = len(x), layer.attention, self._workspace
        projected = project(x, attention.w_in, out=space.projected(batch, attention.w_in.shape[0]))
        if isinstance(attention, KdaLayer):
            y = self._kda(projected, attention, metadata[attention.module.prefix])
        else:
            name = attention.module.layer_name
            y = self._mla(projected, attention, metadata[name].decode, slot_mapping[name][:batch])
        out = project(y, layer.w_o, out=space.attn_out[:batch])
        return out if get_tensor_model_parallel_world_size() == 1 else tensor_model_parallel_all_reduce(out)

    def _kda(self, projected: Tensor, layer: KdaLayer, metadata: Any) -> Tensor:
        conv_state, state = layer.module.kv_cache[:2]
        if not is_conv_state_dim_first():
            conv_state = conv_state.transpose(-1, -2)
        batch = len(projected)
        slots = metadata.non_spec_state_indices_tensor[:batch]
        return kda_decode(projected, layer.weights, conv_state, state, slots, out=self._workspace.y[:batch])

    def _mla(self, projected: Tensor, layer: MlaLayer, decode: Any, slot_mapping: Tensor) -> Tensor:
        batch, space, cache = len(projected), self._workspace, layer.module.kv_cache
        query = mla_query(projected, layer.weights, cache, slot_mapping, out=space.query[:batch])
        partial = space.partial(batch)
        seq_lens = decode.seq_lens[:batch]
        mla_attention_partial(query.unsqueeze(1), cache, decode.block_table[:batch], seq_lens, partial)
        gate = projected[:, Q_RANK + ROW :]
        return mla_value_merged(partial, layer.w_uv, gate, seq_lens, num_tokens=1, out=space.y[:batch])


def build_decode(model: Any, max_context: int) -> K3Decode:
    """Builds the decode path of a loaded model.

    Raises:
        RuntimeError: A CUDA graph is being captured: kernels cannot be compiled any more.
    """
    if torch.cuda.is_current_stream_capturing():
        raise RuntimeError("the first step of the model is a graph capture: the decode path was never built")
    return K3Decode(model, max_context)
