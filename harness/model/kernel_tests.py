"""What a run of the kernels' own tests on a GPU leaves: each test, the variants that it launched, its sources."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from harness.model.record import Record


class Machine(Record):
    """The GPU that a run used, and its state."""

    gpu: str
    driver: str
    num_gpus: int
    sm_clock_mhz: tuple[int, ...]
    """At the run's beginning and end, as the driver reports it."""
    memory_clock_mhz: tuple[int, ...]
    software: dict[str, str]


KernelTestOutcome = Literal["passed", "failed", "not_run", "error"]


class KernelTest(Record):
    """One test, and the variants that it launched."""

    test: str
    outcome: KernelTestOutcome
    seconds: float
    launched: dict[str, int]
    """Launches by variant; empty where the test ran no kernel."""
    reason: str = ""
    """Why it was not run, or the first line of why it failed: untrusted text."""


class MemoryCheck(Record):
    """What compute-sanitizer's memcheck saw of the tests' processes."""

    version: str
    num_processes: int
    num_ended: int
    """Processes for which it gave a summary."""
    num_errors: int = Field(ge=0)
    """Of all summaries together."""
    num_planted_errors: int = Field(ge=1)
    """In a process of the judge that wrote where nothing was allocated, just before: a checker that sees none is no
    checker, and its record does not parse."""
    findings: tuple[str, ...] = ()
    """The first lines of what it reported: untrusted text."""

    @property
    def is_clean(self) -> bool:
        """Whether it followed every process to its end and reported nothing."""
        return self.num_errors == 0 and 0 < self.num_processes == self.num_ended


class KernelTestRun(Record):
    """`fasttrack kernels test`."""

    schema_version: Literal[1] = 1
    recorded_at: str
    seconds: float | None = None
    command: tuple[str, ...]
    exit_status: int
    stopped_by: str = ""
    """What ended the run before its last test; empty when all that were selected had their turn."""
    machine: Machine | None = None
    """None: the tests' processes used no GPU."""
    sources: dict[str, str] = Field(default_factory=dict)
    """sha256 by file, relative to the manifest's folder: the modules that the tests had imported, themselves among
    them, and the data in the packages of these."""
    memcheck: MemoryCheck | None = None
    """None: it was not asked for."""
    match: str = "*"
    """The variants that the tests are held against, as a glob."""
    tests: tuple[KernelTest, ...]
    never_launched: tuple[str, ...]
    """Variants of the inventory, of those that match, that no passed test launched."""
