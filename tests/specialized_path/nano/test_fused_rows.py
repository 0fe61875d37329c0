"""Fused weights fill from the checkpoint's separate ones, and a checkpoint that does not fit is named in full."""

import pytest
import torch
from torch import nn

from specialized_path.nano.fused_rows import FusedRows, load_checkpoint


class Block(nn.Module):
    """One fused and one plain weight."""

    def __init__(self):
        super().__init__()
        self.fused = FusedRows({"a_proj": 2, "b_proj": 3}, 4, torch.float32)
        self.scale = nn.Parameter(torch.empty(5))


class Model(nn.Module):
    """A block under a name."""

    def __init__(self):
        super().__init__()
        self.block = Block()


def stored():
    """A checkpoint that fits."""
    return {
        "block.a_proj.weight": torch.full((2, 4), 1.0),
        "block.b_proj.weight": torch.full((3, 4), 2.0),
        "block.scale": torch.full((5,), 3.0),
    }


def test_parts_land_in_their_rows_and_multiply_apart():
    model = Model()
    names = load_checkpoint(model, stored().items())
    a, b = model.block.fused(torch.ones(1, 4))
    assert names == {"block.fused.weight", "block.scale"}
    assert (a.tolist(), b.tolist()) == ([[4.0, 4.0]], [[8.0, 8.0, 8.0]])


def test_all_that_does_not_fit_is_named_at_once():
    weights = stored() | {"block.b_proj.weight": torch.zeros(3, 5), "block.c": torch.zeros(1)}
    del weights["block.scale"]
    with pytest.raises(ValueError, match="does not fit") as error:
        load_checkpoint(Model(), weights.items())
    complaints = str(error.value)
    assert "block.b_proj.weight: got (3, 5), expected (3, 4)" in complaints
    assert "block.c: unknown" in complaints
    assert "block.scale: missing" in complaints
