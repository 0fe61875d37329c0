"""Weights that the checkpoint stores apart and the model multiplies in one go."""

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional


class FusedRows(nn.Module):
    """Several weights of equal row length, stacked by rows: one matrix product instead of many."""

    def __init__(self, rows: Mapping[str, int], columns: int, dtype: torch.dtype) -> None:
        """Lays the parts out in the order of `rows`.

        Args:
            rows: Rows by the checkpoint name of each part ("q_proj").
            columns: Length of a row.
            dtype: Dtype of the weight.
        """
        super().__init__()
        self.rows = dict(rows)
        self.weight = nn.Parameter(torch.empty(sum(rows.values()), columns, dtype=dtype), requires_grad=False)

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        """Multiplies once and returns one view [..., rows] per part."""
        return functional.linear(x, self.weight).split(list(self.rows.values()), dim=-1)

    def part_views(self) -> dict[str, Tensor]:
        """Returns the part of the weight that each checkpoint name fills."""
        views = self.weight.data.split(list(self.rows.values()))
        return dict(zip(self.rows, views, strict=True))


def checkpoint_targets(model: nn.Module) -> dict[str, Tensor]:
    """Returns, by checkpoint name, the memory that each stored tensor fills: fused parts under their own names."""
    targets: dict[str, Tensor] = {}
    for name, module in model.named_modules():
        if isinstance(module, FusedRows):
            owner = name.rpartition(".")[0]
            parts = module.part_views().items()
            targets.update({f"{owner}.{part}.weight": view for part, view in parts})
        else:
            own = module.named_parameters(prefix=name, recurse=False)
            targets.update({parameter_name: parameter.data for parameter_name, parameter in own})
    return targets


def load_checkpoint(model: nn.Module, weights: Iterable[tuple[str, Tensor]]) -> set[str]:
    """Fills every parameter of `model` exactly once and returns the names of its parameters.

    Raises:
        ValueError: Names all tensors that are missing, unknown or of another shape.
    """
    targets = checkpoint_targets(model)
    missing = set(targets)
    complaints: list[str] = []
    for name, tensor in weights:
        target = targets.get(name)
        if target is None:
            complaints.append(f"{name}: unknown")
        elif target.shape != tensor.shape:
            complaints.append(f"{name}: got {tuple(tensor.shape)}, expected {tuple(target.shape)}")
        else:
            target.copy_(tensor)
            missing.discard(name)
    complaints += [f"{name}: missing" for name in sorted(missing)]
    if complaints:
        raise ValueError("checkpoint does not fit the model: " + "; ".join(complaints))
    return {name for name, _ in model.named_parameters()}
