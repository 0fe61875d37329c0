"""What a falsified value keeps, and that none of it is left as it was."""

from __future__ import annotations

from collections import namedtuple
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from harness.own_tests.falsify import Falsifier, falsify_array, falsify_tensor

DTYPES = [
    torch.float64, torch.float32, torch.bfloat16, torch.float16, torch.float8_e4m3fn,
    torch.complex64, torch.int64, torch.int32, torch.uint8, torch.bool,
]  # fmt: skip


def rng() -> np.random.Generator:
    return np.random.default_rng(7)


@dataclass(frozen=True)
class Plan:
    path: str
    size: int


class Path(Enum):
    FAST = 1
    PLAIN = 2


Pair = namedtuple("Pair", "left right")


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_element_of_a_tensor_changes(dtype: torch.dtype) -> None:
    tensor = torch.tensor([[1, 0, 2], [1, 1, 0]]).to(dtype)
    assert (falsify_tensor(tensor, rng()).to(torch.complex128) != tensor.to(torch.complex128)).all()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_tensor_keeps_its_form(dtype: torch.dtype) -> None:
    tensor = torch.ones(4, 6).to(dtype).T[::2]
    other = falsify_tensor(tensor, rng())
    assert (other.shape, other.dtype, other.device) == (tensor.shape, dtype, tensor.device)


@given(
    st.lists(
        st.floats(width=32, allow_nan=True, allow_infinity=True) | st.sampled_from([3.4e38, -3.4e38, 1e-40]),
        min_size=1,
        max_size=12,
    )
)
def test_floats_move_by_more_than_their_largest_and_stay_finite(values: list[float]) -> None:
    array = np.array(values, dtype=np.float32)
    known = np.where(np.isfinite(array), array, 0).astype(np.float64)
    moved = falsify_array(array, rng()).astype(np.float64)
    assert np.isfinite(moved).all() and (np.abs(moved - known) >= 0.49 * np.abs(known).max() + 0.5).all()


def test_floats_move_in_both_directions() -> None:
    moved = falsify_array(np.zeros(64), rng())
    assert (moved > 0).any() and (moved < 0).any()


@given(
    st.lists(st.integers(0, 4), min_size=1, max_size=12)
    | st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=12),
    st.integers(0, 99),
)
def test_integers_all_change(values: list[int], seed: int) -> None:
    array = np.array(values, dtype=np.int64)
    assert (falsify_array(array, np.random.default_rng(seed)) != array).all()


def test_integers_stay_among_the_indices_that_they_were() -> None:
    array = np.arange(50) % 7 + 3
    other = falsify_array(array, rng())
    assert other.min() >= 3 and other.max() <= 9


def test_a_gradient_still_reaches_what_a_tensor_was_made_of() -> None:
    leaf = torch.ones(3, requires_grad=True)
    falsify_tensor(leaf * 2, rng()).sum().backward()
    assert leaf.grad is not None and leaf.grad.tolist() == [2, 2, 2]


@pytest.mark.parametrize(
    "value",
    [
        3, 2.5, True, "text", b"bytes", 1j, Path.FAST, [1, 2], (1, [2]), {"a": 1}, {1, 2}, Pair(1, 2),
        Plan("fast", 3), [], {}, (), [object(), object()], torch.Size([2, 3]), np.float32(1), [{"a": Plan("x", 1)}],
    ],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_a_value_becomes_another_of_its_type(value: Any) -> None:
    other = Falsifier(rng()).result(value)
    assert type(other) is type(value) and other != value


def test_nothing_becomes_something() -> None:
    assert Falsifier(rng()).result(None) is not None


def test_what_has_no_other_form_stays() -> None:
    opaque = object()
    assert Falsifier(rng()).result(opaque) is opaque


def test_beside_tensors_other_values_can_be_left_alone() -> None:
    given_pair = {"o": torch.ones(2), "n": 2}
    other = Falsifier(rng(), tensors_only=True).result(given_pair)
    assert other["n"] == 2 and not torch.equal(other["o"], given_pair["o"])


def test_two_calls_are_falsified_unlike() -> None:
    numbers = np.random.default_rng(1)
    first, second = (falsify_tensor(torch.ones(4), numbers) for _ in range(2))
    assert not torch.allclose(first, second)
