"""Which kernels an exchange launches, by what it is asked for."""

import pytest

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
