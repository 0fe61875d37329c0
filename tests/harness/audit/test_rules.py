"""What the rules say beyond pass and fail: assumptions, roles, three values, and the limits of what they decide."""

from __future__ import annotations

import pytest

from harness.audit.decide import AuditResult, Decision
from harness.audit.roles import parse_assignment, parse_options
from harness.model.errors import ConfigurationError
from harness.model.kernels import Role
from tests.harness.audit.fixture_cases import audit_text

HEAD = """.version 8.7
.target sm_90a
.address_size 64
.extern .shared .align 16 .b8 smem[];
.visible .entry k(.param .u64 x, .param .u64 y, .param .u32 n, .param .u64 .ptr .global .align 16 z)
BOUNDS
{
.reg .pred %p<9>; .reg .b32 %r<20>; .reg .b64 %rd<20>; .reg .f32 %f<9>;
ld.param.u64 %rd1, [x]; ld.param.u64 %rd2, [y]; ld.param.u32 %r9, [n];
"""
WAIT, TRIGGER = "griddepcontrol.wait;", "griddepcontrol.launch_dependents;"
READ, WRITE = "ld.global.b32 %r1, [%rd1];", "st.global.b32 [%rd2], %r1;"


def audit(*lines: str, bounds: str = ".reqntid 128, 1, 1", **options: object) -> list[AuditResult]:
    text = HEAD.replace("BOUNDS", bounds) + "\n".join(lines) + "\nret;\n}\n"
    return audit_text(text, parse_options(options))


def decision(results: list[AuditResult], rule: str) -> Decision:
    (found,) = {r.decision for r in results if r.rule == rule}
    return found


def result(results: list[AuditResult], rule: str) -> AuditResult:
    (found,) = (r for r in results if r.rule == rule)
    return found


def test_a_kernel_without_dependent_launch_is_not_applicable_unless_it_is_told_to_be() -> None:
    assert decision(audit(READ, WRITE), "PDL001") is Decision.NOT_APPLICABLE
    assert decision(audit(READ, WRITE, launch="pdl"), "PDL001") is Decision.SHOWN


def test_a_kernel_launched_without_the_attribute_need_not_wait() -> None:
    assert decision(audit(READ, WRITE, TRIGGER, launch="plain"), "PDL001") is Decision.NOT_APPLICABLE


@pytest.mark.parametrize("role", list(Role))
def test_a_read_before_the_wait_is_right_for_the_roles_that_need_none(role: Role) -> None:
    found = decision(audit(READ, WAIT, roles={"x": role.value}), "PDL001")
    assert (found is Decision.PROVEN) == (role in (Role.STATIC, Role.MAILBOX, Role.SETTLED))


def test_an_argument_that_nobody_names_is_taken_as_an_activation_and_the_message_says_so() -> None:
    found = result(audit(READ, WAIT), "PDL001")
    assert found.decision is Decision.SHOWN and "role not given" in found.reason


def test_settled_data_is_an_assumption_that_the_result_names() -> None:
    assert "x was written" in result(audit(READ, WAIT, roles={"x": "settled"}), "PDL001").assumptions[0]


def test_a_static_argument_that_is_written_is_a_fault_wherever_the_write_stands() -> None:
    assert decision(audit(WAIT, READ, WRITE, roles={"y": "static"}), "PDL004") is Decision.SHOWN


def test_scratch_may_not_be_written_before_the_wait_but_after_the_trigger() -> None:
    found = audit(WRITE, WAIT, TRIGGER, WRITE, roles={"y": "scratch"})
    assert decision(found, "PDL004") is Decision.SHOWN and decision(found, "PDL002") is Decision.PROVEN


def test_an_early_trigger_passes_only_by_the_declared_assumption() -> None:
    lines = (TRIGGER, WAIT, READ, WRITE)
    assert decision(audit(*lines), "PDL002") is Decision.SHOWN
    declared = result(audit(*lines, dependents="wait"), "PDL002")
    assert declared.decision is Decision.PROVEN and "griddepcontrol.wait" in declared.assumptions[0]


def test_a_trigger_after_each_threads_stores_names_the_assumption_about_slower_threads() -> None:
    role = ("mov.u32 %r2, %tid.x;", "setp.eq.s32 %p1, %r2, 0;", "@%p1 bra L;", WRITE, "L:")
    assert result(audit(WAIT, READ, *role, TRIGGER), "PDL002").assumptions


