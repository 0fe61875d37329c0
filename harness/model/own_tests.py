"""A change's own tests: which they are, how they ended, what of the subject they called, and what they noticed."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from harness.model.change import ChangedFile
from harness.model.paths import PathClass, PathRules
from harness.model.record import Record


class Falsified(StrEnum):
    """What of the subject's answers to a test is falsified in a run."""

    TENSORS = "tensors"
    """Tensors that were returned or written."""
    VALUES = "values"
    """Whatever was returned or written; None becomes something."""
    OBJECTS = "objects"
    """What constructors set."""
    ERRORS = "errors"
    """An error that was raised is withheld: None is returned."""


class Gave(StrEnum):
    """What a call of the subject gave to a test."""

    TENSORS = "tensors"
    VALUES = "values"
    OBJECTS = "objects"
    ERRORS = "errors"
    NOTHING = "nothing"
    OTHER = "other"
    """What has no other form that could stand in its place: an opaque object, a generator."""


class OwnOutcome(StrEnum):
    """How a test ended as it is."""

    PASSED = "passed"
    FAILED = "failed"
    CRASHED = "crashed"
    """The process ended during the test."""
    NOT_DONE = "not_done"
    """The time was up, during the test or before it."""
    ALWAYS_SKIPPED = "always_skipped"
    """Its own file marks it as skipped, on every machine."""
    NOT_RUN = "not_run"
    """Skipped on this machine, or it needs a GPU or a package that is not here."""
    EXPECTED_FAILURE = "expected_failure"


class ControlOutcome(StrEnum):
    """What a test said of falsified answers."""

    NOTICED = "noticed"
    """An assertion of the test failed."""
    PASSED = "passed"
    BROKE = "broke"
    """It ended in another error, or inside the subject, which was given its own falsified answers."""
    NOT_DONE = "not_done"


class SubjectCall(Record):
    """A function of the subject that a test called, itself or through a fixture or a library."""

    function: str
    """`module:qualified name`."""
    gave: tuple[Gave, ...]


class Control(Record):
    """The test run again with falsified answers."""

    falsified: Falsified
    outcome: ControlOutcome
    reason: str = ""
    """Untrusted text."""


class OwnTest(Record):
    """One test, by pytest's node id: untrusted text."""

    test: str
    outcome: OwnOutcome
    reason: str = ""
    """Why it did not pass: untrusted text."""
    calls: tuple[SubjectCall, ...] = ()
    starts_processes: bool = False
    """Whether it started a program of Python's installation, or forked: calls in there are not seen."""
    controls: tuple[Control, ...] = ()


class OwnTestFile(Record):
    """A changed test file, and why pytest found no tests in it, if so."""

    path: str
    problem: str = ""
    is_missing_here: bool = False
    """Whether the file needs what this machine lacks."""


def own_test_paths(files: Iterable[ChangedFile], rules: PathRules) -> tuple[str, ...]:
    """The test files that a change adds or edits, named as pytest by default wants them named."""
    classes = (PathClass.TEST, PathClass.OWNED)
    return tuple(
        f.path
        for f in files
        if is_test_name(f.path) and f.status != "deleted" and rules.classify(f.path).path_class in classes
    )


def subject_paths(paths: Iterable[str], rules: PathRules) -> tuple[str, ...]:
    """The Python files that are the subject's, its tests left out."""
    return tuple(
        p
        for p in paths
        if p.endswith(".py") and not is_test_name(p) and rules.classify(p).path_class is PathClass.OWNED
    )


def is_test_name(path: str) -> bool:
    """Whether a file is called `test_*.py` or `*_test.py`."""
    name = path.rpartition("/")[2]
    return name.endswith(".py") and (name.startswith("test_") or name.endswith("_test.py"))
