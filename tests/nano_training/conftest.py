"""One thread: more of them only wait for each other in models of this size."""

import pytest
import torch


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """For the tests of this folder."""
    num_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(num_threads)
