"""A subject of a few lines, so that the commands run without a GPU and without a DSL."""

from pathlib import Path

import pytest

MANIFEST = """
schema_version = 1
[kernels]
inventory = "toy_kernels:variants"
launches = "toy_kernels:launch_counts"
benchmarks = "toy_kernels:benchmarks"
tuning = "toy_kernels:Tuner"
tests = ["toy_tests"]
"""
SUBJECT = """
from collections import Counter
from dataclasses import dataclass, field

COUNTS = Counter()


@dataclass
class Variant:
    name: str
    operator: str = "OC-0"
    family: str = "toy"
    rank_shape: str = "any"
    batches: tuple = (1, 4)
    roles: dict = field(default_factory=lambda: {"0": "static"})
    launch: str = "pdl"
    dependents: str = "wait"
    allowed_spill_bytes: int = 0


def variants():
    return (Variant("small"), Variant("large"))


def launch_counts():
    return dict(COUNTS)


def benchmarks():
    return (Variant("cell"),)


class Task:
    def __init__(self, name, **choices):
        self.name, self.choices = name, choices

    def prepare(self):
        if not self.choices:
            raise ValueError("no weights")
        return {name: lambda calls=calls: calls() for name, calls in self.choices.items()}


def runs():
    return [lambda: None]


def does_not_run():
    raise ValueError("relative error 3e-1")


class Tuner:
    def tasks(self):
        return (
            Task("cannot begin"),
            Task("none runs", wide=does_not_run, narrow=does_not_run),
            Task("one runs", wide=does_not_run, narrow=runs),
        )

    def save(self, chosen, gpu):
        return f"{chosen} for {gpu}"
"""
PRETENDED_TORCH = """
from contextlib import nullcontext
from types import SimpleNamespace

__version__ = "0"
_idle = SimpleNamespace(wait_stream=lambda _stream: None, replay=lambda: None)
cuda = SimpleNamespace(
    is_available=lambda: HAS_GPU,
    current_device=lambda: 0,
    get_device_name=lambda: "pretended GPU",
    device_count=lambda: 1,
    Stream=lambda: _idle,
    CUDAGraph=lambda: _idle,
    current_stream=lambda: _idle,
    stream=nullcontext,
    graph=lambda _graph, stream: nullcontext(stream),
    synchronize=lambda: None,
    Event=lambda enable_timing: SimpleNamespace(
        record=lambda: None, synchronize=lambda: None, elapsed_time=lambda _end: 24.0
    ),
)
"""


@pytest.fixture
def toy(tmp_path: Path) -> Path:
    """The manifest of a subject with two variants and no tests yet."""
    (tmp_path / "toy_kernels.py").write_text(SUBJECT)
    (tmp_path / "toy_tests").mkdir()
    manifest = tmp_path / "fasttrack.toml"
    manifest.write_text(MANIFEST)
    return manifest


@pytest.fixture
def without_gpu(toy: Path) -> Path:
    """The subject beside a `torch` that sees no GPU."""
    (toy.parent / "torch.py").write_text(f"HAS_GPU = False\n{PRETENDED_TORCH}")
    return toy


@pytest.fixture
def pretended_gpu(toy: Path) -> Path:
    """The subject beside a `torch` whose streams, graphs and events do nothing."""
    (toy.parent / "torch.py").write_text(f"HAS_GPU = True\n{PRETENDED_TORCH}")
    return toy
