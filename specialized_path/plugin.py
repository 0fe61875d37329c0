"""The vLLM general plugin of the Kimi K3 decode path: registers the miniature model and, on CUDA, Kimi K3's own."""

from importlib.metadata import version

_ARCHITECTURE = "KimiK3NanoForCausalLM"
_MODEL_CLASS = f"specialized_path.nano.model:{_ARCHITECTURE}"
_KIMI_K3 = "KimiK3SpecializedForCausalLM"
"""A name of its own: vLLM's entries stay what they are, and a deployment asks for the class by `architectures`."""
_KIMI_K3_CLASS = f"specialized_path.kimi_k3.model:{_KIMI_K3}"
_KIMI_K3_VLLM = "0.33."


def register() -> None:
    """Registers the configuration and, by name only, the model classes.

    vLLM calls this in every one of its processes, sometimes twice. A model's module is imported only when a checkpoint
    asks for it, and the specialised path only when that checkpoint's deployment switches it on.
    """
    from transformers import AutoConfig
    from vllm.model_executor.models.registry import ModelRegistry
    from vllm.platforms import current_platform
    from vllm.transformers_utils.config import _CONFIG_REGISTRY

    from specialized_path.nano.config import KimiK3NanoConfig

    _CONFIG_REGISTRY[KimiK3NanoConfig.model_type] = KimiK3NanoConfig
    AutoConfig.register(KimiK3NanoConfig.model_type, KimiK3NanoConfig, exist_ok=True)
    if _ARCHITECTURE not in ModelRegistry.models:
        ModelRegistry.register_model(_ARCHITECTURE, _MODEL_CLASS)
    is_served = current_platform.is_cuda() and version("vllm").startswith(_KIMI_K3_VLLM)
    if is_served and _KIMI_K3 not in ModelRegistry.models:
        ModelRegistry.register_model(_KIMI_K3, _KIMI_K3_CLASS)
