"""What each command of the command line asks of `harness.app`, and what it gets back."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Literal

from harness.model.words import ExitCode, Tier, TrustLevel

Format = Literal["text", "json", "md", "sarif", "annotations", "summary", "junit"]
Profile = Literal["smoke", "quick", "full"]
Asked = Literal["quick", "full"]
"""Of the profiles those that a selftest knows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputOptions:
    """How results are to be written."""

    format: Format = "text"
    color: bool = False
    """Already decided from `--color`, the environment and the terminal."""
    ascii_only: bool = False
    """Whether stdout takes nothing but ASCII."""
    quiet: bool = False
    """No progress on stderr."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeOptions:
    """Which change, by which manifest and policy."""

    repo: Path = Path()
    base: str | None = None
    """None: the merge base with the default branch; "empty": the head is judged as wholly new."""
    head: str = "HEAD"
    manifest: Path | None = None
    """None: `fasttrack.toml` at the top of the repository."""
    policy: Path | None = None
    """None: `.github/fasttrack-policy.toml` at the top of the repository."""
    paths: tuple[str, ...] = ()
    tier: Tier = Tier.CPU
    """The most expensive tier to be collected; cheaper ones are collected too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidateOptions:
    """`fasttrack validate`."""

    change: ChangeOptions
    out: Path
    """Folder of the bundle."""
    output: OutputOptions
    python: Path = field(default_factory=lambda: Path(sys.executable))
    """The interpreter that has the DSL in which the kernels are written."""
    profile: Profile = "full"
    """How much the cpu tier asks of each arm."""
    sweeps: tuple[Path, ...] = ()
    """Folders of `fasttrack sweep`, which become evidence of the gpu tier."""
    kernel_tests: tuple[Path, ...] = ()
    """Records of `fasttrack kernels test`, which become evidence of the gpu tier."""
    resume: bool = False
    """Whether the bundle that a killed run began in `out` is finished, with what it holds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SelftestOptions:
    """`fasttrack selftest`."""

    repo: Path
    """Somewhere in a checkout of fasttrack."""
    only: tuple[str, ...]
    """Faults of the catalogue; none: all."""
    clean: int
    """How many made clean changes are judged in the catalogue's place; 0: the catalogue is run."""
    seed: int
    """Of the first of them."""
    baselines: Path | None
    """Where the bundle of their baselines is, in a folder for each profile: made there, and taken up by a later call on
    the same files."""
    profile: Asked
    """How much a made change is asked; of the catalogue `full` asks the evaluations as well."""
    tier: Tier
    """The most expensive tier to be run."""
    jobs: int
    """Cases at a time."""
    python: Path
    """The interpreter that has the DSL in which the kernels are written."""
    out: Path | None
    """Where the report goes as JSON."""
    verbose: bool
    """Whether each case's own progress is shown."""
    output: OutputOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanOptions:
    """`fasttrack plan`."""

    change: ChangeOptions
    output: OutputOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportOptions:
    """`fasttrack report`."""

    bundle: Path
    out: Path | None
    """Where the HTML goes; None: `report.html` in the bundle."""
    output: OutputOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyOptions:
    """`fasttrack bundle verify`."""

    bundle: Path
    output: OutputOptions
    keys: tuple[Path, ...] = ()
    """Public keys, of which one must have signed the bundle; none: anybody or nobody may have."""
    sigstore_root: Path | None = None
    """Sigstore's `trusted_root.json`; None: that of the public instance."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SignOptions:
    """`fasttrack bundle sign`."""

    bundle: Path
    key: Path
    passphrase: str
    trust: TrustLevel


@dataclass(frozen=True, slots=True, kw_only=True)
class WaiveOptions:
    """`fasttrack waive`."""

    check: str
    head: str
    reason: str
    until: date
    key: Path
    passphrase: str
    out: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class CombineOptions:
    """`fasttrack bundle merge` and `bundle diff`."""

    bundles: tuple[Path, ...]
    out: Path | None
    """Folder of the merged bundle; None where nothing is written."""
    output: OutputOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class ReproduceOptions:
    """`fasttrack bundle reproduce`."""

    bundle: Path
    cell: str | None
    """Name of a cell, id of a record or of a check; None lists the cells."""
    run: bool
    """Whether the cell is made again and compared."""
    repo: Path
    """A clone that holds the bundle's commits."""
    output: OutputOptions
    python: Path = field(default_factory=lambda: Path(sys.executable))
    """The interpreter that has the DSL in which the kernels are written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GateOptions:
    """`fasttrack gate`."""

    bundles: tuple[Path, ...]
    repo: Path
    base: str | None
    """What it is merged into; None: the default branch."""
    head: str
    """The commit that is about to be merged."""
    policy: Path | None
    """The gating repository's own policy; None: the one of the merge base."""
    output: OutputOptions
    waivers: tuple[Path, ...] = ()
    """Signed waivers."""
    out: Path | None = None
    """Where the report that shows the ruling goes, with all that it was made from; None: nowhere."""
    sigstore_root: Path | None = None
    """Sigstore's `trusted_root.json`; None: that of the public instance."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepOptions:
    """`fasttrack sweep`."""

    preset: str
    match: str
    change: ChangeOptions
    out: Path
    output: OutputOptions
    num_blocks: int
    seed: int
    tier: Literal[Tier.CPU, Tier.GPU] | None = None
    """Where the arms are served, cpu or gpu; None: where the manifest's scope lies."""
    is_plan: bool = False
    """Say what it would cost and start nothing."""
    resume: bool = False
    address: str | None = None
    """Of a Ray cluster; `local` starts one here, `none` takes this process; None: `local` where Ray is installed."""
    num_lanes: int = 1
    gpu_type: str = ""
    prompts: Path | None = None
    """The user's own prompts; None: those that are shipped."""
    has_random_tokens: bool = False
    """Random token ids in place of text: they choose other experts."""
    trace: Path | None = None
    """Conversations to replay in place of a preset's cells, `concurrency` requests at a time."""
    concurrency: int = 1
    load: Literal["client", "vllm-bench"] = "client"
    """Who sends the requests."""
    routers: tuple[str, ...] = ()
    """Functions of the served model whose results say which experts tokens go to."""
    times_kernels: bool = False
    """Profile decode steps of each cell's first, untimed turn."""
    pr_text: Path | None = None
    """A description whose numbers are held against the cells."""
    simulate: float | None = None
    """Rehearse with arms that answer by arithmetic: the candidate's time over the baseline's."""
    floor_ms: float | None = None
    """Time that reading the bytes of one decode step takes at the hardware's bandwidth."""
    step_ms: float | None = None
    start_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRunOptions:
    """`fasttrack job run`."""

    job: Path
    sweep: SweepOptions
    """Where and on what to measure; what the job names is taken from it."""
    key: Path
    passphrase: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JobTakeOptions:
    """`fasttrack job take`."""

    job: Path
    returns: tuple[Path, ...]
    sweep: SweepOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorOptions:
    """`fasttrack doctor`."""

    output: OutputOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandResult:
    """What a command prints on stdout, already in the asked format, and how the process ends."""

    text: str
    exit_code: ExitCode
