"""What each of a change's own tests says of what the subject computes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from harness.model.own_tests import Control, ControlOutcome, Falsified, Gave, OwnOutcome, OwnTest


class Worth(StrEnum):
    """What a test is worth as evidence, best first; of a parametrised one, its best case."""

    VALUES = "notices falsified values"
    ERRORS = "notices only that an error is withheld"
    UNCLEAR = "could not be put to the test"
    NOT_RUN = "was not run on this machine"
    EXPECTED_FAILURE = "is expected to fail"
    BLIND = "passes with falsified values as well"
    STRANGER = "never calls the subject"
    ALWAYS_SKIPPED = "is skipped on every machine"

    @property
    def is_open(self) -> bool:
        """Whether it may say something that was not seen."""
        return self in (Worth.ERRORS, Worth.UNCLEAR, Worth.NOT_RUN)


_ORDER = tuple(Worth)
_UNTESTED = {
    OwnOutcome.NOT_RUN: Worth.NOT_RUN,
    OwnOutcome.NOT_DONE: Worth.NOT_RUN,
    OwnOutcome.ALWAYS_SKIPPED: Worth.ALWAYS_SKIPPED,
    OwnOutcome.EXPECTED_FAILURE: Worth.EXPECTED_FAILURE,
}
BAD = (OwnOutcome.FAILED, OwnOutcome.CRASHED)


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedTest:
    """A test function with all its parameters."""

    name: str
    """Node id without the parameters."""
    worth: Worth
    reason: str
    functions: frozenset[str]
    """Of the subject, that it calls."""
    failures: tuple[str, ...]
    """Cases that do not pass as they are, with the reason."""

    @property
    def path(self) -> str:
        """Its file."""
        return self.name.partition("::")[0]

    @property
    def text(self) -> str:
        """One line about it."""
        return f"{self.name} {self.worth}" + (f": {self.reason}" if self.reason else "")


def judge_tests(tests: Sequence[OwnTest], num_outside: int) -> tuple[JudgedTest, ...]:
    """Every test function, in the order in which pytest named them.

    Args:
        tests: All tests of the change.
        num_outside: Calls of the subject while the test files were imported; what they gave was not falsified.
    """
    cases: dict[str, list[OwnTest]] = {}
    for test in tests:
        cases.setdefault(name_of(test), []).append(test)
    return tuple(_judge_cases(name, group, num_outside) for name, group in cases.items())


def name_of(test: OwnTest) -> str:
    """The node id without parameters."""
    path, separator, rest = test.test.partition("::")
    return path + separator + rest.partition("[")[0]


def _judge_cases(name: str, cases: Sequence[OwnTest], num_outside: int) -> JudgedTest:
    rated = [rate_test(case, num_outside) for case in cases if case.outcome not in BAD]
    worth, reason = min(rated, key=lambda found: _ORDER.index(found[0]), default=(Worth.UNCLEAR, "it fails"))
    return JudgedTest(
        name=name,
        worth=worth,
        reason=reason,
        functions=frozenset(call.function for case in cases for call in case.calls),
        failures=tuple(f"{case.test} {case.outcome}: {case.reason}" for case in cases if case.outcome in BAD),
    )


def rate_test(test: OwnTest, num_outside: int) -> tuple[Worth, str]:
    """What one test that does not fail is worth, and why where that needs saying."""
    if test.outcome is not OwnOutcome.PASSED:
        return _UNTESTED[test.outcome], test.reason
    noticed = [c.falsified for c in test.controls if c.outcome is ControlOutcome.NOTICED]
    if noticed:
        return (Worth.ERRORS if noticed == [Falsified.ERRORS] else Worth.VALUES), ""
    gave = {kind for call in test.calls for kind in call.gave}
    if not gave:
        return _without_calls(test, num_outside)
    if undecided := [c for c in test.controls if c.outcome is not ControlOutcome.PASSED]:
        return Worth.UNCLEAR, _described(undecided[-1])
    answers = gave - {Gave.OBJECTS}
    if not test.controls or (answers and answers <= {Gave.NOTHING, Gave.OTHER}):
        return Worth.UNCLEAR, "what it calls gives nothing that can be falsified"
    return Worth.BLIND, ""


def _without_calls(test: OwnTest, num_outside: int) -> tuple[Worth, str]:
    if test.starts_processes:
        return Worth.UNCLEAR, "what it calls in processes of its own is not seen"
    if num_outside:
        return Worth.UNCLEAR, "test files call the subject while they are imported, which is not falsified"
    return Worth.STRANGER, ""


def _described(control: Control) -> str:
    if control.outcome is ControlOutcome.NOT_DONE:
        return f"with {control.falsified} falsified it did not end"
    return f"with {control.falsified} falsified it breaks before it compares: {control.reason}"
