"""Which kernels an exchange launches, by what it is asked for."""

import pytest
import torch

from specialized_path.kernels.exchange import launch
from specialized_path.kernels.exchange.variants import publish_variant, variants
from specialized_path.kernels.projection.variants import shape_variants


@pytest.mark.parametrize("is_two_shot", [False, True], ids=["one-shot", "two-shot"])
def test_batches_of_one_cut_share_a_kernel(is_two_shot):
    """A kernel for each batch would be compiled in the middle of serving, at the first step of that batch."""
    made = {id(publish_variant(1536, batch, 8, is_two_shot)) for batch in range(1, 65)}
    assert len(made) == len(shape_variants("tp8 o_proj"))


@pytest.mark.parametrize("batch", [1, 7, 33, 64])
def test_a_batch_is_published_by_a_listed_kernel(batch):
    variant = publish_variant(1536, batch, 8, is_two_shot=False)
    low, high = variant.batches
    assert low <= batch <= high and any(variant is listed for listed in variants())


class Picked(Exception):
    """What a launch asked for, in the place of a kernel."""


@pytest.mark.parametrize(
    ("layer_idx", "num_blocks", "update"),
    [
        (0, 1, "replace"),
        (1, 1, "add"),
        (11, 1, "add"),
        (12, 2, "replace"),
        (13, 2, "add"),
        (84, 8, "replace"),
    ],
)
def test_behind_an_exchange_a_layer_mixes_what_it_mixes_without(monkeypatch, layer_idx, num_blocks, update):
    pytest.importorskip("cutlass")

    def pick(*wanted):
        raise Picked(*wanted)

    row, vector = torch.zeros(2, 8), torch.zeros(8)
    monkeypatch.setattr(launch, "consume_variant", pick)
    # The tensors are on no GPU, and would be refused.
    for check in ("require", "_check_consume"):
        monkeypatch.setattr(launch, check, lambda *_: None)
    with pytest.raises(Picked) as picked:
        launch.attn_res_after_exchange(
            row,
            row,
            torch.zeros(1, 8, 64, 896),
            vector,
            vector,
            vector,
            vector,
            layer_idx=layer_idx,
            is_two_shot=True,
        )
    assert picked.value.args == (8, num_blocks, update, True, 64)
