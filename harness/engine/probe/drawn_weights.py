"""Weights of a slice that a function of the head commit draws, in the engine's own process."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from harness.model.probe import DRAWN_FORMAT, DUMMY_LOADER, DrawnWeights, WeightsSource

_CHUNK = 1 << 24
"""Words that are summed at a time."""
_FACTORS = (0x9E3779B97F4A7C1, 0x2545F4914F6CDD1D)
"""Odd, so that no word of a sum is lost; any would do."""


class WeightsDrawer:
    """Registers a loader with vLLM that lets the function fill a model, and remembers what it drew."""

    def __init__(self, source: WeightsSource) -> None:
        self._source = source
        self._drawn: DrawnWeights | None = None
        self.is_drawing = False
        """True while the function runs, and for good once it failed."""

    def register(self) -> None:
        """Makes the load format known: vLLM's dummy weights, and over them the function's."""
        from vllm.model_executor.model_loader import register_model_loader
        from vllm.model_executor.model_loader.dummy_loader import DummyModelLoader

        drawer = self

        @register_model_loader(DRAWN_FORMAT)
        class DrawnLoader(DummyModelLoader):  # type: ignore[misc]
            def load_weights(self, model: nn.Module, model_config: Any) -> None:
                super().load_weights(model, model_config)
                drawer.fill(model)

    def fill(self, model: nn.Module) -> None:
        """Calls the function; whatever it raises goes on to the caller."""
        self.is_drawing = True
        data = Path(self._source.file).read_bytes()
        module = ModuleType("fasttrack_drawn_weights")
        exec(compile(data, self._source.file, "exec"), vars(module))
        function = vars(module)[self._source.name.rpartition(":")[2]]
        if "rank" in inspect.signature(function).parameters:
            function(model, rank=_rank())
        else:
            function(model)
        self._drawn = DrawnWeights(
            by=self._source.name, source=hashlib.sha256(data).hexdigest(), digest=digest_parameters(model)
        )
        self.is_drawing = False

    def describe(self, engine: Any) -> DrawnWeights | None:
        """What a started engine's weights are; None where a checkpoint holds them."""
        return self._drawn if _load_format(engine) == DRAWN_FORMAT else describe_weights(engine)


def offer_weights(source: Mapping[str, Any] | None) -> WeightsDrawer | None:
    """A drawer that vLLM's next engines can ask for; None without a function."""
    if source is None:
        return None
    drawer = WeightsDrawer(WeightsSource.model_validate(source))
    drawer.register()
    return drawer


def describe_weights(engine: Any) -> DrawnWeights | None:
    """The engine's own dummy weights, or None where a checkpoint holds them."""
    return DrawnWeights(by=DUMMY_LOADER) if _load_format(engine) == "dummy" else None


def describe_ranks(told: Sequence[Mapping[str, Any]]) -> DrawnWeights | None:
    """What the workers' weights are together; None where a checkpoint holds them."""
    found = [DrawnWeights.model_validate(one["weights"]) for one in told if one["weights"] is not None]
    if not found:
        return None
    digests = "\n".join(one.digest for one in found)
    return found[0].model_copy(
        update={"digest": hashlib.sha256(digests.encode()).hexdigest() if found[0].digest else ""}
    )


def _rank() -> int:
    """Of this process among those that share the model out."""
    from vllm.distributed import get_tensor_model_parallel_rank

    return int(get_tensor_model_parallel_rank())


def _load_format(engine: Any) -> str:
    return str(getattr(getattr(engine.vllm_config, "load_config", None), "load_format", "auto"))


def digest_parameters(model: nn.Module) -> str:
    """A digest of names, types, shapes and bits of all parameters; equal on every device.

    Sums of mixed words, made where the weights lie: it tells draws apart, and withstands nobody who wants a collision.
    """
    digest = hashlib.sha256()
    for name, parameter in sorted(model.named_parameters()):
        about = f"{name} {parameter.dtype} {tuple(parameter.shape)} {_sum_of_words(parameter.detach())}\n"
        digest.update(about.encode())
    return digest.hexdigest()


def _sum_of_words(weight: Tensor) -> tuple[int, ...]:
    # A copy begins where any width of word may.
    flat = weight.contiguous() if weight.is_contiguous() and not weight.storage_offset() else weight.clone()
    data = flat.contiguous().reshape(-1).view(torch.uint8)
    whole = len(data) // 4 * 4
    words, total = data[:whole].view(torch.int32), torch.zeros((), dtype=torch.int64, device=weight.device)
    for begin in range(0, len(words), _CHUNK):
        part = words[begin : begin + _CHUNK].to(torch.int64)
        mixed = (part + torch.arange(begin, begin + len(part), device=part.device) * _FACTORS[0]) * _FACTORS[
            1
        ]
        total += ((mixed ^ (mixed >> 29)) * _FACTORS[0]).sum()
    return int(total), *data[whole:].tolist()
