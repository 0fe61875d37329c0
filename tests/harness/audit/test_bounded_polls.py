"""SYN001 on polls that give up: what was read is replaced where the last look found it empty."""

from __future__ import annotations

import pytest

from harness.audit.decide import Decision
from harness.audit.roles import parse_options
from tests.harness.audit.fixture_cases import audit_text

HEAD = """.version 8.7
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 box, .param .u64 out, .param .u32 n)
{
.reg .pred %p<40>; .reg .b32 %r<40>; .reg .b64 %rd<20>;
ld.param.u64 %rd1, [box]; ld.param.u64 %rd2, [out]; ld.param.u32 %r9, [n];
ld.relaxed.sys.global.v2.b32 {%r1,%r2}, [%rd1];
ld.relaxed.sys.global.v2.b32 {%r3,%r4}, [%rd1+64];
"""
LOOK = "ld.relaxed.sys.global.v2.b32 {%r1,%r2}, [%rd1];"
TAIL = "st.global.b32 [%rd2], %r11;\nst.global.b32 [%rd2+4], %r12;\nret;\n}\n"
REPLACED = {
    "select": "selp.b32 %r11, 7, %r1, {0}; selp.b32 %r12, 7, %r2, {0};",
    "branch": "mov.b32 %r11, 7; mov.b32 %r12, 7; @{0} bra G; mov.b32 %r11, %r1; mov.b32 %r12, %r2; G:",
    "guard": "mov.b32 %r11, 7; mov.b32 %r12, 7; @!{0} mov.b32 %r11, %r1; @!{0} mov.b32 %r12, %r2;",
}


def is_empty(predicate: str, *words: str) -> str:
    """The predicate, true where one of the words is empty."""
    first, *others = words
    more = (f"setp.eq.b32 %p30, {w}, -1; or.pred {predicate}, {predicate}, %p30;" for w in others)
    return " ".join((f"setp.eq.b32 {predicate}, {first}, -1;", *more))


def polled(replaced: str, *, before: str = "", after: str = "") -> str:
    """A first look, looks while a word is empty and rounds are left, and the words or what stands for them."""
    first = (
        is_empty("%p1", "%r1", "%r2"),
        "setp.lt.s32 %p2, %r9, 1; not.pred %p3, %p1; or.pred %p4, %p2, %p3;",
    )
    spin = ("L:", "mov.b32 %r10, %r9;", LOOK, "add.s32 %r9, %r10, -1;", is_empty("%p1", "%r1", "%r2"))
    again = ("setp.gt.u32 %p5, %r10, 1; and.pred %p6, %p5, %p1;", "@%p6 bra L;", "D:")
    return "\n".join((*first, before, "@%p4 bra D;", *spin, *again, after, replaced, TAIL))


def decide(lines: str) -> set[Decision]:
    options = parse_options({"roles": {"box": "mailbox:sys:rearmed"}, "launch": "plain"})
    return {r.decision for r in audit_text(HEAD + lines, options) if r.rule == "SYN001"}


@pytest.mark.parametrize("form", REPLACED)
def test_words_that_are_replaced_where_the_last_look_found_one_empty_are_tested(form: str) -> None:
    assert decide(polled(REPLACED[form].format("%p1"))) == {Decision.PROVEN}


@pytest.mark.parametrize("form", REPLACED)
def test_a_second_test_of_the_same_words_counts_as_the_first(form: str) -> None:
    after = is_empty("%p7", "%r1", "%r2")
    assert decide(polled(REPLACED[form].format("%p7"), after=after)) == {Decision.PROVEN}


def test_words_that_are_used_when_the_rounds_ran_out_too_are_never_passed() -> None:
    assert Decision.PROVEN not in decide(polled("mov.b32 %r11, %r1; mov.b32 %r12, %r2;"))


@pytest.mark.parametrize("form", REPLACED)
def test_a_test_of_another_fragment_is_none(form: str) -> None:
    after = is_empty("%p7", "%r3", "%r4")
    assert Decision.PROVEN not in decide(polled(REPLACED[form].format("%p7"), after=after))


@pytest.mark.parametrize("form", REPLACED)
def test_an_end_by_data_or_by_the_rounds_that_is_kept_as_one_predicate_tested_nothing(form: str) -> None:
    assert Decision.PROVEN not in decide(polled(REPLACED[form].format("%p6"), before="not.pred %p6, %p4;"))


@pytest.mark.parametrize("form", REPLACED)
def test_a_choice_that_takes_the_words_where_they_are_empty_is_never_passed(form: str) -> None:
    turned = "not.pred %p7, %p1;"
    assert Decision.PROVEN not in decide(polled(REPLACED[form].format("%p7"), after=turned))


@pytest.mark.parametrize("form", REPLACED)
def test_the_test_of_a_look_says_nothing_of_the_next_ones_words(form: str) -> None:
    lines = (is_empty("%p1", "%r1", "%r2"), LOOK, REPLACED[form].format("%p1"), TAIL)
    assert Decision.PROVEN not in decide("\n".join(lines))
