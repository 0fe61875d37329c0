"""Machine code of the same kernels: what the assembler left of each fault, and what it made worse."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness.audit.audit import audit_kernels
from harness.audit.cfg import Graph
from harness.audit.decide import AuditResult, Decision
from harness.audit.expressions import Expressions
from harness.audit.program import Effect, Kernel, Kind, Op, Order, Scope, Space
from harness.audit.ptx import read_ptx
from harness.audit.resources import measure_resources
from harness.audit.roles import AuditOptions, parse_options
from harness.audit.sass import read_sass
from harness.audit.sass.listing import parse_listing
from harness.audit.values import Values
from harness.model.kernels import Launch
from tests.harness.audit.fixture_cases import CASES, Case, rules_with

FIXTURES = Path(__file__).parent / "fixtures"
ARCHES = ("sm_90a", "sm_103a")

ASSEMBLED = {
    "inline_assembly_fault": frozenset(),
    "read_only_cache_fault": frozenset(),
    "wait_at_the_end_fault": frozenset({"PDL004"}),
    "texture_clean": frozenset({"PDL001"}),
    "mailbox_one_word_tested_fault": frozenset(),
    "mailbox_tagged_vector_fault": frozenset(),
    "relaxed_cluster_barrier_fault": frozenset(),
    "surface_load_fault": frozenset(),
}
"""Where the machine code differs: unused early loads are dropped (inline_assembly, wait_at_the_end), a read-only
load sinks below the wait, a texture read rises above it, one wide word cannot be told from a vector, the
unrolled trigger loop needs arithmetic between two comparisons that is not modelled: a false alarm, a surface read sinks
below the wait, and a cluster barrier comes with a barrier of the CTA."""
OPEN = {"mailbox_one_word_tested_fault"}
"""Cases with a rule that machine code cannot decide."""


def read_fixture(case: Case, arch: str) -> tuple[Kernel, ...]:
    ptx = read_ptx(case.text).kernels
    names = {kernel.name: [p.name for p in kernel.params] for kernel in ptx}
    path = FIXTURES / "sass" / arch / f"{case.name}.sass"
    return read_sass(path.read_text(), path.name, parameter_names=names).kernels


def audit_fixture(case: Case, arch: str) -> list[AuditResult]:
    """Launched as the PTX says: the assembler may have removed every trace of it."""
    dependent = any(k.uses_dependent_launch for k in read_ptx(case.text).kernels)
    options = case.options
    if dependent:
        entries = tuple(
            (p, e if e.launch is not Launch.UNKNOWN else replace(e, launch=Launch.PDL))
            for p, e in options.entries
        )
        options = AuditOptions(entries=entries)
    return audit_kernels(read_fixture(case, arch), options)


@pytest.mark.parametrize("arch", ARCHES)
@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_machine_code_shows_the_faults_that_the_assembler_left(case: Case, arch: str) -> None:
    expected = ASSEMBLED.get(case.name, case.faults)
    assert rules_with(audit_fixture(case, arch), Decision.SHOWN) == expected


@pytest.mark.parametrize("arch", ARCHES)
@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_machine_code_leaves_nothing_open_that_the_text_decides(case: Case, arch: str) -> None:
    undecided = rules_with(audit_fixture(case, arch), Decision.UNDECIDED)
    assert bool(undecided) == (case.name in OPEN)


@pytest.mark.parametrize("arch", ARCHES)
@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_every_line_of_real_machine_code_is_understood(case: Case, arch: str) -> None:
    assert [p for k in read_fixture(case, arch) for p in k.problems] == []


def _stale_read(suffix: str) -> list[AuditResult]:
    facts = {"launch": "pdl", "dependents": "wait", "block": 256}
    roles = {"0": "activation", "1": "static", "2": "output"}
    options = parse_options({"kernels": {"consumer_*": {**facts, "roles": roles}}})
    path = FIXTURES / "real" / f"stale_read{suffix}"
    read = read_ptx if suffix == ".ptx" else read_sass
    return audit_kernels(read(path.read_text(), path.name).kernels, options)


def _shown(results: list[AuditResult]) -> set[str]:
    return {r.kernel for r in results if r.rule == "PDL001" and r.decision is Decision.SHOWN}


def test_a_read_that_the_assembler_hoists_is_right_in_ptx_and_wrong_in_sass() -> None:
    ptx, sass = _shown(_stale_read(".ptx")), _shown(_stale_read(".sm_90a.sass"))
    assert sass - ptx == {"consumer_read_only_path"}


def test_the_repaired_consumers_are_in_order_in_ptx_and_in_sass() -> None:
    repaired = {"consumer_reads_late", "consumer_one_warp_waits_for_all", "consumer_ordinary_path"}
    assert not repaired & (_shown(_stale_read(".ptx")) | _shown(_stale_read(".sm_90a.sass")))


HEADER = """
\t.target\tsm_90a
\t.section\t.nv.info,"",@"SHT_CUDA_INFO"
\t//----- nvinfo : EIATTR_REGCOUNT
        /*0000*/ \t.byte\t0x04, 0x2f
        /*0004*/ \t.word\tindex@(k)
        /*0008*/ \t.word\t0x00000018
