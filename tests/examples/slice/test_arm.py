"""What an arm asks for and how it counts time."""

import pytest

from examples.slice.arm import _by_name, prompt_tokens
from examples.slice.config import slice_config
from examples.slice.weights import _GROUPS
from harness.engine.step_profile import covered_ns

_SPANS = [(0, 10_000, "front"), (8_000, 30_000, "down"), (9_000, 12_000, "norm"), (40_000, 45_000, "front")]


def test_what_kernels_add_to_the_busy_time_adds_up_to_it():
    added = sum(entry[2] for entry in _by_name(_SPANS[::-1], 1).values())
    assert added == covered_ns(_SPANS) / 1e3


def test_a_kernel_that_waits_beside_another_adds_only_what_it_ends_later():
    assert _by_name(_SPANS, 1) == {
        "front": [2.0, 15.0, 15.0],
        "down": [1.0, 22.0, 20.0],
        "norm": [1.0, 3.0, 0.0],
    }


def test_projections_of_different_inputs_have_names_of_their_own():
    names = [
        f"kernel_cutlass_kernel_ProjectionKernelnum_outputs7168_num_inputs{n}_tactic" for n in (1536, 4352)
    ]
    assert len(_by_name([(0, 1, name) for name in names], 1)) == 2


@pytest.mark.parametrize("num_tokens", [256, 2048])
def test_a_prompt_asks_for_as_many_experts_as_drawn_tokens_would(num_tokens):
    vocabulary = slice_config(8, 5, 1024)["vocab_size"]
    expected = _GROUPS * (1 - (1 - 1 / _GROUPS) ** num_tokens)
    for number in (7, 26, 45):
        groups = {token % _GROUPS for token in prompt_tokens(number, num_tokens, vocabulary)}
        assert len(groups) == pytest.approx(expected, rel=0.05)


def test_a_prompt_is_the_same_in_every_arm():
    assert prompt_tokens(3, 8, 20480) == prompt_tokens(3, 8, 20480) != prompt_tokens(4, 8, 20480)
