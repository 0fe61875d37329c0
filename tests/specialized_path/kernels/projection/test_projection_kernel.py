"""Projections on a GPU against the oracle in float64."""

import pytest
import torch
from torch import Tensor

from specialized_path.kernels.projection.cases import CASES, ProjectionCase, random_inputs
from specialized_path.kernels.projection.launch import project
from specialized_path.kernels.projection.tactics import Tactic
from specialized_path.kernels.projection.variants import (
    BATCHES,
    SHAPES,
    TABLE,
    ProjectionVariant,
    WeightShape,
    parse_table,
    projection_variants,
)
from specialized_path.kernels.tuning import ProjectionTask
from specialized_path.reference import linear
from tests.specialized_path.kernels.replay import captured
from tests.specialized_path.kernels.tolerance import T1, assert_close, assert_same_bits

pytestmark = pytest.mark.gpu

ALL_SHAPES = [pytest.param(shape, id=shape.name) for shape in SHAPES]
SMALLEST = min(SHAPES, key=lambda shape: shape.num_bytes)


def poisoned(num_rows: int, shape: WeightShape) -> Tensor:
    return torch.full((num_rows, shape.num_outputs), float("nan"), device="cuda", dtype=torch.bfloat16)


def inputs_of(shape: WeightShape, num_rows: int, case: ProjectionCase = CASES[0]) -> tuple[Tensor, Tensor]:
    x, w = random_inputs(num_rows, shape.num_outputs, shape.num_inputs, seed=num_rows)
    return case.change(x, w)


def check(x: Tensor, w: Tensor, out: Tensor) -> None:
    expected = linear(x, w, acc_dtype=torch.float64, out_dtype=torch.float64)
    terms = x.abs().nan_to_num().float() @ w.abs().nan_to_num(posinf=0.0).float().T
    assert_close(out, expected, T1, term_magnitudes=terms)


@pytest.mark.parametrize("case", [pytest.param(c, id=c.name) for c in CASES])
@pytest.mark.parametrize("variant", [pytest.param(v, id=v.kernel.name) for v in projection_variants()])
def test_every_variant_agrees_with_the_oracle(variant: ProjectionVariant, case: ProjectionCase) -> None:
    shape, (_, batch) = variant.shape, variant.kernel.batches
    x, w = inputs_of(shape, batch, case)
    out = poisoned(batch, shape)
    project(x, w, out=out)
    check(x, w, out)


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("shape", ALL_SHAPES)
def test_every_fitted_batch_agrees_with_the_oracle(shape: WeightShape, batch: int) -> None:
    x, w = inputs_of(shape, batch)
    out = poisoned(batch, shape)
    project(x, w, out=out)
    check(x, w, out)


@pytest.mark.parametrize("batch", [3, 5, 7, 9, 15, 17, 31, 33, 63])
def test_batches_between_those_fitted_agree_with_the_oracle(batch: int) -> None:
    x, w = inputs_of(SMALLEST, batch)
    out = poisoned(batch, SMALLEST)
    project(x, w, out=out)
    check(x, w, out)


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("shape", ALL_SHAPES)
def test_every_run_and_every_replay_has_the_same_bits(shape: WeightShape, batch: int) -> None:
    x, w = inputs_of(shape, batch)
    outs = [poisoned(batch, shape) for _ in range(20)]
    graph = captured(lambda: [project(x, w, out=out) for out in outs])
    first = project(x, w, use_pdl=False)
    for out in outs:
        out.fill_(float("nan"))
    graph.replay()
    assert_same_bits(torch.stack(outs), first.expand(20, -1, -1).contiguous())


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("shape", ALL_SHAPES)
def test_a_row_has_the_same_bits_at_every_position_of_a_batch(shape: WeightShape, batch: int) -> None:
    x, w = inputs_of(shape, 1)
    together = project(x.expand(batch, -1).contiguous(), w)
    assert_same_bits(together, together[:1].expand(batch, -1).contiguous())


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("shape", ALL_SHAPES)
def test_a_row_has_the_same_bits_beside_any_others(shape: WeightShape, batch: int) -> None:
    x, w = inputs_of(shape, batch)
    together = project(x, w)
    for shift in range(1, batch):
        assert_same_bits(project(x.roll(shift, dims=0), w), together.roll(shift, dims=0))


def test_every_batch_agrees_with_the_oracle() -> None:
    for batch in range(1, 65):
        x, w = inputs_of(SMALLEST, batch)
        out = poisoned(batch, SMALLEST)
        project(x, w, out=out)
        check(x, w, out)


@pytest.mark.parametrize("shape", ALL_SHAPES)
def test_batches_between_those_fitted_agree_with_the_oracle_for_every_weight(shape: WeightShape) -> None:
    for batch in (3, 5, 6, 7, 9, 33):
        x, w = inputs_of(shape, batch)
        out = poisoned(batch, shape)
        project(x, w, out=out)
        check(x, w, out)


@pytest.mark.parametrize("batch", [b - 1 for b in BATCHES if b > 2])
def test_rows_behind_the_batch_are_neither_read_nor_written(batch: int) -> None:
    x, w = inputs_of(SMALLEST, batch)
    padded = torch.full((batch + 1, SMALLEST.num_inputs), float("nan"), device="cuda", dtype=torch.bfloat16)
    padded[:batch] = x
    out = poisoned(batch + 1, SMALLEST)
    project(padded[:batch], w, out=out[:batch])
    assert_same_bits(out[:batch], project(x, w))
    assert bool(out[batch].isnan().all())


def test_a_chain_of_dependent_projections_reads_what_the_one_before_wrote() -> None:
    up = next(shape for shape in SHAPES if shape.name == "tp16 in_proj")
    down = next(shape for shape in SHAPES if shape.name == "tp16 o_proj")
    (x, w_up), (_, w_down) = inputs_of(up, 4), inputs_of(down, 4)
    for use_pdl in (True, False):
        y = x
        for _ in range(10):
            inner = project(y, w_up, use_pdl=use_pdl)[:, : down.num_inputs].contiguous()
            y = project(inner, w_down, use_pdl=use_pdl)
        if use_pdl:
            first = y
    assert_same_bits(first, y)


class TwoCuts(ProjectionTask):
    """The cut in use at batch 16, and that of batch 8, which has columns for the first eight rows only."""

    def choices(self) -> dict[str, Tactic]:
        cuts = parse_table(TABLE.read_text(encoding="utf-8"))[self.shape.name]
        return {"in use": cuts[16], "too few columns": cuts[8]}


def test_tuning_takes_the_cut_in_use_and_refuses_one_that_leaves_rows_out() -> None:
    choices = TwoCuts(shape=SMALLEST, batch=16).prepare()
    assert choices["in use"]()
    with pytest.raises(ValueError, match="outputs are wrong"):
        choices["too few columns"]()
