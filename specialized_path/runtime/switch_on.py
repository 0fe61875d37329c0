"""Switches the specialised path on for one model, or refuses with every reason."""

from typing import TYPE_CHECKING

from vllm.platforms import current_platform

from specialized_path.runtime.config import DecodeBackend, parse_decode_backend
from specialized_path.runtime.executor import DecodeExecutor
from specialized_path.runtime.plan import StepPlanner
from specialized_path.runtime.providers import choose_provider, has_provider
from specialized_path.runtime.support import UnsupportedDeployment, collect_deployment, list_refusals

if TYPE_CHECKING:
    from vllm.config import VllmConfig

    from specialized_path.nano.model import KimiK3NanoForCausalLM


def switch_on(
    vllm_config: "VllmConfig", model: "KimiK3NanoForCausalLM"
) -> tuple[StepPlanner, DecodeExecutor] | tuple[None, None]:
    """Builds planner and executor for `model`, whose layers must exist.

    Returns:
        (None, None) when the configuration does not ask for the path.

    Raises:
        ValueError: The switch has an unknown value.
        UnsupportedDeployment: The deployment is out of scope; the message lists every reason.
    """
    if parse_decode_backend(vllm_config.additional_config) is DecodeBackend.AUTO:
        return None, None
    platform = current_platform.device_type
    deployment = collect_deployment(vllm_config, platform=platform, has_provider=has_provider(platform))
    if refusals := list_refusals(deployment):
        raise UnsupportedDeployment(refusals)
    attentions = [layer.self_attn for layer in model.model.layers]
    planner = StepPlanner(
        kda_layers=tuple(attention.prefix for attention in attentions if not hasattr(attention, "attn")),
        mla_layers=tuple(attention.attn.layer_name for attention in attentions if hasattr(attention, "attn")),
    )
    return planner, DecodeExecutor(model, choose_provider(platform, model.config))
