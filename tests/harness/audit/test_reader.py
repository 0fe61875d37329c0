"""The PTX reader keeps every instruction, its line, and what it does to memory and control."""

from __future__ import annotations

import pytest

from harness.audit.program import (
    BarrierAction,
    Effect,
    Kernel,
    Kind,
    Mechanism,
    Op,
    Order,
    ParamValue,
    Scope,
    Space,
)
from harness.audit.ptx import read_ptx

BYTES = "mbarrier::complete_tx::bytes"
HEAD = """.version 8.7
.target sm_90a
.address_size 64
.extern .shared .align 16 .b8 smem[];
.visible .entry k(.param .u64 .ptr .global .align 16 x, .param .align 8 .b8 s[24], .param .f32 a)
{
.reg .pred %p<4>; .reg .b32 %r<20>; .reg .b64 %rd<20>; .reg .f32 %f<9>; .reg .b128 %q; .reg .b16 %h<4>;
"""


def kernel_of(*lines: str) -> Kernel:
    (kernel,) = read_ptx(HEAD + "\n".join(lines) + "\nret;\n}\n").kernels
    return kernel


@pytest.mark.parametrize(
    ("line", "effect", "space", "mechanism", "num_bytes"),
    [
        ("ld.global.nc.L1::no_allocate.L2::256B.v4.f32 {%f1,%f2,%f3,%f4}, [%rd1+16];", "read", "global", "plain", 16),
        ("ld.relaxed.gpu.global.L1::no_allocate.b128 %q, [%rd1];", "read", "global", "plain", 16),
        ("ldu.global.b32 %r1, [%rd1];", "read", "global", "plain", 4),
        ("ld.b32 %r1, [%rd1].unified;", "read", "generic", "plain", 4),
        ("st.global.wt.v2.b64 [%rd1+-8], {%rd2, 5};", "write", "global", "plain", 16),
        ("atom.acq_rel.gpu.global.cas.b64 %rd2, [%rd1], %rd3, %rd4;", "update", "global", "atomic", 8),
        ("red.global.add.v4.f32 [%rd1], {%f1,%f2,%f3,%f4};", "update", "global", "atomic", 16),
        ("multimem.st.relaxed.sys.global.v4.f32 [%rd1], {%f1,%f2,%f3,%f4};", "write", "global", "multimem", 16),
        ("multimem.red.release.sys.global.add.u32 [%rd1], 1;", "update", "global", "multimem", 4),
        ("prefetch.global.L2::evict_last [%rd1];", "prefetch", "global", "plain", None),
        ("prefetchu.L1 [%rd1];", "prefetch", "generic", "plain", None),
        ("discard.global.L2 [%rd1], 128;", "write", "global", "plain", None),
        ("cp.async.bulk.prefetch.L2.global [%rd1], %r1;", "prefetch", "global", "bulk", None),
        ("cp.async.bulk.prefetch.tensor.2d.L2.global [%rd1, {%r1,%r2}];", "prefetch", "global", "tensor map", None),
        ("tex.2d.v4.f32.s32 {%f1,%f2,%f3,%f4}, [%rd1, {%r1,%r2}];", "read", "global", "texture", None),
        ("sust.b.1d.b32.trap [%rd1, {%r1}], {%r2};", "write", "global", "surface", None),
        ("wmma.load.a.sync.aligned.row.m16n16k16.global.f16 {%r1,%r2,%r3,%r4,%r5,%r6,%r7,%r8}, [%rd1], %r9;",
         "read", "global", "matrix", None),
    ],
    ids=lambda value: str(value).split(" ")[0],
)  # fmt: skip
def test_an_access_is_read_with_its_effect_space_and_width(
    line: str, effect: str, space: str, mechanism: str, num_bytes: int | None
) -> None:
    (access,) = kernel_of(line).instructions[0].accesses
    assert (access.effect, access.space, access.mechanism, access.num_bytes) == (
        effect,
        space,
        mechanism,
        num_bytes,
    )