def test_a_bulk_store_that_may_still_be_under_way_at_the_trigger_is_an_assumption_with_its_line() -> None:
    store = "cp.async.bulk.global.shared::cta.bulk_group [%rd2], [smem], 256;"
    said = result(audit(WAIT, store, TRIGGER), "PDL002").assumptions
    assert "asynchronous stores (line 11) have completed at the trigger" in said


def test_an_unknown_function_before_the_wait_is_undecided_and_after_it_is_not() -> None:
    declare = HEAD.replace(".extern .shared", ".extern .func mystery;\n.extern .shared").replace("BOUNDS", "")
    for lines, wanted in (
        (("call mystery;", WAIT), Decision.UNDECIDED),
        ((WAIT, "call mystery;"), Decision.PROVEN),
    ):
        results = audit_text(declare + "\n".join([*lines, READ, WRITE]) + "\nret;\n}\n")
        assert decision(results, "PDL001") is wanted


def test_a_kernel_that_may_wait_in_a_function_that_is_not_known_is_undecided_until_its_launch_is_given() -> (
    None
):
    waiter = ".func waiter() { griddepcontrol.wait; ret; }\n.visible .entry"
    call = ("mov.u64 %rd3, waiter;", "shape: .callprototype _ ();", "call %rd3, (), shape;", READ)
    text = HEAD.replace(".visible .entry", waiter).replace("BOUNDS", "") + "\n".join(call) + "\nret;\n}\n"
    found = [
        decision(audit_text(text, parse_options({"launch": how})), "PDL001") for how in ("unknown", "plain")
    ]
    assert found == [Decision.UNDECIDED, Decision.NOT_APPLICABLE]


def test_an_address_that_leads_to_no_argument_is_undecided() -> None:
    found = audit("mov.b64 %rd1, 65536;", READ, WAIT)
    assert decision(found, "PDL001") is Decision.UNDECIDED


def test_a_sum_of_two_possible_bases_of_different_roles_is_undecided() -> None:
    lines = ("add.s64 %rd1, %rd1, %rd2;", READ, WAIT)
    assert decision(audit(*lines, roles={"x": "static"}), "PDL001") is Decision.UNDECIDED
    assert decision(audit(*lines, roles={"x": "static", "y": "static"}), "PDL001") is Decision.PROVEN


def test_a_named_barrier_that_gathers_everybody_orders_them() -> None:
    lead = ("mov.u32 %r2, %tid.x;", "setp.ne.s32 %p1, %r2, 0;", "@%p1 bra L;", WAIT, "L:")
    assert decision(audit(*lead, "bar.sync 1, 128;", READ), "PDL001") is Decision.PROVEN
    assert decision(audit(*lead, "bar.sync 1, 128;", READ, bounds=""), "PDL001") is Decision.UNDECIDED


def test_a_barrier_that_comes_before_the_leaders_wait_orders_nothing() -> None:
    lines = (
        "mov.u32 %r2, %tid.x;",
        "setp.ne.s32 %p1, %r2, 0;",
        "bar.sync 0;",
        "@%p1 bra L;",
        WAIT,
        "L:",
        READ,
    )
    assert decision(audit(*lines), "PDL001") is Decision.SHOWN


def test_a_condition_that_all_threads_share_keeps_all_of_them_from_waiting() -> None:
    lines = ("setp.eq.s32 %p1, %r9, 0;", "@%p1 bra L;", WAIT, "L: bar.sync 0;", READ)
    assert decision(audit(*lines), "PDL001") is Decision.SHOWN


def test_roles_that_end_early_do_not_end_the_grid() -> None:
    lines = ("mov.u32 %r2, %tid.x;", "setp.ge.u32 %p1, %r2, 32;", "@%p1 ret;", WAIT, READ)
    assert decision(audit(*lines), "PDL003") is Decision.PROVEN
    assert not result(audit(*lines), "PDL003").assumptions


def test_a_waiting_role_that_may_not_exist_is_an_assumption() -> None:
    lines = ("mov.u32 %r2, %tid.x;", "setp.lt.u32 %p1, %r2, 32;", "@%p1 ret;", WAIT, READ)
    assert result(audit(*lines, bounds=""), "PDL003").assumptions


