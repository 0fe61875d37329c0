"""A subject of a few lines, so that the commands run without a GPU and without a DSL."""

from pathlib import Path

import pytest

MANIFEST = """
schema_version = 1
[kernels]
inventory = "toy_kernels:variants"
launches = "toy_kernels:launch_counts"
benchmarks = "toy_kernels:benchmarks"
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
"""


@pytest.fixture
def toy(tmp_path: Path) -> Path:
    """The manifest of a subject with two variants and no tests yet."""
    (tmp_path / "toy_kernels.py").write_text(SUBJECT)
    (tmp_path / "toy_tests").mkdir()
    manifest = tmp_path / "fasttrack.toml"
    manifest.write_text(MANIFEST)
    return manifest
