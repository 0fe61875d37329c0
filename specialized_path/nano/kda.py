"""Kimi Delta Attention: a short convolution and a gated delta-rule recurrence in vLLM's state cache."""

from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.nn import functional
from vllm.config import VllmConfig
from vllm.forward_context import get_forward_context
from vllm.model_executor.layers.mamba.abstract import MambaBase
from vllm.model_executor.layers.mamba.mamba_utils import (
    MambaStateDtypeCalculator,
    MambaStateShapeCalculator,
    is_conv_state_dim_first,
)
from vllm.v1.attention.backends.registry import MambaAttentionBackendEnum

from specialized_path.nano.config import KimiK3NanoConfig
from specialized_path.nano.fused_rows import FusedRows
from specialized_path.nano.kda_recurrence import run_kda
from specialized_path.nano.kda_rows import KdaRows, kda_rows_of_step
from specialized_path.nano.mlp import Linear
from specialized_path.nano.norm import RmsNorm


def kda_state_shapes(vllm_config: VllmConfig) -> tuple[tuple[int, ...], ...]:
    """Shapes of the convolution window and of the recurrent state of one request and layer."""
    config = vllm_config.model_config.hf_config
    return MambaStateShapeCalculator.kda_state_shape(
        1,
        config.num_attention_heads,
        config.kda_head_dim,
        conv_kernel_size=config.short_conv_kernel_size,
        num_spec=vllm_config.num_speculative_tokens,
    )


def kda_state_dtypes(vllm_config: VllmConfig) -> tuple[torch.dtype, ...]:
    """Dtypes of the convolution window and of the recurrent state."""
    cache = vllm_config.cache_config
    return MambaStateDtypeCalculator.kda_state_dtype(
        vllm_config.model_config.dtype, cache.mamba_cache_dtype, cache.mamba_ssm_cache_dtype
    )