def test_ctas_that_end_early_by_their_place_do_not_end_the_grid_while_the_first_waits() -> None:
    lines = ("mov.u32 %r2, %ctaid.x;", "setp.ge.u32 %p1, %r2, 8;", "@%p1 ret;", WAIT, READ)
    assert decision(audit(*lines), "PDL003") is Decision.PROVEN
    last = ("mov.u32 %r2, %ctaid.x;", "setp.lt.u32 %p1, %r2, 8;", "@%p1 ret;", WAIT, READ)
    assert decision(audit(*last), "PDL003") is Decision.UNDECIDED


def test_a_prefetch_of_the_tensor_map_itself_is_no_read_of_the_tensor() -> None:
    assert decision(audit("prefetch.tensormap [%rd1];", WAIT), "PDL001") is Decision.PROVEN


def test_a_shown_path_lists_the_decisions_and_ends_at_the_access() -> None:
    lines = ("setp.eq.s32 %p1, %r9, 0;", "@%p1 bra L;", WAIT, "L:", READ)
    sites = result(audit(*lines), "PDL001").sites
    assert [s.text for s in sites[:2]] == ["@%p1 bra L;", READ] and sites[0].note == "taken"


@pytest.mark.parametrize("text", ["weights", "static:sys", "mailbox:loud", ""])
def test_a_role_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError):
        parse_assignment(text)


@pytest.mark.parametrize(
    "data",
    [
        [], {"kernels": 3}, {"roles": {"x": 1}}, {"launch": "soon", "roles": {}}, {"block": [0]}, {"block": "big"},
        {"kernels": {"k": {"rolls": {}}}}, {"launch": "pdl", "x": "static"},
    ],
)  # fmt: skip
def test_options_of_another_form_are_refused(data: object) -> None:
    with pytest.raises(ConfigurationError):
        parse_options(data)


def test_options_of_a_kernel_override_those_of_all_and_the_command_line_overrides_both() -> None:
    options = parse_options(
        {"roles": {"x": "static"}, "kernels": {"k*": {"roles": {"x": "state"}, "launch": "pdl"}}}
    )
    assert options.for_kernel("k1").roles["x"].role is Role.STATE
    assert options.for_kernel("other").roles["x"].role is Role.STATIC
    assert options.with_roles(["k1/x=output"]).for_kernel("k1").roles["x"].role is Role.OUTPUT


def test_a_declared_pointer_is_the_base_of_a_sum_with_another_possible_one() -> None:
    lines = ("ld.param.u64 %rd3, [z];", "add.s64 %rd1, %rd1, %rd3;", READ, WAIT)
    assert decision(audit(*lines, roles={"x": "activation", "z": "static"}), "PDL001") is Decision.PROVEN
    assert decision(audit(*lines, roles={"x": "static", "z": "state"}), "PDL001") is Decision.SHOWN


def test_a_choice_between_arguments_that_the_role_decides_is_followed() -> None:
    lead = ("mov.u32 %r2, %tid.x;", "setp.lt.u32 %p1, %r2, 32;", "@!%p1 bra L;", WAIT, "L:")
    late = ("@%p1 bra M;", WAIT, "M:")
    for first, second, wanted in (("%rd1", "%rd2", Decision.PROVEN), ("%rd2", "%rd1", Decision.SHOWN)):
        chosen = (f"selp.b64 %rd4, {first}, {second}, %p1;", "ld.global.b32 %r1, [%rd4];")
        results = audit(*lead, *chosen, *late, roles={"x": "activation", "y": "static"})
        assert decision(results, "PDL001") is wanted


def test_a_choice_that_a_shared_condition_decides_is_followed() -> None:
    lead = ("setp.gt.s32 %p1, %r9, 3;", "@!%p1 bra L;", WAIT, "L:")
    chosen = ("selp.b64 %rd4, %rd1, %rd2, %p1;", "ld.global.b32 %r1, [%rd4];", "@%p1 bra M;", WAIT, "M:")
    results = audit(*lead, *chosen, roles={"x": "activation", "y": "static"})
    assert decision(results, "PDL001") is Decision.PROVEN


