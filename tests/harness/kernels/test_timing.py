"""The timing loop on a pretended GPU."""

import gc
import sys
import weakref
from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from harness.kernels.timing import capture


class Kernel:
    """What a call launches; the compiler unloads it when nobody holds it any more."""

    num_launches = 0

    def __call__(self) -> None:
        Kernel.num_launches += 1


@pytest.fixture
def pretended_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """A `torch` whose streams and graphs do nothing, so that a captured call runs at once."""
    idle = SimpleNamespace(wait_stream=lambda _stream: None, replay=lambda: None)
    cuda = SimpleNamespace(
        Stream=lambda: idle,
        CUDAGraph=lambda: idle,
        current_stream=lambda: idle,
        stream=nullcontext,
        graph=lambda _graph, stream: nullcontext(stream),
        synchronize=lambda: None,
    )
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))


@pytest.mark.usefixtures("pretended_gpu")
def test_a_captured_graph_keeps_its_kernels_loaded():
    kernel = Kernel()
    is_loaded = weakref.ref(kernel)
    captured = capture([kernel])
    del kernel
    gc.collect()
    assert is_loaded() is not None and captured.graph is not None


@pytest.mark.usefixtures("pretended_gpu")
@pytest.mark.parametrize(("copies", "calls"), [(1, 24), (10, 30), (24, 24), (25, 25)])
def test_a_graph_takes_whole_turns_over_all_copies(copies: int, calls: int):
    assert capture([Kernel() for _ in range(copies)]).num_calls == calls
