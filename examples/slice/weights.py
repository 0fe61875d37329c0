"""Weights of a slice that make its numbers mean something: vLLM's dummy ones leave every logit near zero."""

from typing import Any

import torch
from torch import Tensor, nn

LOAD_FORMAT = "rank_slice"
_NORMS = ("norm.weight", "layernorm.weight")
_WRITES_RESIDUAL = (
    ".o_proj.weight",
    ".routed_expert_up_proj.weight",
    ".mlp.down_proj.weight",
    ".shared_experts.down_proj.weight",
)
_GROUPS = 56
"""Of experts, 16 each of 896, of which a token chooses one by itself."""
_CODE = 64.0
"""An embedding's entry that names its token's group; the other entries are about 1."""
_EXPERT_SCALE_CODE = 119
"""E8M0 code of 2^-8: a uniformly drawn E2M1 weight then has a root mean square of about 0.012, near 3584^-1/2."""

_RANK_STEP = 1_000_003
"""Between the seeds of two ranks: more than a model has parameters."""


def register_loader() -> None:
    """Makes `load_format="rank_slice"` known to vLLM: seeded weights, equal in every process of the same rank."""
    from vllm.distributed import get_tensor_model_parallel_rank
    from vllm.model_executor.model_loader import register_model_loader
    from vllm.model_executor.model_loader.dummy_loader import DummyModelLoader

    @register_model_loader(LOAD_FORMAT)
    class SliceLoader(DummyModelLoader):
        def load_weights(self, model: nn.Module, model_config: Any) -> None:
            super().load_weights(model, model_config)
            fill(model, rank=get_tensor_model_parallel_rank())


def fill(model: nn.Module, seed: int = 0, rank: int = 0) -> int:
    """Overwrites all parameters, the packed experts too, which vLLM leaves as memory was; returns how many.

    What several ranks share out among themselves is drawn for each, so that ranks which change places show; what all
    of them have whole is the same. Parts that vLLM packs whole beside shares (the low ranks of attention) are each
    rank's own, too: no other rank reads what comes of them.

    A token chooses its experts by itself, farther from a tie than rounding carries: its embedding names a group, no
    layer writes the entries that do, and routers read nothing else. With routers drawn like the rest an expert is on
    the edge in most layers, and two correct paths come to differ by one. As many experts are loaded as those ask for.
    """
    parameters = sorted(model.named_parameters())
    shares = find_shares(model) if rank else frozenset()
    for index, (name, parameter) in enumerate(parameters):
        own = _RANK_STEP * rank if name in shares else 0
        generator = torch.Generator(parameter.device).manual_seed(seed + index + own)
        _fill(name, parameter.data, generator)
    for module in model.modules():
        _derive(module)
    return len(parameters)


def find_shares(model: nn.Module) -> frozenset[str]:
    """Names of the parameters of which a rank holds its own share: by vLLM's layers, experts and states of heads."""
    from vllm.model_executor.layers.linear import ColumnParallelLinear, RowParallelLinear
    from vllm.model_executor.layers.vocab_parallel_embedding import VocabParallelEmbedding

    kinds = (ColumnParallelLinear, RowParallelLinear, VocabParallelEmbedding)
    found = {
        f"{path}.{name}"
        for path, module in model.named_modules()
        if isinstance(module, kinds) and not getattr(module, "disable_tp", False)
        for name, _ in module.named_parameters(recurse=False)
    }
    others = {
        name
        for name, parameter in model.named_parameters()
        if parameter.dtype == torch.uint8 or name.endswith(("A_log", "dt_bias"))
    }
    return frozenset(found | others)


def _fill(name: str, weight: Tensor, generator: torch.Generator) -> None:
    if weight.dtype == torch.uint8:
        if "scale" in name:
            weight.fill_(_EXPERT_SCALE_CODE)
        else:
            weight.random_(0, 256, generator=generator)
        return
    groups = min(_GROUPS, weight.shape[-1])
    noise = torch.randn(weight.shape, generator=generator, device=weight.device, dtype=torch.float32)
    if name.endswith(_NORMS):
        weight.copy_(1 + 0.1 * noise)
    elif name.endswith(("A_log", "dt_bias")) or "conv1d" in name:
        weight.copy_(0.5 * noise)
    elif name.endswith("e_score_correction_bias"):
        weight.copy_(0.002 * noise)
    elif "embed_tokens" in name:
        weight.copy_(noise)
        _name_groups(weight, groups, torch.full_like(noise[:, 0], _CODE))
    elif name.endswith(".gate.weight"):
        weight.zero_()
        _name_groups(weight, groups, 0.2 + 0.04 * noise[:, 0].clamp(-1, 1))
    else:
        weight.copy_(noise * weight.shape[-1] ** -0.5)
        if name.endswith(_WRITES_RESIDUAL):
            weight[:_GROUPS] = 0


def _name_groups(weight: Tensor, groups: int, values: Tensor) -> None:
    """Leaves of the first entries of each row the one of its group, which takes turns, and gives it a value."""
    row = torch.arange(len(weight), device=weight.device)
    weight[:, :groups] = 0
    weight[row, row % groups] = values.to(weight.dtype)


def _derive(module: Any) -> None:
    """What vLLM's weight loaders keep beside a KDA layer's weights for its own decode kernel."""
    if getattr(module, "decode_conv1d_weight", None) is not None:
        channels = module.conv1d.weight.shape[0] // 3
        module.decode_conv1d_weight.copy_(module.conv1d.weight.view(3, channels, -1).transpose(1, 2))
    if getattr(module, "decode_norm_weight", None) is not None:
        module.decode_norm_weight.copy_(module.o_norm.weight)
