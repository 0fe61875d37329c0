"""A fault that only the lower level has is the compiler's, and both places are named."""

from __future__ import annotations

from dataclasses import replace

from harness.audit.audit import audit_kernel
from harness.audit.compare_levels import HOISTED, explain_from_source, explain_hoisted
from harness.audit.decide import AuditResult, Decision
from harness.audit.program import Kernel, Level
from harness.audit.ptx import read_ptx
from tests.harness.audit.fixture_cases import CASES


def kernel_named(name: str, level: Level) -> tuple[Kernel, list[AuditResult]]:
    case = next(c for c in CASES if c.name == name)
    kernel = replace(read_ptx(case.text, name).kernels[0], level=level)
    return kernel, audit_kernel(kernel, case.options.for_kernel(kernel.name))


def test_a_read_in_order_in_ptx_and_out_of_order_in_sass_is_compiler_hoisted_with_both_places() -> None:
    ptx, right = kernel_named("hoisted_load_clean", Level.PTX)
    _, wrong = kernel_named("hoisted_load_fault", Level.SASS)
    (fault,) = (r for r in explain_hoisted(ptx, right, wrong) if r.rule == "PDL001")
    assert fault.decision is Decision.SHOWN and fault.reason.startswith(HOISTED)
    notes = [s.note for s in fault.sites]
    assert any(n.startswith("reads x") for n in notes) and "in the PTX: after the wait" in notes


def test_a_read_that_the_ptx_has_out_of_order_too_is_not_the_compilers() -> None:
    ptx, wrong = kernel_named("hoisted_load_fault", Level.PTX)
    _, same = kernel_named("hoisted_load_fault", Level.SASS)
    assert explain_hoisted(ptx, wrong, same) == same


SOURCE = """.version 8.7
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 x)
{
.reg .b32 %r<4>; .reg .b64 %rd<4>; .reg .pred %p<3>;
ld.param.u64 %rd1, [x];
"""
FILE = '.file 1 "kernel.py"\n'


def results_of(*lines: str) -> list[AuditResult]:
    kernel = read_ptx(SOURCE + "\n".join(lines) + "\nret;\n}\n" + FILE).kernels[0]
    return [r for r in explain_from_source(kernel, audit_kernel(kernel)) if r.rule == "PDL001"]


LOAD = ".loc 1 20 1\nld.global.b32 %r1, [%rd1];"
WAIT = ".loc 1 12 1\ngriddepcontrol.wait;"


def test_a_load_whose_source_line_is_after_the_wait_that_follows_it_was_hoisted() -> None:
    (found,) = results_of(LOAD, WAIT)
    assert found.reason.startswith(HOISTED) and "line 20 of kernel.py" in found.reason


def test_a_load_whose_source_line_is_before_the_wait_is_the_authors() -> None:
    (found,) = results_of(LOAD.replace("20", "5"), WAIT)
    assert found.decision is Decision.SHOWN and HOISTED not in found.reason


def test_a_load_in_a_branch_of_its_own_was_not_moved_across_a_wait_that_it_never_meets() -> None:
    (found,) = results_of("setp.eq.s32 %p1, %r2, 0;", "@%p1 bra L;", WAIT, "ret;", "L:", LOAD)
    assert found.decision is Decision.SHOWN and HOISTED not in found.reason