@pytest.mark.parametrize(
    ("lines", "guard", "opposite"),
    [
        (("setp.eq.u32 %p1, %r9, %r9;",), "%p1", "!%p1"),
        (("setp.gt.s32 %p2, %r9, 5;", "@%p2 bra GO;", "bra.uni END;", "GO: selp.u32 %r2, 1, 0, %p2;",
          "and.b32 %r3, %r2, 3;", "setp.ne.u32 %p1, %r3, 0;"), "%p1", "!%p1"),
    ],
)  # fmt: skip
def test_a_wait_under_a_condition_that_always_holds_there_is_sure(
    lines: tuple[str, ...], guard: str, opposite: str
) -> None:
    found = [
        decision(audit(*lines, f"@{which} {WAIT}", READ, "END:"), "PDL001") for which in (guard, opposite)
    ]
    assert found == [Decision.PROVEN, Decision.SHOWN]


def test_settled_memory_may_be_written_early_and_the_result_names_what_that_takes() -> None:
    found = result(audit(WRITE, WAIT, READ, roles={"y": "settled"}), "PDL004")
    assert found.decision is Decision.PROVEN and "reads or writes y" in found.assumptions[0]


def test_a_role_for_an_address_that_is_a_number_goes_by_the_number_or_for_all() -> None:
    lines = ("mov.b64 %rd1, 0x7f2480000000;", READ, WAIT)
    for key, wanted in (
        ("@0x7f2480000000", Decision.PROVEN),
        ("constants", Decision.PROVEN),
        ("@0x7f2490000000", Decision.SHOWN),
    ):
        assert decision(audit(*lines, roles={key: "static"}), "PDL001") is wanted


def test_a_number_is_no_base_beside_an_argument() -> None:
    lines = ("add.s64 %rd1, %rd1, 0x100000;", READ, WAIT)
    assert decision(audit(*lines, roles={"x": "static"}), "PDL001") is Decision.PROVEN


def test_a_flag_in_shared_memory_may_order_and_is_undecided() -> None:
    lead = ("mov.u32 %r2, %tid.x;", "setp.ne.s32 %p1, %r2, 0;", "@%p1 bra SPIN;", WAIT)
    wait = ("st.volatile.shared.b32 [smem], 1;", "SPIN:", "ld.volatile.shared.b32 %r3, [smem];")
    again = ("setp.eq.s32 %p2, %r3, 0;", "@%p2 bra SPIN;")
    assert decision(audit(*lead, *wait, *again, READ), "PDL001") is Decision.UNDECIDED
    assert decision(audit(*lead, *wait, READ), "PDL001") is Decision.SHOWN


CTA = ("mov.u32 %r2, %ctaid.x;", "mov.u32 %r3, %nctaid.x;")


def test_a_grid_that_makes_a_role_test_always_true_leaves_no_way_around_it() -> None:
    lines = (*CTA, "shr.u32 %r4, %r2, 3;", "setp.ge.u32 %p1, %r4, 2;", "@%p1 bra L;", WAIT, "L:", READ)
    assert decision(audit(*lines, grid=16), "PDL001") is Decision.PROVEN
    assert decision(audit(*lines, grid=17), "PDL001") is Decision.SHOWN
    assert decision(audit(*lines), "PDL001") is Decision.SHOWN


def test_the_last_cta_of_a_known_grid_can_hold_its_completion() -> None:
    last = (*CTA, "add.s32 %r3, %r3, -1;", "setp.ne.s32 %p1, %r2, %r3;", "@%p1 ret;", WAIT, READ)
    assert decision(audit(*last, grid=[4, 1, 1]), "PDL003") is Decision.PROVEN
    assert decision(audit(*last), "PDL003") is Decision.UNDECIDED


def test_a_kernel_without_any_wait_ends_without_it_whatever_its_ctas_do() -> None:
    lines = (*CTA, "setp.eq.s32 %p1, %r2, 0;", "@%p1 ret;", READ)
    assert decision(audit(*lines, launch="pdl"), "PDL003") is Decision.SHOWN


def test_a_first_cta_that_may_end_early_for_its_data_holds_nothing() -> None:
    lines = (*CTA, "setp.ne.s32 %p1, %r2, 0;", "@%p1 ret;", "setp.eq.s32 %p2, %r9, 0;", "@%p2 ret;", WAIT)
    assert decision(audit(*lines, READ), "PDL003") is Decision.SHOWN


