"""The vLLM general plugin of the Kimi K3 decode path: makes the miniature model known to the engine."""

_ARCHITECTURE = "KimiK3NanoForCausalLM"
_MODEL_CLASS = f"specialized_path.nano.model:{_ARCHITECTURE}"


def register() -> None:
    """Registers the configuration and, by name only, the model class.

    vLLM calls this in every one of its processes, sometimes twice. The model's module is imported only when
    a checkpoint asks for it, and the specialised path only when that checkpoint's deployment switches it on.
    """
    from transformers import AutoConfig
    from vllm.model_executor.models.registry import ModelRegistry
    from vllm.transformers_utils.config import _CONFIG_REGISTRY

    from specialized_path.nano.config import KimiK3NanoConfig

    _CONFIG_REGISTRY[KimiK3NanoConfig.model_type] = KimiK3NanoConfig
    AutoConfig.register(KimiK3NanoConfig.model_type, KimiK3NanoConfig, exist_ok=True)
    if _ARCHITECTURE not in ModelRegistry.models:
        ModelRegistry.register_model(_ARCHITECTURE, _MODEL_CLASS)
