"""Tests marked `gpu` are skipped, and so recorded as not run, where there is no GPU or no CuTe DSL."""

import importlib.util

import pytest
import torch


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("gpu") is None:
        return
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA GPU")
    if importlib.util.find_spec("cutlass") is None:
        pytest.skip("needs nvidia-cutlass-dsl")