\t.section\t.nv.info.k,"",@"SHT_CUDA_INFO"
\t//----- nvinfo : EIATTR_KPARAM_INFO
        /*0008*/ \t.byte\t0x04, 0x17
        /*000c*/ \t.word\t0x00000000
        /*0010*/ \t.short\t0x0000
        /*0012*/ \t.short\t0x0000
        /*0014*/ \t.byte\t0x00, 0xf5, 0x21, 0x00
\t//----- nvinfo : EIATTR_REQNTID
        /*0018*/ \t.byte\t0x04, 0x10
        /*001c*/ \t.word\t0x00000080
        /*0020*/ \t.word\t0x00000001
        /*0024*/ \t.word\t0x00000001
\t.section\t.text.k,"ax",@progbits
        .global         k
        .type           k,@function
        .size           k,(.L_x_9 - k)
        .other          k,@"STO_CUDA_ENTRY STV_DEFAULT"
k:
.text.k:
"""


def made(*lines: str, header: str = HEADER) -> Kernel:
    """A kernel of the given instructions; a line that ends with a colon is a label."""
    text, address = header, 0
    for line in lines:
        if line.endswith(":"):
            text += line + "\n"
        else:
            text += f"        /*{address:04x}*/                   {line} ;\n"
            address += 16
    return read_sass(text + ".L_x_9:\n").kernels[0]


def test_a_parameter_is_found_at_its_place_in_the_constant_bank() -> None:
    kernel = made("LDC.64 R2, c[0x0][0x210]", "LDG.E R4, desc[UR4][R2.64+0x8]", "EXIT")
    (value,) = kernel.instructions[0].assigns[0].args
    assert (getattr(value, "param", None), getattr(value, "offset", None)) == (0, 0)


def test_a_strong_load_followed_by_an_invalidation_acquires() -> None:
    kernel = made("LDG.E.STRONG.GPU R4, desc[UR4][R2.64]", "CCTL.IVALL", "EXIT")
    assert kernel.instructions[0].accesses[0].order is Order.ACQUIRE


def test_a_strong_load_alone_is_relaxed_at_its_scope() -> None:
    access = made("LDG.E.STRONG.SYS R4, desc[UR4][R2.64]", "EXIT").instructions[0].accesses[0]
    assert (access.order, access.scope, access.space) == (Order.RELAXED, Scope.SYS, Space.GLOBAL)


def test_a_wide_load_defines_every_register_it_fills() -> None:
    assert made("LDG.E.128 R4, desc[UR4][R2.64]", "EXIT").instructions[0].defs == ("R4", "R5", "R6", "R7")


def test_an_instruction_that_never_runs_touches_nothing() -> None:
    assert made("@!PT LDS RZ, [RZ]", "EXIT").instructions[0].accesses == ()


def test_a_branch_that_asks_the_whole_warp_may_go_either_way() -> None:
    kernel = made("BRA.DIV UR4, `(.L_x_1)", "NOP", ".L_x_1:", "EXIT")
    assert (kernel.instructions[0].targets, kernel.instructions[0].predicate) == ((2, 1), None)


def test_a_branch_on_a_uniform_predicate_hangs_on_it() -> None:
    branch = made("BRA.U !UP0, `(.L_x_1)", "NOP", ".L_x_1:", "EXIT").instructions[0]
    assert branch.predicate is not None
    assert (branch.predicate.register, branch.predicate.negated) == ("UP0", True)


def test_a_branch_under_two_predicates_is_taken_when_both_hold() -> None:
    kernel = made("@P0 BRA !P1, `(.L_x_1)", "NOP", ".L_x_1:", "EXIT")
    joined, branch = kernel.instructions[:2]
    assert [a.op for a in joined.assigns][-2:] == [Op.AND, Op.MOVE]
    assert branch.predicate is not None and branch.predicate.register == joined.defs[0]


def test_code_that_is_never_reached_brings_no_value_to_the_main_path() -> None:
    kernel = made(
        "S2R R4, SR_TID.X", "BRA `(.L_x_1)", ".L_x_0:", "MOV R4, R9", "BRA `(.L_x_1)", ".L_x_1:",
        "ISETP.GT.U32.AND P0, PT, R4, 0x7f, PT", "EXIT",
    )  # fmt: skip
    values = Values(Graph(kernel))
    test = next(i for i in kernel.instructions if i.opcode.startswith("ISETP"))
    assert values.node(values.use(test.index, "R4")).place == 0


def test_a_uniform_copy_of_one_lane_after_the_other_is_always_made() -> None:
    assert made("@P1 R2UR P0, UR4, R6", "EXIT").instructions[0].predicate is None


def test_an_indirect_branch_goes_to_all_of_its_table() -> None:
    table = 'BRX R6 -0x10 (*"BRANCH_TARGETS .L_x_1,.L_x_2"*)'
    assert made(table, ".L_x_1:", "NOP", ".L_x_2:", "EXIT").instructions[0].targets == (1, 2)


def test_an_indirect_branch_without_a_table_is_opaque() -> None:
    assert made("BRX R6 -0x10", "EXIT").instructions[0].kind is Kind.OPAQUE_BRANCH


def test_a_guarded_use_sees_the_value_made_under_its_guard() -> None:
    kernel = made(
        "LDC.64 R2, c[0x0][0x210]",
        "IMAD R8, R1, 0x10, R0",
        "@!P3 IADD3 R8, P4, R2, 0x20, RZ",
        "@!P3 LDG.E R4, desc[UR4][R8.64]",
        "EXIT",
    )
    load = next(i for i in kernel.instructions if i.opcode == "LDG.E")
    (term,) = load.accesses[0].address.terms
    copy = next(i for i in kernel.instructions if getattr(term, "name", "") in i.defs)
    assert (copy.predicate, copy.assigns[-1].op) == (None, Op.ADD)


def test_a_predicate_that_was_kept_in_a_register_is_the_same_when_it_is_back() -> None:
    kernel = made(
        "ISETP.EQ.AND P3, PT, R4, 0x5, PT", "P2R R6, PR, RZ, 0x8", "ISETP.NE.AND P1, PT, R6, RZ, PT", "EXIT"
    )
    expressions = Expressions(Values(Graph(kernel)))
    assert expressions.of_register(3, "P1") == expressions.of_register(3, "P3")


def test_a_truth_table_of_and_is_and() -> None:
    kernel = made("LOP3.LUT R4, R5, R6, RZ, 0xc0, !PT", "EXIT")
    assert [a.op for a in kernel.instructions[0].assigns] == [Op.AND, Op.MOVE]


def test_a_discard_writes_and_a_prefetch_does_not() -> None:
    kernel = made("CCTL.E.RML2 [R8]", "CCTL.E.PF2 [R8]", "EXIT")
    assert [i.accesses[0].effect for i in kernel.instructions[:2]] == [Effect.WRITE, Effect.PREFETCH]


def test_an_unknown_opcode_is_opaque_and_named_with_its_line() -> None:
    kernel = made("FROBNICATE R1, R2", "EXIT")
    assert kernel.instructions[0].kind is Kind.OPAQUE
    assert "FROBNICATE" in kernel.problems[0].text


def test_a_text_without_attributes_decides_nothing() -> None:
    kernel = made("EXIT", header=HEADER.replace(".nv.info.k", ".nv.other"))
    assert [p.spoils_all for p in kernel.problems] == [True]


def test_a_text_that_stops_in_the_middle_decides_nothing() -> None:
    text = (FIXTURES / "sass" / "sm_90a" / "hoisted_load_clean.sass").read_text()
    cut = text[: text.index("ACQBULK")]
    assert any(p.spoils_all for k in read_sass(cut).kernels for p in k.problems)


def test_a_missing_instruction_is_noticed_by_its_address() -> None:
    text = (FIXTURES / "sass" / "sm_90a" / "hoisted_load_clean.sass").read_text().splitlines(keepends=True)
    gone = next(i for i, line in enumerate(text) if "ACQBULK" in line)
    kernels = read_sass("".join(text[:gone] + text[gone + 1 :])).kernels
    assert any(p.spoils_all for k in kernels for p in k.problems)


def test_cuobjdump_text_reads_like_nvdisasm_text() -> None:
    text = """
