"""What the commands on kernels write: typed records, one JSON document a run."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from harness.model.kernel_tests import Machine
from harness.model.kernels import Arch
from harness.model.record import Record


class VariantRecord(Record):
    """One kernel variant of the inventory."""

    name: str
    operator: str
    family: str
    rank_shape: str
    batches: tuple[int, int]
    roles: dict[str, str]
    launch: str
    dependents: str
    allowed_spill_bytes: int = Field(ge=0)


class InventoryRun(Record):
    """`fasttrack kernels list`."""

    schema_version: Literal[1] = 1
    variants: tuple[VariantRecord, ...]


class CompiledKernel(Record):
    """One kernel of one compiled variant, as its cubin says."""

    variant: str
    arch: Arch
    registers: int | None
    frame_bytes: int | None
    """Local memory of a thread: spills and local arrays together."""
    static_shared_bytes: int
    threads: int | None
    """Threads of a CTA."""
    allowed_spill_bytes: int | None
    """None: the inventory does not know the variant."""

    @property
    def is_within_allowance(self) -> bool:
        """Whether its local memory is known, and allowed."""
        if self.frame_bytes is None or self.allowed_spill_bytes is None:
            return False
        return self.frame_bytes <= self.allowed_spill_bytes


class CompileRun(Record):
    """`fasttrack kernels compile`."""

    schema_version: Literal[1] = 1
    recorded_at: str
    match: str = "*"
    """The variants that it is about, as a glob."""
    seconds: float
    kernels: tuple[CompiledKernel, ...]
    missing: tuple[str, ...]
    """Variants of the inventory, of those that match, that gave no kernel, with the architecture."""
    failures: tuple[str, ...]
    """Entry points that did not end well, and why."""


class Timing(Record):
    """Time of one call in microseconds, over all rounds."""

    median_us: float
    low_us: float
    """First quartile."""
    high_us: float
    """Third quartile."""
    rounds: int


class CellRecord(Record):
    """One cell: the kernel, and what else does the same work, interleaved in one run."""

    name: str
    family: str
    operator: str
    rank_shape: str
    batch: int
    bytes_moved: int
    candidate: Timing | None
    """None: it failed to run."""
    baselines: dict[str, Timing]
    missing: dict[str, str]
    """Baselines, or the candidate, that were not timed, and why."""
    launched: dict[str, int]
    """Variants that the candidate launched while the graph was captured."""

    @property
    def bytes_per_second(self) -> float | None:
        """Of the candidate."""
        return None if self.candidate is None else self.bytes_moved / self.candidate.median_us * 1e6

    @property
    def lost_to(self) -> tuple[str, ...]:
        """Baselines with a smaller median."""
        if self.candidate is None:
            return tuple(self.baselines)
        return tuple(n for n, t in self.baselines.items() if t.median_us < self.candidate.median_us)


class BenchRun(Record):
    """`fasttrack kernels bench`."""

    schema_version: Literal[1] = 1
    recorded_at: str
    machine: Machine
    copy_bytes_per_second: float
    """Measured in this run: bytes read plus bytes written of the fastest large device-to-device copy."""
    copies: dict[str, float] = Field(default_factory=dict)
    """The same of each kind of copy: a memory copy in a graph, which may go to a copy engine, and a kernel."""
    sources: dict[str, str] = Field(default_factory=dict)
    """As of `KernelTestRun`; empty where the run ended early."""
    cells: tuple[CellRecord, ...]
    stopped_by: str = ""
    """What ended the run before its last cell; empty when all that match were taken."""


class TuningChoice(Record):
    """What was timed for one task, fastest first."""

    task: str
    chosen: str | None
    """None: no choice ran, and the subject's table keeps what it had."""
    timings: dict[str, Timing]
    failures: dict[str, str]
    """Why a choice, or `prepare()` before all of them, did not run: untrusted text."""

    @model_validator(mode="after")
    def _chose_what_was_timed(self) -> Self:
        if self.chosen not in (self.timings or (None,)):
            raise ValueError(f"{self.task}: {self.chosen!r} was chosen and not timed")
        return self


class TuneRun(Record):
    """`fasttrack kernels tune`."""

    schema_version: Literal[1] = 1
    recorded_at: str
    machine: Machine
    choices: tuple[TuningChoice, ...]
    saved: str
    """What the subject says it wrote; empty when it wrote nothing."""
    sources: dict[str, str] = Field(default_factory=dict)
    """As of `KernelTestRun`; empty where the run ended early."""
    stopped_by: str = ""
    """What ended the run before it was saved; empty when all tasks that match were taken."""
