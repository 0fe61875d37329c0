"""What the host side of the attention residuals refuses, and which variants there are: no GPU needed."""

import pytest
import torch

from specialized_path.kernels.attn_res import launch
from specialized_path.kernels.attn_res.launch import (
    attn_res_after_attention,
    attn_res_before_attention,
    attn_res_output,
)
from specialized_path.kernels.attn_res.variants import find_variant, variants


def arguments(num_rows: int = 2, **changed: torch.Tensor | None) -> dict[str, object]:
    row, vector = torch.zeros(num_rows, 7168).bfloat16(), torch.zeros(7168).bfloat16()
    found: dict[str, object] = {
        "prefix": row,
        "blocks": torch.zeros(num_rows, 8, 7168).bfloat16(),
        "delta": row,
        "res_norm_weight": vector,
        "res_proj_weight": vector,
        "input_norm_weight": vector,
    }
    return {**found, **changed}


@pytest.mark.parametrize("num_blocks", range(9))
def test_there_is_a_variant_for_every_number_of_blocks(num_blocks: int) -> None:
    # Layer 0 has no block yet, and no delta.
    assert find_variant(num_blocks, "add" if num_blocks else "keep").num_blocks == num_blocks


@pytest.mark.parametrize("num_blocks", range(1, 9))
def test_there_is_a_variant_for_a_new_prefix_behind_every_block_write(num_blocks: int) -> None:
    assert find_variant(num_blocks, "replace").update == "replace"


class Picked(Exception):
    """What a launch asked for, in the place of a kernel."""


@pytest.mark.parametrize(
    ("layer_idx", "before", "after"),
    [
        (0, (0, "keep"), (1, "replace")),
        (1, (1, "add"), (1, "add")),
        (11, (1, "add"), (1, "add")),
        (12, (1, "add"), (2, "replace")),
        (13, (2, "add"), (2, "add")),
        (84, (7, "add"), (8, "replace")),
        (92, (8, "add"), (8, "add")),
    ],
)
def test_a_layer_mixes_the_blocks_that_are_written_and_a_block_write_begins_a_new_prefix(
    monkeypatch: pytest.MonkeyPatch, layer_idx: int, before: object, after: object
) -> None:
    def pick(*wanted: object) -> None:
        raise Picked(*wanted)

    monkeypatch.setattr(launch, "find_variant", pick)
    given = arguments(**({"delta": None} if layer_idx == 0 else {}))
    behind = {**given, "attn_out": given["prefix"], "post_norm_weight": given["input_norm_weight"]}
    del behind["delta"], behind["input_norm_weight"]
    with pytest.raises(Picked) as first:
        attn_res_before_attention(**given, layer_idx=layer_idx)
    with pytest.raises(Picked) as second:
        attn_res_after_attention(**behind, layer_idx=layer_idx)
    assert (first.value.args, second.value.args) == (before, after)


def test_no_two_variants_have_the_same_name() -> None:
    names = [variant.name for variant in variants()]
    assert len(set(names)) == len(names)


def test_a_ninth_block_is_refused() -> None:
    with pytest.raises(ValueError, match="no kernel for 9 blocks"):
        find_variant(9, "add")


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"prefix": torch.zeros(2, 7160).bfloat16()}, "prefix: got (2, 7160)"),
        ({"prefix": torch.zeros(2, 7168)}, "torch.float32"),
        ({"prefix": torch.zeros(65, 7168).bfloat16()}, "rows: got 65, expected 1 ... 64"),
        ({"prefix": torch.zeros(0, 7168).bfloat16()}, "rows: got 0"),
        ({}, "on cpu"),
    ],
)
def test_arguments_that_the_kernel_cannot_take_are_refused(
    changed: dict[str, torch.Tensor], message: str
) -> None:
    with pytest.raises(ValueError) as refusal:
        attn_res_before_attention(**arguments(**changed), layer_idx=5)
    assert message in str(refusal.value)


def test_the_output_takes_the_blocks_of_the_whole_model_only() -> None:
    given = arguments()
    given["blocks"] = torch.zeros(2, 7, 7168).bfloat16()
    given["final_norm_weight"] = given.pop("input_norm_weight")
    with pytest.raises(ValueError, match="no kernel for 7 blocks"):
        attn_res_output(**given)