\tcode for sm_90a
\t\tFunction : k
        /*0000*/                   ACQBULK ;           /* 0x000000000000782e */
                                                       /* 0x000fe20000000000 */
        /*0010*/                   BRA 0x0 ;           /* 0xfffffffc00fc7947 */
                                                       /* 0x000fc0000383ffff */
"""
    kernel = read_sass(text).kernels[0]
    assert [(i.kind, i.targets) for i in kernel.instructions] == [(Kind.WAIT, ()), (Kind.BRANCH, (0,))]


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_damaged_text_never_raises(data: st.DataObject) -> None:
    text = (FIXTURES / "sass" / "sm_90a" / "mbarrier_count_clean.sass").read_text()
    at = data.draw(st.integers(0, len(text)))
    length = data.draw(st.integers(0, 60))
    inserted = data.draw(st.text(alphabet="RPU[](){}`,.;:@!+-0x9fcA \n", max_size=20))
    assert read_sass(text[:at] + inserted + text[at + length :]) is not None


@given(st.text(max_size=300))
def test_any_text_is_a_listing(text: str) -> None:
    assert parse_listing(text) is not None


def test_resources_come_from_the_attributes_and_the_instructions() -> None:
    path = FIXTURES / "sass" / "sm_90a" / "mbarrier_count_clean.sass"
    found = read_sass(path.read_text())
    resources = measure_resources(found.kernels[0], found.infos[0])
    assert (resources.threads, resources.spill_stores, resources.registers is not None) == (128, 0, True)
    assert resources.occupancy is not None and 0 < resources.occupancy.share <= 1
