"""The table of cuts, the variants that come of it, and what the host side refuses: no GPU needed."""

import json

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from specialized_path.kernels.projection.launch import project
from specialized_path.kernels.projection.tactics import Tactic, candidates
from specialized_path.kernels.projection.variants import (
    BATCHES,
    SHAPES,
    TABLE,
    find_variant,
    parse_table,
    render_table,
)


@given(shape=st.sampled_from(SHAPES), batch=st.integers(1, 64))
def test_every_shape_and_batch_has_a_variant_with_enough_columns(shape, batch):
    variant = find_variant(shape.num_outputs, shape.num_inputs, batch)
    assert variant.tactic.columns >= batch


@given(shape=st.sampled_from(SHAPES), n_tiles=st.sampled_from([1, 2, 4, 8]))
def test_every_candidate_fits_its_shape(shape, n_tiles):
    found = candidates(shape.num_outputs, shape.num_inputs, n_tiles)
    assert found
    assert not [c.name for c in found if c.problems(shape.num_outputs, shape.num_inputs)]


def test_the_table_survives_writing_and_reading():
    table = parse_table(TABLE.read_text(encoding="utf-8"))
    assert parse_table(render_table(table, "test")) == table


def test_a_table_without_a_batch_is_refused():
    data = json.loads(TABLE.read_text(encoding="utf-8"))
    del data["cuts"]["tp8 o_proj"]["16"]
    with pytest.raises(ValueError, match="tp8 o_proj: got cuts for"):
        parse_table(json.dumps(data))


def test_a_cut_that_does_not_fit_is_refused():
    data = json.loads(TABLE.read_text(encoding="utf-8"))
    data["cuts"]["tp8 o_proj"]["16"]["atoms"] = 5
    with pytest.raises(ValueError, match="tp8 o_proj at batch 16"):
        parse_table(json.dumps(data))


def test_a_cut_for_smaller_batches_is_refused():
    data = json.loads(TABLE.read_text(encoding="utf-8"))
    data["cuts"]["tp8 o_proj"]["64"] = data["cuts"]["tp8 o_proj"]["8"]
    with pytest.raises(ValueError, match="too few columns"):
        parse_table(json.dumps(data))


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_the_variants_of_a_shape_cover_each_batch_once(shape):
    found = {find_variant(shape.num_outputs, shape.num_inputs, b).kernel.batches for b in range(1, 65)}
    assert sorted(b for low, high in found for b in range(low, high + 1)) == list(range(1, BATCHES[-1] + 1))


def test_shared_memory_beyond_the_machine_is_a_problem():
    cut = Tactic(n_tiles=8, m_warps=4, k_warps=2, tiles=4, atoms=4, stages=4)
    assert any("bytes of shared memory" in problem for problem in cut.problems(7168, 7168))


def test_an_unknown_weight_shape_is_refused():
    with pytest.raises(ValueError, match=r"got weight \(7168, 100\) at batch 1"):
        project(torch.zeros(1, 100).bfloat16(), torch.zeros(7168, 100).bfloat16())


def test_a_batch_beyond_the_largest_is_refused():
    with pytest.raises(ValueError, match="at batch 65"):
        project(torch.zeros(65, 768).bfloat16(), torch.zeros(7168, 768).bfloat16())


def test_tensors_elsewhere_than_on_a_gpu_are_refused():
    with pytest.raises(ValueError, match="on cpu"):
        project(torch.zeros(1, 768).bfloat16(), torch.zeros(7168, 768).bfloat16())
