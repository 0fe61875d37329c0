"""What the host side of KDA decides and refuses, without a GPU."""

import pytest
import torch

from specialized_path.kernels.kda.cases import CASES, case_inputs, random_inputs
from specialized_path.kernels.kda.geometry import DIM
from specialized_path.kernels.kda.launch import KdaWeights, kda_decode
from specialized_path.kernels.kda.schedule import HEADS, MAX_REQUESTS, MAX_TOKENS
from specialized_path.kernels.kda.variants import ROLES, find_variant, kda_variants, variants
from specialized_path.reference.rounding import round_to


def weights_of(heads: int) -> KdaWeights:
    inputs = random_inputs(heads, 1, 1)
    return KdaWeights(
        conv_weight=inputs.conv_weight,
        w_f_b=inputs.w_f_b,
        A_log=inputs.A_log,
        dt_bias=inputs.dt_bias,
        o_norm_weight=inputs.o_norm_weight,
    )


@pytest.mark.parametrize("tokens", range(1, MAX_TOKENS + 1))
@pytest.mark.parametrize("heads", HEADS.values())
def test_every_batch_is_served_by_exactly_one_variant(heads: int, tokens: int) -> None:
    for num_reqs in range(1, MAX_REQUESTS + 1):
        serving = [
            v
            for v in kda_variants()
            if (v.schedule.heads, v.schedule.tokens) == (heads, tokens)
            and v.kernel.batches[0] <= num_reqs <= v.kernel.batches[1]
        ]
        assert serving == [find_variant(heads, tokens, num_reqs)]


@pytest.mark.parametrize(("heads", "tokens", "num_reqs"), [(12, 1, 65), (12, 1, 0), (12, 9, 1), (24, 1, 1)])
def test_a_batch_outside_the_scope_is_refused(heads: int, tokens: int, num_reqs: int) -> None:
    with pytest.raises(ValueError, match="no kernel"):
        find_variant(heads, tokens, num_reqs)


def test_variants_have_different_names() -> None:
    names = [variant.name for variant in variants()]
    assert len(set(names)) == len(names)


def test_every_address_has_a_role() -> None:
    assert [int(key) for key in ROLES] == list(range(11))


def test_tensors_outside_a_gpu_are_refused() -> None:
    inputs = random_inputs(6, 2, 1)
    with pytest.raises(ValueError, match="on cuda"):
        kda_decode(inputs.projected, weights_of(6), inputs.conv_state, inputs.state, inputs.slots[:, 0])


def test_rows_that_are_not_one_a_request_are_refused() -> None:
    inputs = random_inputs(6, 2, 1)
    with pytest.raises(ValueError, match="2 rows for 1 requests"):
        kda_decode(inputs.projected, weights_of(6), inputs.conv_state, inputs.state, inputs.slots[:1, 0])


def test_moved_inputs_keep_strides_and_what_lies_between() -> None:
    case = next(c for c in CASES if c.name == "strided slot indices")
    inputs = case_inputs(case, 6, 2, 3)
    moved = inputs.to("cpu").slots
    assert moved.stride() == inputs.slots.stride()
    assert moved.as_strided((2,), (1,), 1).tolist() == [1 << 28] * 2


@pytest.mark.parametrize("case", [pytest.param(c, id=c.name) for c in CASES])
def test_a_case_differs_from_ordinary_inputs(case: object) -> None:
    tokens = 3
    plain, changed = random_inputs(6, 3, tokens), case_inputs(case, 6, 3, tokens)  # type: ignore[arg-type]
    same = all(
        a.stride() == b.stride() and a.shape == b.shape and torch.equal(a.nan_to_num(7.5), b.nan_to_num(7.5))
        for a, b in zip(vars(plain).values(), vars(changed).values(), strict=True)
    )
    assert same == (case.name == "random")  # type: ignore[attr-defined]


def test_the_raw_gates_of_all_bits_do_not_depend_on_the_order_of_their_sums() -> None:
    case = next(c for c in CASES if c.name == "raw gates of all bits")
    inputs = case_inputs(case, 12, 3, 8)
    f_a, w = inputs.columns("f_a"), inputs.w_f_b
    exact = round_to(f_a.double() @ w.double().T, torch.bfloat16)
    order = torch.arange(DIM).flip(0)
    upwards, downwards = (f_a[:, :1].float() * w[:, :1].float().T * 0 for _ in range(2))
    for k, j in zip(range(DIM), order, strict=True):
        upwards += f_a[:, k : k + 1].float() * w[:, k].float()
        downwards += f_a[:, j : j + 1].float() * w[:, j].float()
    assert not torch.equal(upwards, downwards)
    assert torch.equal(upwards.bfloat16(), exact) and torch.equal(downwards.bfloat16(), exact)
    # Bits that the coarse values of the other cases do not have.
    assert bool((f_a.float() * 16 % 1 != 0).any()) and bool((w.float() * 32 % 1 != 0).any())
