"""What nvcc makes of CUDA C++ kernels with and without a fault (`fixtures/nvcc/kernels.cu`, nvcc 13.0, -O3)."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.audit.audit import audit_kernel
from harness.audit.decide import Decision
from harness.audit.program import Kernel
from harness.audit.ptx import read_ptx
from harness.audit.roles import parse_options

KERNELS = read_ptx((Path(__file__).parent / "fixtures" / "nvcc" / "kernels.ptx").read_text()).kernels
ARGUMENTS = {"param_0": "activation", "param_1": "static", "param_2": "output"}
FIELDS = {"param_0": "activation", "param_0+16": "static", "param_0+24": "output"}


def options_of(kernel: Kernel) -> dict[str, object]:
    """Kernels that take one struct have their roles by field."""
    return {"roles": FIELDS if kernel.params[0].is_grid_constant_struct else ARGUMENTS}


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda k: k.name)
def test_a_kernel_has_a_fault_exactly_when_its_source_has(kernel: Kernel) -> None:
    results = audit_kernel(kernel, parse_options(options_of(kernel)).for_kernel(kernel.name))
    found = {r.decision for r in results}
    assert (Decision.SHOWN in found) == kernel.name.startswith("fault_")
    assert Decision.UNDECIDED not in found


def test_every_instruction_of_the_compiler_is_understood() -> None:
    assert len(KERNELS) >= 40 and not [p for k in KERNELS for p in k.problems]