@pytest.mark.parametrize(
    "line",
    [
        "cp.async.cg.shared.global.L2::128B [%r1], [%rd1], 16, %r2;",
        f"cp.async.bulk.shared::cluster.global.{BYTES}.multicast::cluster [%r1], [%rd1], 512, [%r2], %h1;",
        f"cp.async.bulk.tensor.3d.shared::cta.global.im2col.{BYTES} [%r1], [%rd1, {{%r3,%r3,%r3}}], [%r2], {{%h1}};",
        f"cp.async.bulk.tensor.2d.cta_group::2.shared::cluster.global.tile.{BYTES} [%r1], [%rd1, {{%r3,%r3}}], [%r2];",
    ],
)  # fmt: skip
def test_a_copy_into_shared_memory_reads_global_and_writes_shared(line: str) -> None:
    read, write = kernel_of(line).instructions[0].accesses
    assert (read.effect, read.space) == (Effect.READ, Space.GLOBAL)
    assert (write.effect, write.space) == (Effect.WRITE, Space.SHARED)


@pytest.mark.parametrize(
    ("line", "effect"),
    [
        (
            "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%rd1, {%r1,%r2}], [%r3];",
            Effect.WRITE,
        ),
        ("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%rd1], [%r3], 64;", Effect.UPDATE),
        (
            "cp.reduce.async.bulk.tensor.1d.global.shared::cta.min.bulk_group [%rd1, {%r1}], [%r3];",
            Effect.UPDATE,
        ),
    ],
)
def test_a_copy_out_of_shared_memory_writes_global(line: str, effect: Effect) -> None:
    read, write = kernel_of(line).instructions[0].accesses
    assert read.space is Space.SHARED and (write.effect, write.space) == (effect, Space.GLOBAL)


@pytest.mark.parametrize(
    ("line", "order", "scope"),
    [
        ("ld.volatile.global.b32 %r1, [%rd1];", Order.VOLATILE, Scope.SYS),
        ("ld.relaxed.sys.global.b32 %r1, [%rd1];", Order.RELAXED, Scope.SYS),
        ("ld.acquire.cluster.global.b32 %r1, [%rd1];", Order.ACQUIRE, Scope.CLUSTER),
        ("ld.global.cg.b32 %r1, [%rd1];", Order.WEAK, Scope.NONE),
        ("atom.global.add.u32 %r1, [%rd1], 1;", Order.RELAXED, Scope.GPU),
    ],
)
def test_order_and_scope_are_read_from_the_opcode(line: str, order: Order, scope: Scope) -> None:
    (access,) = kernel_of(line).instructions[0].accesses
    assert (access.order, access.scope) == (order, scope)


def test_a_load_of_a_parameter_is_a_value_and_no_access() -> None:
    instruction = kernel_of("ld.param.v2.b32 {%r1, %r2}, [s+8];").instructions[0]
    assert [a.args for a in instruction.assigns] == [(ParamValue(1, 8, 4),), (ParamValue(1, 12, 4),)]
    assert not instruction.accesses


def test_parameters_know_whether_they_can_be_pointers() -> None:
    assert [(p.num_bytes, p.is_pointer) for p in kernel_of().params] == [(8, True), (24, None), (4, False)]


@pytest.mark.parametrize(
    ("line", "action", "is_asynchronous"),
    [
        ("mbarrier.init.shared::cta.b64 [%r1], 4;", BarrierAction.INIT, False),
        ("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r1], 2;", BarrierAction.ARRIVE, False),
        ("mbarrier.arrive.expect_tx.shared.b64 %rd1, [%r1], 512;", BarrierAction.ARRIVE, False),
        (
            "mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 %p1, [%r1], %r2, 1000;",
            BarrierAction.TEST,
            False,
        ),
        ("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%r1], 64;", BarrierAction.EXPECT, False),
        ("cp.async.mbarrier.arrive.noinc.shared.b64 [%r1];", BarrierAction.ARRIVE, True),
        (
            "tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%r1];",
            BarrierAction.ARRIVE,
            True,
        ),
    ],
)
def test_an_mbarrier_operation_is_known(line: str, action: BarrierAction, is_asynchronous: bool) -> None:
    mbarrier = kernel_of(line).instructions[0].mbarrier
    assert mbarrier is not None and (mbarrier.action, mbarrier.is_asynchronous) == (action, is_asynchronous)


