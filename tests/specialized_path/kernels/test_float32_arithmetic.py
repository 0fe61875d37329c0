"""The contracts' classes take float32 arithmetic on every case, and refuse what is a hundredth too large.

The sums of MLA have tests of their own (`mla/test_mla_tolerance.py`).
"""

import pytest
import torch

from specialized_path import reference
from specialized_path.kernels.attn_res import cases as attn_res
from specialized_path.kernels.kda import cases as kda
from specialized_path.kernels.projection import cases as projection
from tests.specialized_path.kernels.attn_res.test_attn_res_kernel import run, term_magnitudes, wide
from tests.specialized_path.kernels.kda.oracle import expect
from tests.specialized_path.kernels.tolerance import T1, assert_close, assert_state_close


def assert_class_fits(got, reference, **allowed):
    assert_close(got.bfloat16(), reference, T1, **allowed)
    if bool((reference.nan_to_num() != 0).any()):
        with pytest.raises(AssertionError, match=r"ulp|relative L2"):
            assert_close((reference * 1.01).bfloat16(), reference, T1, **allowed)


def by_name(cases):
    return [pytest.param(case, id=case.name) for case in cases]


@pytest.mark.parametrize("case", by_name(projection.CASES))
def test_a_projection_of_all_k_to_which_an_atom_of_64_products_is_added_at_a_time(case):
    """As the kernel does, with one warp and the smallest stages; sixteen at a time are too many roundings for 3072."""
    x, w = (t.cpu() for t in case.change(*projection.random_inputs(4, 128, 7168)))
    total = torch.zeros(4, 128)
    for k in range(0, 7168, 64):
        total += x[:, k : k + 64].float() @ w[:, k : k + 64].float().T
    exact = reference.linear(x, w, acc_dtype=torch.float64, out_dtype=torch.float64)
    terms = x.abs().nan_to_num().double() @ w.abs().nan_to_num(posinf=0.0).double().T
    assert_class_fits(total, exact, term_magnitudes=terms)


@pytest.mark.parametrize("num_blocks", [7, 8])
@pytest.mark.parametrize("case", by_name(attn_res.CASES))
def test_an_attention_residual(case, num_blocks):
    inputs = case.change(attn_res.random_inputs(3, num_blocks), num_blocks)
    layer = {"layer_idx": 12 * num_blocks - 11}
    got, _ = run(reference.attn_res_after_attention, inputs, inputs.delta, **layer)
    exact, prefix = run(wide(reference.attn_res_after_attention), inputs, inputs.delta, **layer)
    assert_class_fits(got, exact.double(), term_magnitudes=term_magnitudes(inputs, prefix, num_blocks))


@pytest.mark.parametrize("case", by_name(kda.CASES))
def test_a_step_of_kda(case):
    inputs = kda.case_inputs(case, 6, 3, 3)
    got, exact = expect(inputs, torch.float32), expect(inputs)
    assert_class_fits(got.y, exact.y, term_magnitudes=exact.y_terms)
    written = inputs.slots[inputs.slots > 0].long()
    for slot in written:
        assert_state_close(got.state[slot], exact.state[slot])
