"""Laws of the noise that a negative control puts on what specialised code returns."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from harness.engine.ledger_file import LedgerFile
from harness.engine.perturb import Perturber
from harness.engine.step_recorder import StepRecorder

TARGET = "subject:run"


def switched(amplitude: float, seed: int = 0) -> Perturber:
    perturber = Perturber()
    perturber.switch(amplitude, seed, (TARGET,))
    return perturber


def test_off_it_hands_the_very_same_object_on_and_counts_nothing() -> None:
    perturber, result = switched(0), torch.ones(3, 4)
    assert perturber.result_of(TARGET, result) is result
    assert perturber.num_calls == 0


def test_other_functions_keep_their_results() -> None:
    perturber, result = switched(1), torch.ones(3, 4)
    assert perturber.result_of("subject:other", result) is result
    assert perturber.num_calls == 0


def test_the_noise_is_as_large_as_it_says_relative_to_each_row() -> None:
    result = torch.tensor([[1.0], [100.0]]).expand(2, 20_000)
    changed = switched(0.5).result_of(TARGET, result)
    assert (changed - result).std(dim=1).tolist() == pytest.approx([0.5, 50.0], rel=0.05)


def test_the_functions_own_tensor_stays_as_it_is() -> None:
    result = torch.ones(3, 4)
    switched(1).result_of(TARGET, result)
    assert torch.equal(result, torch.ones(3, 4))


def test_the_same_seed_gives_the_same_noise_and_leaves_the_engines_random_numbers_alone() -> None:
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    one, again = (switched(1, 7).result_of(TARGET, torch.ones(2, 8)) for _ in range(2))
    assert torch.equal(one, again) and torch.equal(torch.rand(2), expected)


def test_two_calls_get_different_noise_and_are_both_counted() -> None:
    perturber = switched(1)
    one, other = (perturber.result_of(TARGET, torch.ones(2, 8)) for _ in range(2))
    assert not torch.equal(one, other) and perturber.num_calls == 2


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_a_result_keeps_its_shape_and_type(dtype: torch.dtype) -> None:
    changed = switched(1).result_of(TARGET, torch.ones(2, 8, dtype=dtype))
    assert (changed.shape, changed.dtype) == ((2, 8), dtype)


def test_tensors_in_a_structure_are_changed_and_the_rest_of_it_is_kept() -> None:
    ids = torch.arange(4)
    changed = switched(1).result_of(TARGET, (torch.ones(2, 4), {"ids": ids, "more": [torch.ones(2), "text"]}))
    assert changed[1]["ids"] is ids and changed[1]["more"][1] == "text"
    assert not torch.equal(changed[0], torch.ones(2, 4)) and not torch.equal(
        changed[1]["more"][0], torch.ones(2)
    )


@pytest.mark.parametrize("result", [None, 7, torch.arange(3), torch.ones(0, 4), [], {"a": 1}])
def test_a_result_without_a_tensor_to_change_is_no_changed_call(result: object) -> None:
    perturber = switched(1)
    assert perturber.result_of(TARGET, result) is result
    assert perturber.num_calls == 0


@pytest.mark.parametrize("amplitude", [-1.0, float("nan"), float("inf")])
def test_an_amplitude_that_is_none_is_refused(amplitude: float) -> None:
    with pytest.raises(ValueError, match="amplitude"):
        switched(amplitude)


def test_a_counted_function_is_disturbed_only_while_the_noise_is_on(tmp_path: Path) -> None:
    recorder = StepRecorder(LedgerFile(tmp_path, "nonce"))
    run = recorder.count_wrapper(lambda: torch.ones(4), TARGET)
    before = run()
    recorder.perturber.switch(1, 0, (TARGET,))
    during = run()
    recorder.perturber.switch(0, 0, ())
    assert torch.equal(before, run()) and not torch.equal(before, during)
    assert recorder.ran == {TARGET: 3}