@pytest.mark.parametrize(
    "line",
    [
        "frobnicate.b32 %r1, %r2;", "ld.globl.b32 %r1, [%rd1];", "ld.global.b32 %r1;", "bra $NOWHERE;",
        "griddepcontrol.wait %r1;", "mov.b32 %r1, %undeclared;", "@%nobody ret;", "st.global.b32 [%rd1], [%rd2];",
        "brx.idx %r1, $notable;", "#!;", "@ ;", "call;",
    ],
)  # fmt: skip
def test_what_is_not_understood_stays_as_opaque_with_its_line(line: str) -> None:
    kernel = kernel_of("mov.b32 %r1, 1;", line)
    assert kernel.instructions[1].kind is Kind.OPAQUE and kernel.instructions[1].line == 9
    assert kernel.problems[0].line == 9 and len(kernel.instructions) == 3


def test_scopes_keep_names_and_labels_apart() -> None:
    block = "{ .reg .pred P; L: setp.eq.b32 P, %r1, 0; @P bra L; }"
    kernel = kernel_of(block, block)
    branches = [i for i in kernel.instructions if i.kind is Kind.BRANCH]
    assert [b.targets for b in branches] == [(0,), (2,)] and branches[0].predicate != branches[1].predicate


def test_a_called_function_stands_in_place_with_the_line_of_its_call() -> None:
    text = HEAD.replace(
        ".visible", ".func (.reg .b32 %o) f(.reg .b32 %i)\n{\nadd.s32 %o, %i, 1;\nret;\n}\n.visible"
    )
    (kernel,) = read_ptx(text + "call (%r1), f, (%r2);\nret;\n}\n").kernels
    inner = [i for i in kernel.instructions if i.opcode == "add.s32"]
    assert len(inner) == 1 and inner[0].call_lines == (13,) and inner[0].line == 7


def test_a_recursive_function_is_a_call_that_is_not_followed() -> None:
    text = HEAD.replace(".visible", ".func f()\n{\ncall f;\nret;\n}\n.visible")
    (kernel,) = read_ptx(text + "call f;\nret;\n}\n").kernels
    assert any(i.kind is Kind.CALL for i in kernel.instructions) and kernel.problems


@pytest.mark.parametrize(
    ("text", "value"), [("0f3F800000", 0x3F800000), ("0x1F", 31), ("-017", -15), ("0b101", 5)]
)
def test_literals_have_the_value_that_ptx_gives_them(text: str, value: int) -> None:
    (assign,) = kernel_of(f"mov.b32 %r1, {text};").instructions[0].assigns
    assert assign.op is Op.MOVE and getattr(assign.args[0], "value", None) == value


def test_line_information_names_the_place_in_the_kernel_that_inlined() -> None:
    text = HEAD.replace(".address_size 64", '.address_size 64\n.file 1 "a.cu"\n.file 2 "b.h"')
    text += ".loc 1 10 3\nmov.b32 %r1, 1;\n.loc 2 99 1, function_name $L, inlined_at 1 10 3\nmov.b32 %r1, 2;\nret;\n}\n"
    (kernel,) = read_ptx(text).kernels
    sources = [i.source for i in kernel.instructions[:2] if i.source is not None]
    assert [(s.file, s.line) for s in sources] == [("a.cu", 10), ("b.h", 99)] and sources[1].outermost == (
        "a.cu",
        10,
    )


def test_a_tensor_map_is_the_address_of_a_bulk_tensor_copy() -> None:
    line = (
        "cp.async.bulk.tensor.1d.shared::cta.global.mbarrier::complete_tx::bytes [%r1], [%rd1, {%r3}], [%r2];"
    )
    assert kernel_of(line).instructions[0].accesses[0].mechanism is Mechanism.TENSOR_MAP
