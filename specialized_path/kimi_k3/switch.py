"""Who runs the decode steps of a Kimi K3 deployment, and every reason why this package cannot."""

import copy
from dataclasses import dataclass, field
from enum import StrEnum
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from specialized_path.runtime.config import KEY, DecodeBackend, parse_decode_backend
from specialized_path.runtime.differences import list_differences
from specialized_path.runtime.support import UnsupportedDeployment

if TYPE_CHECKING:
    from vllm.config import VllmConfig

PROVIDER_KEY = "decode_provider"
VLLM_VERSIONS = ("0.33.0",)
"""Versions whose model, metadata and cache layouts this package was written against."""
PROVEN_CAPABILITIES = ((9, 0),)
"""Compute capabilities on which the kernels were verified (docs/slice.md says what was run)."""
MAX_BATCH = 64
"""Requests of a step that the kernels take."""


class DecodeProvider(StrEnum):
    """The values of `additional_config.decode_provider`."""

    VLLM = "vllm"
    """vLLM's own specialised decode, which serves SM100 only."""

    CUTE = "cute"
    """This package's kernels, where they were proven."""

    CUTE_EXPERIMENTAL = "cute-experimental"
    """The same also where they were not."""


def choose_decode_provider(additional_config: object, capability: tuple[int, int]) -> DecodeProvider | None:
    """Returns who runs decode steps, None when the switch is off.

    Without an explicit choice vLLM keeps SM100, the devices that its own path serves.

    Raises:
        ValueError: The switch or the choice has an unknown value.
    """
    if parse_decode_backend(additional_config) is DecodeBackend.AUTO:
        return None
    assert isinstance(additional_config, dict)
    default = DecodeProvider.VLLM if capability[0] == 10 else DecodeProvider.CUTE
    value = additional_config.get(PROVIDER_KEY, default)
    try:
        return DecodeProvider(value)
    except ValueError:
        allowed = ", ".join(repr(str(provider)) for provider in DecodeProvider)
        raise ValueError(
            f"additional_config.{PROVIDER_KEY}: got {value!r}, expected one of {allowed}"
        ) from None


def without_switch(additional_config: dict[str, Any]) -> dict[str, Any]:
    """The configuration as vLLM's own code may read it: its specialised decode stays off."""
    return {name: value for name, value in additional_config.items() if name not in (KEY, PROVIDER_KEY)}