class KdaAttention(nn.Module, MambaBase):
    """One KDA layer; `kv_cache` is bound by vLLM to the pair (windows, states), indexed by slot."""

    def __init__(self, vllm_config: VllmConfig, prefix: str) -> None:
        """Builds the weights and announces the layer's state cache under `prefix`."""
        super().__init__()
        config: KimiK3NanoConfig = vllm_config.model_config.hf_config
        dtype = vllm_config.model_config.dtype
        heads, dim, width = config.num_attention_heads, config.kda_head_dim, config.kda_width
        self.config, self.prefix = config, prefix
        self._state_shapes = kda_state_shapes(vllm_config)
        self._state_dtypes = kda_state_dtypes(vllm_config)
        in_rows = {"q_proj": width, "k_proj": width, "v_proj": width, "g_proj": width, "f_a_proj": dim}
        self.in_proj = FusedRows(in_rows | {"b_proj": heads}, config.hidden_size, dtype)
        taps = {"q_conv1d": width, "k_conv1d": width, "v_conv1d": width}
        self.conv1d = FusedRows(taps, config.short_conv_kernel_size, torch.float32)
        self.f_b_proj = Linear(dim, width, dtype)
        self.A_log = nn.Parameter(torch.empty(heads, dtype=torch.float32), requires_grad=False)
        self.dt_bias = nn.Parameter(torch.empty(width, dtype=torch.float32), requires_grad=False)
        self.o_norm = RmsNorm(dim, config.rms_norm_eps, dtype)
        self.o_proj = Linear(width, config.hidden_size, dtype)
        layers = vllm_config.compilation_config.static_forward_context
        if prefix in layers:
            raise ValueError(f"duplicate layer name: {prefix}")
        layers[prefix] = self

    @property
    def mamba_type(self) -> MambaAttentionBackendEnum:
        """Gated DeltaNet metadata: the only kind that describes draft tokens and accepted counts."""
        return MambaAttentionBackendEnum.GDN_ATTN

    def get_state_shape(self) -> Iterable[tuple[int, ...]]:
        """Shapes of window and state, for vLLM's cache allocation."""
        return self._state_shapes

    def get_state_dtype(self) -> tuple[torch.dtype, ...]:
        """Dtypes of window and state, for vLLM's cache allocation."""
        return self._state_dtypes

    def conv_windows(self) -> Tensor:
        """[slots, 3 * width, window] view of the windows, whichever way vLLM lays them out."""
        windows = self.kv_cache[0]
        return windows if is_conv_state_dim_first() else windows.transpose(-1, -2)

    def recurrent_states(self) -> Tensor:
        """[slots, H, V, K] states."""
        return self.kv_cache[1]

    def forward(self, x: Tensor) -> Tensor:
        """Maps [T, hidden] to [T, hidden] and moves the states of the step's requests on.

        Without metadata for the layer (vLLM's profiling runs) the result is zero and no state is touched.
        """
        layers = get_forward_context().attn_metadata
        if not isinstance(layers, dict) or self.prefix not in layers:
            return torch.zeros_like(x)
        *qkv, gate, f_a, b = self.in_proj(x)
        g = self._log_decay(f_a)
        beta = torch.sigmoid(b.float())
        raw = torch.cat(qkv, dim=-1)
        o = x.new_zeros(len(x), self.config.num_attention_heads, self.config.kda_head_dim)
        for rows in kda_rows_of_step(layers[self.prefix]):
            self._run_rows(rows, raw, g, beta, o)
        gated = self.o_norm(o).flatten(1).float() * torch.sigmoid(gate.float())
        return self.o_proj(gated.to(x.dtype))

    def _log_decay(self, f_a: Tensor) -> Tensor:
        """[T, H, K], between the gate's lower bound and 0."""
        shape = (self.config.num_attention_heads, self.config.kda_head_dim)
        raw = (self.f_b_proj(f_a).float() + self.dt_bias).unflatten(-1, shape)
        return self.config.kda_gate_lower_bound * torch.sigmoid(self.A_log.exp().unsqueeze(-1) * raw)

    def _run_rows(self, rows: KdaRows, raw: Tensor, g: Tensor, beta: Tensor, o: Tensor) -> None:
        """Runs convolution and recurrence for `rows`; writes their outputs into `o` and their states back."""
        active = rows.is_active
        shape = (self.config.num_attention_heads, self.config.kda_head_dim)
        mixed = self._convolve(rows, raw[rows.tokens]).unflatten(-1, (3, *shape))
        q, k, v = mixed.unbind(2)
        k = k * torch.rsqrt(k.square().sum(-1, keepdim=True) + self.config.qk_l2_norm_eps)
        q = q * torch.rsqrt(q.square().sum(-1, keepdim=True) + self.config.qk_l2_norm_eps) * shape[1] ** -0.5
        readable = rows.has_initial_state & (rows.start_slots > 0)
        initial = self.recurrent_states()[rows.start_slots.clamp(min=0)].float()
        initial = torch.where(readable[:, None, None, None], initial, 0.0)
        padded_g = torch.where(active[..., None, None], g[rows.tokens], 0.0)
        padded_beta = torch.where(active[..., None], beta[rows.tokens], 0.0)
        outputs, states = run_kda(q, k, v, padded_g, padded_beta, initial, keep_states=rows.keeps_every_state)
        null = rows.window_slots <= 0
        outputs[null] = 0.0
        o[rows.tokens[active]] = outputs[active].to(o.dtype)
        written = rows.end_slots > 0
        if rows.keeps_every_state:
            written &= active
        self.recurrent_states()[rows.end_slots[written]] = states[written].to(self._state_dtypes[1])

    def _convolve(self, rows: KdaRows, raw: Tensor) -> Tensor:
        """Returns the SiLU of the causal convolution [R, L, channels] in float32 and stores the windows."""
        taps = self.config.short_conv_kernel_size - 1
        readable = rows.has_initial_state & (rows.window_slots > 0)
        entries = rows.window_offsets.unsqueeze(1) + torch.arange(taps)
        slots = rows.window_slots.clamp(min=0)
        windows = self.conv_windows()
        past = windows[slots.unsqueeze(1), :, entries]
        past = torch.where(readable[:, None, None], past, torch.zeros((), dtype=past.dtype))
        inputs = torch.cat((past, raw.to(past.dtype)), dim=1)
        self._store_windows(rows, inputs, windows, taps)
        filtered = sum(
            inputs[:, t : t + raw.shape[1]].float() * self.conv1d.weight[:, t] for t in range(taps + 1)
        )
        return functional.silu(filtered)

    @staticmethod
    def _store_windows(rows: KdaRows, inputs: Tensor, windows: Tensor, taps: int) -> None:
        """Keeps the last taps of each request; a verify step keeps all inputs but the first tap instead."""
        live = (rows.window_slots > 0) & (rows.lengths > 0)
        if rows.keeps_every_state:
            first, count = torch.ones_like(rows.lengths), inputs.shape[1] - 1
        else:
            first, count = rows.lengths, taps
        picked = (first.unsqueeze(1) + torch.arange(count)).clamp(max=inputs.shape[1] - 1)
        kept = inputs.gather(1, picked.unsqueeze(-1).expand(-1, -1, inputs.shape[-1]))
        windows[rows.window_slots[live], :, :count] = kept[live].transpose(1, 2)
