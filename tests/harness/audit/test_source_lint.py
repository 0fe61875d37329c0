"""PDL005: a wait that the compiler may see through."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.audit.decide import Decision
from harness.audit.source_lint import lint_source

CUDA = """
#include <cuda_runtime.h>
__global__ void consume(const float* x, float* y) {
    asm volatile("griddepcontrol.wait;" %s);
    float value = x[threadIdx.x];
    y[threadIdx.x] = value;
}
"""
CUTE = """
@cute.kernel
def kernel(self, x, y):
    llvm.inline_asm(
        None, [], "griddepcontrol.wait;", %s, has_side_effects=True, asm_dialect=0
    )
    cute.autovec_copy(x, y)
"""


def decisions(text: str) -> list[Decision]:
    return [r.decision for r in lint_source(text)]


@pytest.mark.parametrize(
    ("text", "decision"),
    [
        (CUDA % '::: "memory"', Decision.PROVEN),
        (CUDA % ':: : "cc", "memory"', Decision.PROVEN),
        (CUDA % "", Decision.SHOWN),
        (CUDA % ':: "r"(0)', Decision.SHOWN),
        (CUTE % '"~{memory}"', Decision.PROVEN),
        (CUTE % '""', Decision.SHOWN),
        (CUTE % 'constraints="~{memory}"', Decision.PROVEN),
        (CUTE % 'constraints=""', Decision.SHOWN),
    ],
)
def test_a_wait_needs_a_memory_clobber_where_plain_loads_are_near(text: str, decision: Decision) -> None:
    assert decisions(text) == [decision]


def test_a_wait_that_is_not_even_volatile_is_a_fault() -> None:
    assert decisions('__device__ void w() { asm("griddepcontrol.wait;"); }') == [Decision.SHOWN]


def test_a_wrapper_without_loads_is_left_to_its_callers() -> None:
    assert decisions('__device__ void w() { asm volatile("griddepcontrol.wait;"); }') == [Decision.UNDECIDED]


def test_volatile_loads_do_not_move() -> None:
    text = CUDA % ""
    text = text.replace(
        "float value = x[threadIdx.x];", "float value = ((volatile const float*)x)[threadIdx.x];"
    )
    assert decisions(text) == [Decision.UNDECIDED]


def test_a_wait_in_a_comment_is_no_wait() -> None:
    assert decisions('// asm volatile("griddepcontrol.wait;");\n') == []
    assert decisions('# llvm.inline_asm(None, [], "griddepcontrol.wait;", "")\n') == []


def test_a_trigger_needs_no_clobber_here() -> None:
    assert decisions('void t() { asm volatile("griddepcontrol.launch_dependents;"); }') == []


def test_the_line_is_that_of_the_statement() -> None:
    assert [r.line for r in lint_source(CUDA % "")] == [4]


@given(st.text(alphabet="asm volatile(\"griddepcontrol.wait;')#/*\n:memory", max_size=200))
def test_any_text_is_linted_without_an_error(text: str) -> None:
    assert lint_source(text) is not None