_MODEL_CONSTANTS: dict[str, object] = {
    "hidden_size": 7168,
    "q_lora_rank": 1536,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "mla_use_nope": True,
    "mla_use_output_gate": True,
    "attn_res_block_size": 12,
    "rms_norm_eps": 1e-5,
}
_KDA_CONSTANTS: dict[str, object] = {
    "head_dim": 128,
    "short_conv_kernel_size": 4,
    "gate_lower_bound": -5.0,
    "use_full_rank_gate": True,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class K3Deployment:
    """The settings of an engine that decide whether this package can serve it; the defaults are supported."""

    vllm_version: str = "0.33.0"
    capability: tuple[int, int] = (9, 0)
    dtype: str = "bfloat16"
    kv_cache_dtype: str = "auto"
    state_dtypes: tuple[str, ...] = ("bfloat16", "float32")
    """Of the convolution window and of the recurrent state."""
    tensor_parallel_size: int = 1
    pipeline_parallel_size: int = 1
    data_parallel_size: int = 1
    decode_context_parallel_size: int = 1
    enable_expert_parallel: bool = False
    enable_microbatching: bool = False
    speculative_method: str | None = None
    enable_lora: bool = False
    enable_sleep_mode: bool = False
    has_kv_connector: bool = False
    use_replayssm: bool = False
    decode_graphs: str = "FULL"
    """Mode of the CUDA graphs of pure decode steps."""
    mixed_graphs: str = "NONE"
    """Mode of the CUDA graphs of the other steps."""
    local_heads: int = 12
    """Attention heads of one rank, of both kinds."""
    compilation_mode: str = "NONE"
    """How vLLM compiles models."""
    model: dict[str, object] = field(default_factory=lambda: dict(_MODEL_CONSTANTS))
    kda: dict[str, object] = field(default_factory=lambda: dict(_KDA_CONSTANTS))


_ALLOWED: dict[str, tuple[object, ...]] = {
    "vllm_version": VLLM_VERSIONS,
    "dtype": ("bfloat16",),
    "kv_cache_dtype": ("auto", "bfloat16"),
    "state_dtypes": (("bfloat16", "float32"),),
    "pipeline_parallel_size": (1,),
    "data_parallel_size": (1,),
    "decode_context_parallel_size": (1,),
    "enable_expert_parallel": (False,),
    "enable_microbatching": (False,),
    "speculative_method": (None,),
    "enable_lora": (False,),
    "enable_sleep_mode": (False,),
    "has_kv_connector": (False,),
    "use_replayssm": (False,),
    "decode_graphs": ("FULL",),
    "mixed_graphs": ("NONE", "PIECEWISE"),
    "local_heads": (6, 12),
}
_PROVEN: dict[str, tuple[object, ...]] = {"capability": PROVEN_CAPABILITIES, "tensor_parallel_size": (1,)}
"""What an experimental choice goes beyond."""


def list_refusals(deployment: K3Deployment, *, experimental: bool = False) -> tuple[str, ...]:
    """Returns every reason not to serve `deployment`, each as "setting: got X, expected Y"; () means served."""
    return (
        *list_differences(deployment, _ALLOWED if experimental else _ALLOWED | _PROVEN),
        *list_differences(deployment.model, _one_each(_MODEL_CONSTANTS), prefix="model."),
        *list_differences(deployment.kda, _one_each(_KDA_CONSTANTS), prefix="linear_attn_config."),
    )


def list_costs(deployment: K3Deployment) -> tuple[str, ...]:
    """Returns what a served deployment pays for that its settings do not need."""
    if deployment.compilation_mode == "NONE":
        return ()
    return (
        f"compilation mode: got {deployment.compilation_mode}, expected NONE; the model is not compiled, and steps of "
        "vLLM's forward take PyTorch's norms and activations in the place of vLLM's kernels (docs/slice.md)",
    )


def _one_each(constants: dict[str, object]) -> dict[str, tuple[object, ...]]:
    return {name: (value,) for name, value in constants.items()}


def collect_k3_deployment(vllm_config: "VllmConfig", capability: tuple[int, int]) -> K3Deployment:
    """Reads the settings that matter out of an engine's configuration."""
    from vllm.config import CompilationMode
    from vllm.model_executor.layers.mamba.mamba_utils import MambaStateDtypeCalculator

    model, parallel, cache = vllm_config.model_config, vllm_config.parallel_config, vllm_config.cache_config
    text, graphs = model.hf_text_config, vllm_config.compilation_config.cudagraph_mode
    states = MambaStateDtypeCalculator.kda_state_dtype(
        model.dtype, cache.mamba_cache_dtype, cache.mamba_ssm_cache_dtype
    )
    return K3Deployment(
        vllm_version=version("vllm").split("+")[0],
        capability=capability,
        dtype=str(model.dtype).removeprefix("torch."),
        kv_cache_dtype=str(cache.cache_dtype),
        state_dtypes=tuple(str(dtype).removeprefix("torch.") for dtype in states),
        tensor_parallel_size=parallel.tensor_parallel_size,
        pipeline_parallel_size=parallel.pipeline_parallel_size,
        data_parallel_size=parallel.data_parallel_size,
        decode_context_parallel_size=parallel.decode_context_parallel_size,
        enable_expert_parallel=bool(parallel.enable_expert_parallel),
        enable_microbatching=bool(parallel.use_ubatching),
        speculative_method=None
        if vllm_config.speculative_config is None
        else vllm_config.speculative_config.method,
        enable_lora=vllm_config.lora_config is not None,
        enable_sleep_mode=bool(model.enable_sleep_mode),
        has_kv_connector=vllm_config.kv_transfer_config is not None,
        use_replayssm=bool(cache.use_replayssm),
        decode_graphs="NONE" if graphs is None else graphs.decode_mode().name,
        mixed_graphs="NONE" if graphs is None else graphs.mixed_mode().name,
        local_heads=text.num_attention_heads // parallel.tensor_parallel_size,
        compilation_mode=CompilationMode(vllm_config.compilation_config.mode).name,
        model={key: getattr(text, key, None) for key in _MODEL_CONSTANTS},
        kda={key: (text.linear_attn_config or {}).get(key) for key in _KDA_CONSTANTS},
    )


def take_switch(vllm_config: "VllmConfig") -> tuple[bool, "VllmConfig"]:
    """Returns whether this package runs the decode steps, and the configuration that vLLM's own model may read.

    Raises:
        ValueError: The switch has an unknown value.
        UnsupportedDeployment: The choice is this package, and the deployment is out of scope; lists every reason.
    """
    from vllm.logger import init_logger
    from vllm.platforms import current_platform

    device = current_platform.get_device_capability()
    capability = (0, 0) if device is None else (device.major, device.minor)
    provider = choose_decode_provider(vllm_config.additional_config, capability)
    logger = init_logger(f"vllm.{__name__}")
    logger.info("Kimi K3 decode_provider: %s", provider)
    if provider is None or provider is DecodeProvider.VLLM:
        return False, vllm_config
    deployment = collect_k3_deployment(vllm_config, capability)
    if refusals := list_refusals(deployment, experimental=provider is DecodeProvider.CUTE_EXPERIMENTAL):
        raise UnsupportedDeployment(refusals)
    for cost in list_costs(deployment):
        logger.warning("Kimi K3 %s", cost)
    engine_config = copy.copy(vllm_config)
    engine_config.additional_config = without_switch(vllm_config.additional_config)
    return True, engine_config