def test_a_write_that_may_reach_a_static_argument_or_another_is_undecided() -> None:
    lines = (
        WAIT,
        "setp.gt.s32 %p1, %r9, 3;",
        "selp.b64 %rd4, %rd1, %rd2, %p1;",
        "st.global.b32 [%rd4], %r9;",
    )
    assert decision(audit(*lines, roles={"x": "static"}), "PDL004") is Decision.UNDECIDED
    assert decision(audit(*lines, roles={"x": "static", "y": "static"}), "PDL004") is Decision.SHOWN


@pytest.mark.parametrize("grid", ["big", [0], [1, 1, 1, 1], -3])
def test_a_grid_of_another_form_is_refused(grid: object) -> None:
    with pytest.raises(ConfigurationError):
        parse_options({"grid": grid})


POLL = ("L:", "ld.volatile.global.b32 %r1, [%rd1];", "setp.eq.s32 %p1, %r1, 0;")


def test_an_untested_read_behind_a_relaxed_poll_is_undecided_and_behind_an_acquiring_one_is_not() -> None:
    use = (WAIT, "ld.global.b32 %r3, [%rd1+64];", "st.global.b32 [%rd2], %r3;")
    for order, wanted in (("relaxed", Decision.UNDECIDED), ("acquire", Decision.PROVEN)):
        poll = [line.replace("volatile", f"{order}.gpu") for line in POLL]
        found = audit(*poll, "@%p1 bra L;", *use, roles={"x": "mailbox:rearmed"})
        assert decision(found, "SYN001") is wanted


def test_a_poll_that_ends_by_data_or_by_a_count_alike_tested_nothing() -> None:
    count = ("add.s32 %r4, %r4, 1;", "setp.lt.s32 %p2, %r4, 1000;", "and.pred %p3, %p1, %p2;")
    use = (WAIT, "st.global.b32 [%rd2], %r1;")
    found = audit("mov.b32 %r4, 0;", *POLL, *count, "@%p3 bra L;", *use, roles={"x": "mailbox:rearmed"})
    assert decision(found, "SYN001") is Decision.UNDECIDED


def test_what_is_read_and_never_used_needs_no_test() -> None:
    assert decision(audit("ld.volatile.global.b32 %r1, [%rd1];", WAIT, roles={"x": "mailbox"}), "SYN001") is (
        Decision.PROVEN
    )


def in_a_cluster_or_without(label: str, barrier: str, otherwise: str = "bar.sync 0;") -> str:
    """A cluster barrier as machine code has it: where the launch has no clusters, the CTA's barrier stands in."""
    return f"@!%p1 bra ${label}; {barrier} bra $END_{label}; ${label}: {otherwise} $END_{label}:"


ARRIVE = "barrier.cluster.arrive.release.aligned;"
CLUSTER_WAIT = "barrier.cluster.wait.acquire.aligned;"
BEFORE = (
    "setp.eq.u32 %p1, %r9, 1; mov.u32 %r8, %tid.x; setp.lt.u32 %p2, %r8, 32;",
    in_a_cluster_or_without("A", ARRIVE, ""),
    in_a_cluster_or_without("B", CLUSTER_WAIT),
)
AFTER = (READ, in_a_cluster_or_without("D", ARRIVE, ""), in_a_cluster_or_without("E", CLUSTER_WAIT))


@pytest.mark.parametrize(
    ("between", "expected"),
    [
        (("@!%p2 bra $C;", WAIT, "$C: bar.sync 0;"), Decision.PROVEN),
        (("@!%p2 bra $C;", WAIT, "$C:"), Decision.SHOWN),
        (("bar.sync 0;", "@!%p2 bra $C;", WAIT, "$C:"), Decision.SHOWN),
        (("@!%p2 bra $C;", WAIT, "$C:", in_a_cluster_or_without("F", "", "bar.sync 0;")), Decision.SHOWN),
    ],
)
def test_a_barrier_orders_beside_those_that_a_shared_condition_chooses_between(
    between: tuple[str, ...], expected: Decision
) -> None:
    lines = (*BEFORE, *between, *AFTER)
    assert decision(audit(*lines, roles={"x": "activation"}), "PDL001") is expected
