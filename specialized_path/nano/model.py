"""The miniature Kimi K3 as a vLLM model, with the switch between its two arms."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from vllm.config import VllmConfig
from vllm.forward_context import get_forward_context
from vllm.model_executor.layers.mamba.mamba_utils import MambaStateCopyFunc, MambaStateCopyFuncCalculator
from vllm.model_executor.models.interfaces import HasInnerState, IsHybrid

from specialized_path.nano.attn_res import Query, mix_sources
from specialized_path.nano.config import KimiK3NanoConfig
from specialized_path.nano.fused_rows import load_checkpoint
from specialized_path.nano.kda import kda_state_dtypes, kda_state_shapes
from specialized_path.nano.layer import DecoderLayer
from specialized_path.nano.mlp import Linear
from specialized_path.nano.norm import RmsNorm

if TYPE_CHECKING:
    from specialized_path.runtime.executor import DecodeExecutor
    from specialized_path.runtime.plan import StepPlanner


class KimiK3NanoModel(nn.Module):
    """Embedding, decoder layers and final mixture."""

    def __init__(self, vllm_config: VllmConfig, prefix: str) -> None:
        """Builds the layers under `prefix`."""
        super().__init__()
        config: KimiK3NanoConfig = vllm_config.model_config.hf_config
        dtype = vllm_config.model_config.dtype
        self.embed_tokens = Linear(config.hidden_size, config.vocab_size, dtype)
        self.layers = nn.ModuleList(
            DecoderLayer(vllm_config, f"{prefix}.layers.{i}", i) for i in range(config.num_hidden_layers)
        )
        self.output_attn_res_norm = RmsNorm(config.hidden_size, config.rms_norm_eps, dtype)
        self.output_attn_res_proj = Query(config.hidden_size, dtype)
        self.norm = RmsNorm(config.hidden_size, config.rms_norm_eps, dtype)

    def embed(self, input_ids: Tensor) -> Tensor:
        """Returns the embeddings [T, hidden] of token ids [T]."""
        return functional.embedding(input_ids, self.embed_tokens.weight)

    def forward(self, prefix: Tensor) -> Tensor:
        """Maps embeddings [T, hidden] to the final normalised hidden states [T, hidden]."""
        blocks: list[Tensor] = []
        delta = torch.zeros_like(prefix)
        for layer in self.layers:
            prefix, delta, blocks = layer(prefix + delta, blocks)
        sources = [*blocks, prefix + delta]
        mixed = mix_sources(sources, self.output_attn_res_norm, self.output_attn_res_proj)
        return self.norm(mixed.to(prefix.dtype))


class KimiK3NanoForCausalLM(nn.Module, HasInnerState, IsHybrid):
    """The served model.

    `plain_forward` is the baseline arm and always complete. With
    `additional_config={"decode_backend": "latency_specialized"}` every step is planned once, and steps that
    the specialised path covers run there instead, on the same weights and caches.
    """

    planner: "StepPlanner | None" = None
    executor: "DecodeExecutor | None" = None

    def __init__(self, *, vllm_config: VllmConfig, prefix: str = "") -> None:
        """Builds the model, refusing deployments that the requested arm does not support."""
        super().__init__()
        self.config: KimiK3NanoConfig = vllm_config.model_config.hf_config
        self.model = KimiK3NanoModel(vllm_config, f"{prefix}.model" if prefix else "model")
        dtype = vllm_config.model_config.dtype
        self.lm_head = Linear(self.config.hidden_size, self.config.vocab_size, dtype)
        if _asks_for_decode_backend(vllm_config):
            self._switch_on_specialized_path(vllm_config)
        if vllm_config.parallel_config.world_size > 1:
            raise ValueError(
                "the miniature Kimi K3 runs on one worker: set tensor and pipeline parallel to 1"
            )

    def _switch_on_specialized_path(self, vllm_config: VllmConfig) -> None:
        """Imports the specialised path, which nothing else does, and lets it refuse the deployment."""
        from specialized_path.runtime.switch_on import switch_on

        self.planner, self.executor = switch_on(vllm_config, self)

    def embed_input_ids(self, input_ids: Tensor) -> Tensor:
        """Returns the embeddings [T, hidden] of token ids [T]."""
        return self.model.embed(input_ids)

    def forward(
        self,
        input_ids: Tensor | None,
        positions: Tensor,
        intermediate_tensors: object | None = None,
        inputs_embeds: Tensor | None = None,
        **_: Any,
    ) -> Tensor:
        """Runs one engine step and returns its hidden states [T, hidden]."""
        if self.planner is None or self.executor is None:
            return self.plain_forward(input_ids, positions, intermediate_tensors, inputs_embeds)
        plan = self.planner.plan(get_forward_context().attn_metadata, len(positions), inputs_embeds is None)
        if plan.path == "specialized":
            return self.executor.run(plan, input_ids)
        return self.plain_forward(input_ids, positions, intermediate_tensors, inputs_embeds)

    def plain_forward(
        self,
        input_ids: Tensor | None,
        positions: Tensor,  # noqa: ARG002 - part of the engine's signature; the model has no positions
        intermediate_tensors: object | None = None,  # noqa: ARG002 - no pipeline stages
        inputs_embeds: Tensor | None = None,
    ) -> Tensor:
        """Runs any step, prefill chunks and verify steps included, and returns the hidden states."""
        if inputs_embeds is None:
            assert input_ids is not None
            inputs_embeds = self.model.embed(input_ids)
        return self.model(inputs_embeds)

    def compute_logits(self, hidden_states: Tensor) -> Tensor:
        """Returns the logits [T, vocab_size] of hidden states [T, hidden]."""
        return self.lm_head(hidden_states)

    def load_weights(self, weights: Iterable[tuple[str, Tensor]]) -> set[str]:
        """Fills every parameter from the checkpoint, or raises with all that does not fit."""
        return load_checkpoint(self, weights)

    @classmethod
    def get_mamba_state_dtype_from_config(cls, vllm_config: VllmConfig) -> tuple[torch.dtype, ...]:
        """Dtypes of a KDA layer's window and state."""
        return kda_state_dtypes(vllm_config)

    @classmethod
    def get_mamba_state_shape_from_config(cls, vllm_config: VllmConfig) -> tuple[tuple[int, ...], ...]:
        """Shapes of a KDA layer's window and state."""
        return kda_state_shapes(vllm_config)

    @classmethod
    def get_mamba_state_copy_func(cls) -> tuple[MambaStateCopyFunc, ...]:
        """How vLLM copies window and state between blocks for prefix caching."""
        return MambaStateCopyFuncCalculator.kda_state_copy_func()


def _asks_for_decode_backend(vllm_config: VllmConfig) -> bool:
    """Whether the deployment asks for anything but the default; what it asks for is judged by the runtime."""
    additional = vllm_config.additional_config
    return isinstance(additional, dict) and additional.get("decode_backend", "auto") != "auto"
