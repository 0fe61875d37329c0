"""OC-16: routed experts and their MXFP4 weights."""

import math

import pytest
import torch

from specialized_path.reference import Mxfp4Weight, dequantize_mxfp4, routed_experts, situ

NAN = float("nan")
F64 = {"acc_dtype": torch.float64}
MAGNITUDES = [0, 0.5, 1, 1.5, 2, 3, 4, 6]


def naive_situ(g, u):
    sigma = 1 / (1 + math.exp(-g)) if g > -700 else 0.0
    return 4 * math.tanh(g / 4) * sigma * 25 * math.tanh(u / 25)


def naive_expert(x, w1, w3, w2, rounded=float):
    def product(matrix, vector):
        return [math.fsum(a * b for a, b in zip(row, vector, strict=True)) for row in matrix]

    pairs = zip(product(w1.tolist(), x), product(w3.tolist(), x), strict=True)
    return [rounded(v) for v in product(w2.tolist(), [rounded(naive_situ(g, u)) for g, u in pairs])]


def random_mxfp4(*shape, low=120, high=130):
    generator = torch.Generator().manual_seed(7)
    packed = torch.randint(0, 256, (*shape[:-1], shape[-1] // 2), generator=generator, dtype=torch.uint8)
    scale = torch.randint(low, high, (*shape[:-1], shape[-1] // 32), generator=generator, dtype=torch.uint8)
    return Mxfp4Weight(packed=packed, scale=scale)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("scale", [0, 1, 126, 127, 128, 252])
def test_every_code_at_every_position_has_its_exact_value_low_nibble_first(scale, dtype):
    for shift in range(16):
        codes = [(k + shift) % 16 for k in range(32)]
        packed = torch.tensor([[codes[2 * i] | codes[2 * i + 1] << 4 for i in range(16)]], dtype=torch.uint8)
        weight = Mxfp4Weight(packed=packed, scale=torch.tensor([[scale]], dtype=torch.uint8))
        values = dequantize_mxfp4(weight, dtype=dtype)
        expected = [math.copysign(MAGNITUDES[c % 8] * 2.0 ** (scale - 127), 8 - c - 0.5) for c in codes]
        assert values.dtype == dtype and values[0].tolist() == expected
        assert values[0].signbit().tolist() == [c >= 8 for c in codes]


def test_the_largest_scale_is_exact_in_float64():
    weight = Mxfp4Weight(
        packed=torch.full((1, 16), 0xF7, dtype=torch.uint8), scale=torch.tensor([[254]]).byte()
    )
    assert dequantize_mxfp4(weight, dtype=torch.float64)[0, :2].tolist() == [6 * 2.0**127, -6 * 2.0**127]


def test_each_group_of_thirty_two_has_its_own_scale():
    weight = Mxfp4Weight(
        packed=torch.full((1, 32), 0x22, dtype=torch.uint8), scale=torch.tensor([[127, 130]]).byte()
    )
    assert dequantize_mxfp4(weight)[0].tolist() == [1.0] * 32 + [8.0] * 32


def test_the_nan_scale_and_mismatched_shapes_are_errors():
    packed = torch.zeros(1, 16, dtype=torch.uint8)
    with pytest.raises(ValueError, match="scale codes: got 255"):
        dequantize_mxfp4(Mxfp4Weight(packed=packed, scale=torch.tensor([[255]]).byte()))
    with pytest.raises(ValueError, match="scale columns: got 2, expected 1"):
        dequantize_mxfp4(Mxfp4Weight(packed=packed, scale=torch.tensor([[1, 1]]).byte()))


@pytest.mark.parametrize("g", [-math.inf, -30.0, -1.5, 0.0, 2.0, 60.0, math.inf])
@pytest.mark.parametrize("u", [-math.inf, -40.0, 0.0, 3.0, math.inf])
def test_the_activation_saturates_at_its_bounds(g, u):
    value = situ(torch.tensor(g).double(), torch.tensor(u).double(), **F64).item()
    assert value == pytest.approx(naive_situ(g, u), rel=1e-14, abs=1e-300) and abs(value) <= 100


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_every_slot_holds_its_own_experts_output_with_two_roundings(randn, bf16, dtype):
    w1, w3, w2 = (randn(6, *shape, dtype=dtype) for shape in ((5, 4), (5, 4), (4, 5)))
    ids = torch.tensor([[5, 0, 2], [0, 5, 1], [2, 1, 0], [0, 2, 5]], dtype=torch.int32)
    x = randn(4, 4, dtype=dtype)
    y = routed_experts(x, ids, w1, w3, w2, **F64)
    tolerance = 0 if dtype == torch.bfloat16 else 1e-12
    for b in range(4):
        for slot, e in enumerate(ids[b].tolist()):
            rounded = bf16 if dtype == torch.bfloat16 else float
            expected = naive_expert(x[b].tolist(), w1[e], w3[e], w2[e], rounded)
            torch.testing.assert_close(y[b, slot].tolist(), expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("num_tokens", [0, 1, 64])
def test_one_expert_may_serve_every_token_and_no_token_is_no_error(randn, num_tokens):
    w1, w2, x = randn(3, 5, 4), randn(3, 4, 5), randn(num_tokens, 4)
    y = routed_experts(x, torch.full((num_tokens, 1), 2), w1, w1 + 1, w2, **F64)
    assert y.shape == (num_tokens, 1, 4)
    for b in range(num_tokens):
        expected = naive_expert(x[b].tolist(), w1[2], w1[2] + 1, w2[2])
        torch.testing.assert_close(y[b, 0].tolist(), expected, rtol=1e-11, atol=1e-12)


def test_mxfp4_experts_equal_experts_of_their_exact_values(randn):
    w1, w3, w2 = random_mxfp4(5, 64, 32), random_mxfp4(5, 64, 32, low=118), random_mxfp4(5, 32, 64)
    x, ids = randn(3, 32, dtype=torch.bfloat16), torch.tensor([[0, 4], [4, 3], [1, 0]])
    plain = [dequantize_mxfp4(w, dtype=torch.float64) for w in (w1, w3, w2)]
    assert torch.equal(routed_experts(x, ids, w1, w3, w2, **F64), routed_experts(x, ids, *plain, **F64))


def test_slices_of_the_intermediate_dimension_add_up(randn):
    w1, w3, w2 = random_mxfp4(2, 96, 32), random_mxfp4(2, 96, 32, low=118), random_mxfp4(2, 32, 96)
    x, ids = randn(3, 32), torch.tensor([[0, 1], [1, 0], [1, 0]])
    total = torch.zeros(3, 2, 32, dtype=torch.float64)
    for r in range(3):
        rows = slice(32 * r, 32 * r + 32)
        down = Mxfp4Weight(packed=w2.packed[:, :, 16 * r : 16 * r + 16], scale=w2.scale[:, :, r : r + 1])
        total += routed_experts(x, ids, w1[:, rows], w3[:, rows], down, **F64)
    torch.testing.assert_close(total, routed_experts(x, ids, w1, w3, w2, **F64), rtol=1e-11, atol=1e-11)


def test_padding_beyond_the_intermediate_size_is_never_read(randn):
    w1, w3, w2 = random_mxfp4(2, 64, 32), random_mxfp4(2, 64, 32), random_mxfp4(2, 32, 64)
    x, ids = randn(2, 32), torch.tensor([[0], [1]])
    short = [w1[:, :32], w3[:, :32], Mxfp4Weight(packed=w2.packed[..., :16], scale=w2.scale[..., :1])]
    expected = routed_experts(x, ids, *short, **F64)
    for weight in (w1, w3):
        weight.scale[:, 32:] = 255
    w2.scale[..., 1:] = 255
    assert torch.equal(routed_experts(x, ids, w1, w3, w2, intermediate_size=32, **F64), expected)
    plain = [dequantize_mxfp4(w, dtype=torch.float64) for w in short]
    padded = [torch.cat([w, torch.full_like(w, NAN)], dim=d) for w, d in zip(plain, (1, 1, 2), strict=True)]
    assert torch.equal(routed_experts(x, ids, *padded, intermediate_size=32, **F64), expected)


def test_an_expert_that_no_token_chose_is_never_read(randn):
    w1, w3, w2 = randn(3, 5, 4), randn(3, 5, 4), randn(3, 4, 5)
    w1[1] = w3[1] = NAN
    w2[1] = NAN
    assert routed_experts(randn(2, 4), torch.tensor([[0], [2]]), w1, w3, w2, **F64).isfinite().all()


@pytest.mark.parametrize("bad", [-1, 3])
def test_an_id_of_no_expert_is_an_error(randn, bad):
    with pytest.raises(ValueError, match=r"expected 0 \.\.\. 2"):
        routed_experts(randn(1, 4), torch.tensor([[bad]]), randn(3, 5, 4), randn(3, 5, 4), randn(3, 4, 5))
