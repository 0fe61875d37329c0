"""Subjects of `fasttrack kernels` as tests want them."""

from types import SimpleNamespace

from harness.kernels.subject import KernelRunError


class Dying:
    """A subject whose process ends badly after what it is given."""

    section = SimpleNamespace(launches="")

    def __init__(self, *lines):
        self.lines = lines

    def work(self, _action, _key, take, _options):
        for line in self.lines:
            take(line)
        raise KernelRunError("kernels-worker", "CUDA error")
