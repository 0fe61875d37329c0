"""Addresses are followed back to parameters, conditions are remembered, threads are told apart."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.audit.bounds import Bounds
from harness.audit.cfg import Graph
from harness.audit.integers import (
    combine_intervals,
    compute,
    intersect,
    satisfying,
    shifted,
    to_signed,
    to_unsigned,
)
from harness.audit.model import Model
from harness.audit.program import Op
from harness.audit.ptx import read_ptx
from harness.audit.roles import KernelOptions
from harness.audit.threads import ThreadClass

HEAD = """.version 8.7
.target sm_90a
.address_size 64
.shared .align 16 .b8 buffer[64];
.visible .entry k(.param .u64 a, .param .u64 b, .param .align 8 .b8 s[24], .param .u32 n)
.reqntid 96, 1, 1
{
.local .align 8 .b8 stack[32];
.reg .pred %p<9>; .reg .b32 %r<20>; .reg .b64 %rd<20>;
"""


def model_of(*lines: str) -> Model:
    return Model(read_ptx(HEAD + "\n".join(lines) + "\nret;\n}\n").kernels[0], KernelOptions())


def classes_of(model: Model) -> tuple[ThreadClass, ...]:
    """Threads by all that decides what they run."""
    places = frozenset(range(len(model.kernel.instructions)))
    return model.classes(frozenset(range(len(model.graph.blocks))), places)


def sources_of(*lines: str) -> set[str]:
    """What the last load of the text can start from."""
    return {str(source) for source, _ in model_of(*lines).touches[-1].reach.sources}


A, B, S8 = "ld.param.u64 %rd1, [a];", "ld.param.u64 %rd2, [b];", "ld.param.u64 %rd3, [s+8];"
LOAD = "ld.global.b32 %r1, [%rd9];"


@pytest.mark.parametrize(
    ("lines", "sources"),
    [
        ((A, "mul.wide.u32 %rd4, %r2, 4;", "add.s64 %rd9, %rd1, %rd4;"), {"a"}),
        ((S8, "mad.wide.s32 %rd9, %r2, 8, %rd3;"), {"s+8"}),
        ((A, B, "selp.b64 %rd9, %rd1, %rd2, %p1;"), {"a", "b"}),
        ((A, B, "mov.b64 %rd9, %rd1;", "@%p1 mov.b64 %rd9, %rd2;"), {"a", "b"}),
        ((A, B, "sub.s64 %rd4, %rd1, %rd2;", "add.s64 %rd9, %rd2, %rd4;"), {"a"}),
        ((A, "mov.b64 {%r2, %r3}, %rd1;", "mov.b64 %rd9, {%r2, %r3};"), {"a"}),
        ((A, "and.b64 %rd9, %rd1, -16;"), {"a"}),
        ((A, "cvta.to.global.u64 %rd9, %rd1;"), {"a"}),
        ((A, "st.local.b64 [stack+8], %rd1;", "ld.local.b64 %rd9, [stack+8];"), {"a"}),
        ((A, B, "st.local.v2.b64 [stack], {%rd1, %rd2};", "ld.local.b64 %rd9, [stack+8];"), {"b"}),
        ((A, "st.shared.b64 [buffer], %rd1;", "mov.b32 %r2, buffer;", "ld.shared.b64 %rd9, [%r2];"), {"a"}),
        (("mov.b64 %rd4, s;", "cvta.param.u64 %rd5, %rd4;", "ld.b64 %rd9, [%rd5+16];"), {"s+16"}),
        ((A, "ld.global.b64 %rd9, [%rd1+24];"), {"*(a)"}),
        ((A, "L:", "add.s64 %rd9, %rd1, 4;", "mov.b64 %rd1, %rd9;", "@%p1 bra L;"), {"a"}),
        ((A, B, "@%p1 bra L;", "mov.b64 %rd1, %rd2;", "L: mov.b64 %rd9, %rd1;"), {"a", "b"}),
        (("ld.param.v2.b32 {%r2, %r3}, [a];", "mov.b64 %rd9, {%r2, %r3};"), {"a"}),
        ((A, "shl.b32 %r4, %r2, 3;", "cvt.u64.u32 %rd4, %r4;", "add.s64 %rd9, %rd4, %rd1;"), {"a"}),
    ],
    ids=lambda v: v[-1] if isinstance(v, tuple) else "",
)  # fmt: skip
def test_an_address_is_followed_to_its_parameters(lines: tuple[str, ...], sources: set[str]) -> None:
    assert sources_of(*lines, LOAD) == sources


def test_two_possible_bases_are_ambiguous_until_one_is_used_as_an_address() -> None:
    lines = (A, B, "add.s64 %rd9, %rd1, %rd2;", LOAD)
    assert model_of(*lines).touches[-1].reach.is_ambiguous
    sure = model_of(*lines[:2], "ld.global.b32 %r1, [%rd1];", *lines[2:]).touches[-1].reach
    assert not sure.is_ambiguous and [str(s) for s, _ in sure.sources] == ["a"]


def test_an_address_that_leads_nowhere_is_not_resolved() -> None:
    assert not model_of("mov.b64 %rd9, 4096;", LOAD).touches[-1].reach.is_resolved


def test_generic_accesses_of_shared_local_and_parameter_memory_are_no_global_ones() -> None:
    lines = ["mov.b64 %rd4, buffer;", "cvta.shared.u64 %rd9, %rd4;"]
    lines += [
        "ld.b32 %r1, [%rd9];",
        "mov.b64 %rd5, stack;",
        "cvta.local.u64 %rd6, %rd5;",
        "st.b32 [%rd6], %r1;",
    ]
    assert not model_of(*lines).touches


def test_the_value_after_a_predicated_write_may_be_the_old_one() -> None:
    model = model_of(
        "mov.b32 %r1, 1;", "@%p1 mov.b32 %r1, 2;", "setp.eq.b32 %p2, %r1, 1;", "@%p2 bra L;", "L:"
    )
    predicate = model.expressions.of_register(3, "%p2")
    assert model.expressions.literal(predicate, True)[0][1] == ((1, 1),)
    assert model.expressions[predicate].constant is None


@pytest.mark.parametrize(
    ("lines", "sizes"),
    [
        (("mov.u32 %r1, %tid.x;", "setp.eq.s32 %p1, %r1, 0;"), [1, 95]),
        (("mov.u32 %r1, %tid.x;", "shr.u32 %r2, %r1, 5;", "setp.ne.s32 %p1, %r2, 1;"), [32, 64]),
        (("mov.u32 %r1, %laneid;", "and.b32 %r2, %r1, 3;", "setp.lt.u32 %p1, %r2, 2;"), [48, 48]),
        (("mov.u32 %r1, %tid.x;", "shr.u32 %r2, %r1, 5;", "mov.u32 %r3, 0;",
          "shfl.sync.idx.b32 %r4|%p3, %r2, %r3, 31, -1;", "setp.gt.s32 %p1, %r4, 1;"), [32, 64]),
        (("ld.param.u32 %r1, [n];", "setp.gt.s32 %p1, %r1, 1;"), [96]),
        (("mov.u32 %r1, %tid.x;", "or.b32 %r2, %r1, %r9;", "setp.eq.s32 %p1, %r2, 0;"), [1, 95]),
    ],
)  # fmt: skip
def test_threads_are_sorted_by_the_conditions_on_who_they_are(
    lines: tuple[str, ...], sizes: list[int]
) -> None:
    model = model_of(*lines, "@%p1 bra L;", "griddepcontrol.wait;", "L: bar.sync 0;")
    classes = classes_of(model)
    assert sorted(len(c.threads) for c in classes) == sizes and all(c.is_certain for c in classes)


def test_the_elected_thread_and_the_others_are_two_classes() -> None:
    model = model_of("elect.sync %r1|%p1, -1;", "@%p1 bra L;", "griddepcontrol.wait;", "L:")
    classes = classes_of(model)
    # One thread of each warp is the elected one, and nobody knows which.
    assert sorted((c.is_elected, len(c.threads)) for c in classes) == [(False, 96), (True, 96)]


def test_dominators_and_loops_of_a_nested_loop() -> None:
    text = ("A: mov.b32 %r1, 1;", "B: mov.b32 %r2, 1;", "@%p1 bra B;", "@%p2 bra A;")
    graph = Graph(model_of(*text).kernel)
    assert sorted(len(loop.blocks) for loop in graph.loops) == [1, 3]
    assert all(graph.dominates(0, b.index) for b in graph.blocks)


def test_a_loop_that_nothing_reaches_is_no_trouble() -> None:
    model = model_of("ret;", "L: setp.eq.b32 %p1, %r1, 0;", "@%p1 bra L;", "bra L;", LOAD)
    assert model.expressions.of_register(2, "%p1") >= 0 and model.touches


values = st.integers(-(1 << 33), 1 << 33)


@given(
    st.sampled_from([Op.EQ, Op.NE, Op.LT, Op.LE, Op.GT, Op.GE]),
    values,
    values,
    st.sampled_from([16, 32, 64]),
    st.booleans(),
)
def test_the_values_that_satisfy_a_comparison_are_exactly_its_ranges(
    op: Op, x: int, constant: int, bits: int, signed: bool
) -> None:
    value = to_unsigned(x, bits)
    is_inside = bool(intersect(((value, value),), satisfying(op, constant, bits, signed)))
    assert is_inside == bool(compute(op, bits, signed, (x, constant)))


@given(values, values, st.sampled_from([8, 32, 64]))
def test_division_truncates_towards_zero_as_the_machine_does(a: int, b: int, bits: int) -> None:
    left, right = to_signed(a, bits), to_signed(b, bits)
    quotient, rest = (compute(op, bits, True, (a, b)) for op in (Op.DIV, Op.REM))
    if right == 0:
        assert quotient is None and rest is None
    else:
        assert quotient == to_unsigned(
            int(abs(left) // abs(right)) * (1 if (left < 0) == (right < 0) else -1), bits
        )
        assert rest is not None and to_unsigned(quotient * right + rest, bits) == to_unsigned(left, bits)


@given(st.integers(-100, 100), st.integers(0, 50), st.integers(-60, 60), st.booleans())
def test_a_moved_range_holds_every_moved_value(low: int, size: int, delta: int, mirrored: bool) -> None:
    ranges = satisfying(Op.GE, to_unsigned(low, 32), 32, True)
    ranges = intersect(ranges, satisfying(Op.LE, to_unsigned(low + size, 32), 32, True))
    moved = shifted(ranges, delta, mirrored=mirrored, bits=32)
    values = [delta - v if mirrored else v + delta for v in range(low, low + size + 1)]
    assert all(intersect(moved, ((to_unsigned(v, 64),) * 2,)) for v in values)


@given(
    st.sampled_from([Op.ADD, Op.SUB, Op.MUL, Op.AND, Op.OR, Op.SHR, Op.REM, Op.MUL_HIGH, Op.SHL]),
    st.tuples(st.integers(0, 300), st.integers(0, 40)),
    st.tuples(st.integers(0, 20), st.integers(0, 8)),
)
def test_an_interval_of_a_result_holds_the_result(op: Op, a: tuple[int, int], b: tuple[int, int]) -> None:
    found = combine_intervals(op, [(a[0], a[0] + a[1]), (b[0], b[0] + b[1])], 32)
    for x in (a[0], a[0] + a[1] // 2, a[0] + a[1]):
        for y in (b[0], b[0] + b[1]):
            result = compute(op, 32, False, (x, y))
            if found is not None and result is not None and found[0] >= 0 and x - y >= 0:
                assert found[0] <= result <= found[1]


def test_a_stage_index_that_starts_again_stays_within_its_ring() -> None:
    turn = ("add.s32 %r1, %r1, 1;", "setp.eq.s32 %p2, %r1, 3;", "selp.b32 %r1, 0, %r1, %p2;")
    model = model_of("mov.u32 %r1, 0;", "L:", *turn, "setp.lt.s32 %p1, %r5, %r4;", "@%p1 bra L;")
    number = model.expressions.of_register(len(model.kernel.instructions) - 2, "%r1")
    assert Bounds(model).of(number) == (0, 2)
