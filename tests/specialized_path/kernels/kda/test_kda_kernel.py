"""KDA on a GPU against the oracle in float64: every variant, every adversarial value."""

from functools import lru_cache

import pytest
import torch

from specialized_path.kernels.kda.cases import CASES, Case, KdaInputs, case_inputs, random_inputs
from specialized_path.kernels.kda.variants import KdaVariant, kda_variants
from tests.specialized_path.kernels.kda.oracle import Expected, expect, launch
from tests.specialized_path.kernels.tolerance import (
    T1,
    T3_RELATIVE_L2,
    assert_close,
    assert_same_bits,
    relative_l2,
)

pytestmark = pytest.mark.gpu

VARIANTS = [pytest.param(v, id=v.kernel.name) for v in kda_variants()]
VARIANTS_AND_CASES = [
    pytest.param(v, c, id=f"{v.kernel.name}-{c.name}")
    for v in kda_variants()
    for c in CASES
    if c.is_for(v.schedule.tokens)
]
NUM_REQS = 3


def check(inputs: KdaInputs, before: KdaInputs, expected: Expected, y: torch.Tensor) -> None:
    """y in class T1, written states in T3, windows and everything else in T0."""
    assert_close(y, expected.y, T1, term_magnitudes=expected.y_terms)
    assert_same_bits(inputs.conv_state, expected.conv_state)
    written = before.slots[before.slots > 0].long().unique()
    others = torch.ones(inputs.state.shape[0], dtype=torch.bool)
    others[written.cpu()] = False
    assert_same_bits(inputs.state[others.cuda()], before.state[others.cuda()])
    for slot in written.tolist():
        error = relative_l2(inputs.state[slot], expected.state[slot])
        assert error <= T3_RELATIVE_L2, f"slot {slot}: relative L2 error {error:.2e}"


@lru_cache(maxsize=2 * len(CASES))
def prepared(name: str, heads: int, num_reqs: int, tokens: int) -> tuple[KdaInputs, Expected]:
    """Inputs of a case and what they must give; the schedules of a shape share them."""
    case = next(c for c in CASES if c.name == name)
    inputs = case_inputs(case, heads, num_reqs, tokens).to("cuda")
    return inputs, expect(inputs)


def run_and_check(name: str, num_reqs: int, variant: KdaVariant) -> None:
    before, expected = prepared(name, variant.schedule.heads, num_reqs, variant.schedule.tokens)
    inputs = before.to("cuda")
    check(inputs, before, expected, launch(inputs, variant))


@pytest.mark.parametrize(("variant", "case"), VARIANTS_AND_CASES)
def test_a_step_agrees_with_the_oracle(variant: KdaVariant, case: Case) -> None:
    run_and_check(case.name, NUM_REQS, variant)


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_smallest_and_the_largest_batch_agree_with_the_oracle(variant: KdaVariant) -> None:
    for num_reqs in variant.kernel.batches:
        run_and_check("random", num_reqs, variant)


@pytest.mark.parametrize("heads", [12, 6])
@pytest.mark.parametrize("num_reqs", [1, 2, 3, 5, 8, 9, 16, 17, 32, 33, 63, 64])
def test_the_variant_chosen_by_batch_agrees_with_the_oracle(heads: int, num_reqs: int) -> None:
    inputs = random_inputs(heads, num_reqs, 1, seed=num_reqs).to("cuda")
    before = inputs.to("cuda")
    expected = expect(before)
    check(inputs, before, expected, launch(inputs))


@pytest.mark.parametrize("tokens", [1, 3])
def test_slots_beyond_2_to_the_31_elements_are_reached(tokens: int) -> None:
    inputs = random_inputs(12, 2, tokens).to("cuda")
    num_slots = inputs.state.shape[0]
    stride = -(-(2**31) // (4 * int(inputs.slots.max()))) * 4 + 4
    storage = torch.empty(stride * (num_slots - 1) + inputs.state[0].numel(), device="cuda")
    assert stride * int(inputs.slots.max()) > 2**31
    far = storage.as_strided(inputs.state.shape, (stride, *inputs.state.stride()[1:]))
    far.copy_(inputs.state)
    inputs.state = far
    before = random_inputs(12, 2, tokens).to("cuda")
    expected = expect(before)
    y = launch(inputs)
    inputs.state = far.contiguous()
    check(inputs, before, expected, y)


def test_rows_and_columns_around_the_output_keep_their_bits() -> None:
    inputs = random_inputs(6, 4, 1).to("cuda")
    wide = torch.full((6, 6 * 128 + 16), float("nan"), dtype=torch.bfloat16, device="cuda")
    launch(inputs, out=wide[1:5, 8:-8])
    inside = torch.zeros_like(wide, dtype=torch.bool)
    inside[1:5, 8:-8] = True
    assert torch.equal(wide.isnan(), ~inside)
