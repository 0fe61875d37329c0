"""Tests of MLA kernels run for both types of cache."""

import pytest
import torch

DTYPES = {"bf16": torch.bfloat16, "fp8": torch.float8_e4m3fn}


@pytest.fixture(params=DTYPES)
def dtype(request: pytest.FixtureRequest) -> torch.dtype:
    """The type of the cache."""
    return DTYPES[request.param]
