"""Which deployments the specialised path serves at all; the others are refused before a weight is loaded."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from specialized_path.runtime.differences import list_differences
from specialized_path.runtime.limits import LIMITS

if TYPE_CHECKING:
    from vllm.config import VllmConfig

SUPPORTED_DTYPES = ("float32", "bfloat16")
SUPPORTED_SPECULATIVE_METHODS = ("ngram", "custom_class")
"""Drafters that read token ids only and keep no state in the target model's caches."""


class UnsupportedDeployment(ValueError):
    """The deployment asked for the specialised path and cannot have it; `reasons` lists every obstacle."""

    def __init__(self, reasons: tuple[str, ...]) -> None:
        """Builds one message from all reasons."""
        self.reasons = reasons
        listed = "".join(f"\n  - {reason}" for reason in reasons)
        super().__init__(
            f"decode_backend 'latency_specialized' does not support this deployment:{listed}\n"
            "Change these settings, or set decode_backend to 'auto' to serve without the specialised path."
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """The settings of an engine that decide whether the path can serve it; the defaults are supported."""

    platform: str = "cpu"
    """Device type, as vLLM names it."""

    has_provider: bool = True
    """Whether the path has operators for the platform."""

    dtype: str = "float32"
    tensor_parallel_size: int = 1
    pipeline_parallel_size: int = 1
    data_parallel_size: int = 1
    decode_context_parallel_size: int = 1
    enable_expert_parallel: bool = False
    enable_microbatching: bool = False
    speculative_method: str | None = None
    num_speculative_tokens: int = 0
    quantization: str | None = None
    kv_cache_dtype: str = "auto"
    recurrent_state_dtype: str = "float32"
    enable_prefix_caching: bool = True
    enable_lora: bool = False
    enable_sleep_mode: bool = False
    has_kv_connector: bool = False
    max_model_len: int = 2048


_ALLOWED: dict[str, tuple[object, ...]] = {
    "tensor_parallel_size": (1,),
    "pipeline_parallel_size": (1,),
    "data_parallel_size": (1,),
    "decode_context_parallel_size": (1,),
    "enable_expert_parallel": (False,),
    "enable_microbatching": (False,),
    "quantization": (None,),
    "recurrent_state_dtype": ("float32",),
    "enable_lora": (False,),
    "enable_sleep_mode": (False,),
    "has_kv_connector": (False,),
    "dtype": SUPPORTED_DTYPES,
    "speculative_method": (None, *SUPPORTED_SPECULATIVE_METHODS),
}


def list_refusals(deployment: Deployment) -> tuple[str, ...]:
    """Returns every reason not to serve `deployment`, each as "setting: got X, expected Y"; () means served."""
    reasons = []
    if not deployment.has_provider:
        reasons.append(f"platform: got {deployment.platform!r}, expected one with an operator provider")
    return (*reasons, *list_differences(deployment, _ALLOWED), *_refusals_of_ranges(deployment))


def _refusals_of_ranges(deployment: Deployment) -> list[str]:
    """Reasons that concern a range, or two settings at once."""
    reasons = []
    if deployment.kv_cache_dtype not in ("auto", deployment.dtype):
        reasons.append(f"kv_cache_dtype: got {deployment.kv_cache_dtype!r}, expected 'auto' or the dtype")
    drafts, most = deployment.num_speculative_tokens, LIMITS.max_num_drafts
    if drafts > most:
        reasons.append(f"num_speculative_tokens: got {drafts}, expected at most {most}")
    if deployment.platform == "cpu" and drafts and deployment.enable_prefix_caching:
        reasons.append("enable_prefix_caching: got True, expected False with speculation on a CPU")
    if deployment.max_model_len > LIMITS.max_context_len:
        longest = LIMITS.max_context_len
        reasons.append(f"max_model_len: got {deployment.max_model_len}, expected at most {longest}")
    return reasons


def collect_deployment(vllm_config: "VllmConfig", *, platform: str, has_provider: bool) -> Deployment:
    """Reads the settings that matter out of an engine's configuration."""
    parallel, cache = vllm_config.parallel_config, vllm_config.cache_config
    speculative = vllm_config.speculative_config
    state_dtype = str(cache.mamba_ssm_cache_dtype)
    return Deployment(
        platform=platform,
        has_provider=has_provider,
        dtype=str(vllm_config.model_config.dtype).removeprefix("torch."),
        tensor_parallel_size=parallel.tensor_parallel_size,
        pipeline_parallel_size=parallel.pipeline_parallel_size,
        data_parallel_size=parallel.data_parallel_size,
        decode_context_parallel_size=parallel.decode_context_parallel_size,
        enable_expert_parallel=bool(parallel.enable_expert_parallel),
        enable_microbatching=bool(parallel.enable_dbo),
        speculative_method=None if speculative is None else speculative.method,
        num_speculative_tokens=0 if speculative is None else speculative.num_speculative_tokens,
        quantization=vllm_config.model_config.quantization,
        kv_cache_dtype=str(cache.cache_dtype),
        recurrent_state_dtype="float32" if state_dtype == "auto" else state_dtype,
        enable_prefix_caching=bool(cache.enable_prefix_caching),
        enable_lora=vllm_config.lora_config is not None,
        enable_sleep_mode=bool(vllm_config.model_config.enable_sleep_mode),
        has_kv_connector=vllm_config.kv_transfer_config is not None,
        max_model_len=vllm_config.model_config.max_model_len,
    )
