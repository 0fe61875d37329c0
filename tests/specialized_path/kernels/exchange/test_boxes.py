"""Boxes: made empty, addressed without overlap, and looked through for words that were left."""

import pytest
import torch

from specialized_path.kernels.exchange.boxes import count_full_words, empty_box, make_box, slot_addresses
from specialized_path.kernels.exchange.protocol import BoxLayout

LAYOUT = BoxLayout(num_ranks=3, max_rows=2, width=16, copies=2)


def test_a_new_box_is_empty_and_every_word_written_counts_until_it_is_emptied():
    box = make_box(LAYOUT, "cpu")
    assert (box.shape, box.dtype, count_full_words(box)) == ((2, 3, 2, 16), torch.bfloat16, 0)
    box[1, 2, 0, 3] = 1.0
    box[0, 0, 1, 4:6] = float("nan")
    assert count_full_words(box) == 2
    empty_box(box)
    assert count_full_words(box) == 0


@pytest.mark.parametrize("value", [0.0, float("inf"), float("nan"), -1e-40])
def test_no_pair_of_published_values_looks_empty(value):
    box = make_box(LAYOUT, "cpu")
    box[:] = value
    assert count_full_words(box) == box.numel() // 2


def test_a_pair_with_negative_zero_above_zero_is_the_one_that_publishers_must_not_store():
    box = make_box(LAYOUT, "cpu")
    box[..., 0::2], box[..., 1::2] = 0.0, -0.0
    assert count_full_words(box) == 0


def test_the_slots_of_all_ranks_and_copies_tile_every_box():
    box_bytes, slot_bytes = 2 * 3 * 2 * 16 * 2, 2 * 16 * 2
    boxes = [0, 10_000, 20_000]
    slots = sorted(
        address for rank in range(3) for copy in slot_addresses(boxes, LAYOUT, rank) for address in copy
    )
    assert slots == [box + at for box in boxes for at in range(0, box_bytes, slot_bytes)]


def test_a_slot_is_where_the_tensor_has_it():
    box = make_box(LAYOUT, "cpu")
    found = slot_addresses([box.data_ptr()] * 3, LAYOUT, 2)
    assert [copy[1] for copy in found] == [box[0, 2].data_ptr(), box[1, 2].data_ptr()]


@pytest.mark.parametrize(("boxes", "rank"), [([0, 1], 0), ([0, 1, 2], 3), ([0, 1, 2], -1)])
def test_a_table_for_other_ranks_than_the_layouts_is_refused(boxes, rank):
    with pytest.raises(ValueError, match="expected 3 of them"):
        slot_addresses(boxes, LAYOUT, rank)
