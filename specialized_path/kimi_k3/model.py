"""vLLM's Kimi-Linear model class, which is the text model of Kimi K3, with the specialised decode steps beside it."""

from typing import Any

from torch import Tensor
from vllm.config import VllmConfig
from vllm.models.kimi_k3.nvidia.model import KimiLinearForCausalLM


class KimiK3SpecializedForCausalLM(KimiLinearForCausalLM):
    """vLLM's model, unchanged while the switch is off or the choice is vLLM's own specialised decode.

    Prefill, mixed steps and everything else out of scope stay vLLM's forward; pure decode steps of at most 64 requests
    run on `K3Decode`, built at the first step that reaches the loaded model, which reads vLLM's experts in place.
    """

    def __init__(self, *, vllm_config: VllmConfig, prefix: str = "") -> None:
        """Decides who runs decode steps, before vLLM reads the switch.

        Raises:
            ValueError: The switch has an unknown value.
            UnsupportedDeployment: The deployment is out of scope; the message lists every reason.
        """
        self_served, engine_config = False, vllm_config
        if _asks_for_decode_backend(vllm_config.additional_config):
            from specialized_path.kimi_k3.switch import take_switch

            self_served, engine_config = take_switch(vllm_config)
        super().__init__(vllm_config=engine_config, prefix=prefix)
        self._is_self_served = self_served
        self._max_context = vllm_config.model_config.max_model_len
        self._k3_decode: Any = None

    @property
    def k3_decode(self) -> Any:
        """The decode path with its counts and its start-up cost; None while the switch is off or nothing ran."""
        return self._k3_decode

    def forward(
        self,
        input_ids: Tensor | None,
        positions: Tensor,
        intermediate_tensors: Any = None,
        inputs_embeds: Tensor | None = None,
        **kwargs: Any,
    ) -> Any:
        """Runs the step on the path that its plan names; hidden states are before the final norm on both."""
        if self._is_self_served:
            if self._k3_decode is None:
                from specialized_path.kimi_k3.decode import build_decode

                self._k3_decode = build_decode(self.model, self._max_context)
            has_token_ids = input_ids is not None and inputs_embeds is None
            if self._k3_decode.plan(len(positions), has_token_ids) is not None:
                return self._k3_decode.run(input_ids)
        return super().forward(input_ids, positions, intermediate_tensors, inputs_embeds, **kwargs)


def _asks_for_decode_backend(additional_config: object) -> bool:
    return isinstance(additional_config, dict) and additional_config.get("decode_backend", "auto") != "auto"
