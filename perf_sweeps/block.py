"""Blocks: each visits every arm twice, in a mirrored order, so that a drift that is linear in time cancels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pydantic import Field

from harness.model.record import Record, digest_of
from harness.model.step_kernels import StepKernels
from harness.model.words import Arm, Tier
from perf_sweeps.cell import Cell
from perf_sweeps.replay import TurnResult

LoadGenerator = Literal["client", "vllm-bench"]
"""Who sends the requests: the harness's own client, or `vllm bench serve`."""
ALL_ARMS = (Arm.BASELINE, Arm.CANDIDATE, Arm.BASELINE_AGAIN)


def block_order(arms: Sequence[Arm], index: int) -> tuple[Arm, ...]:
    """The arms of one block in the order of time: A B B A, in the next block B A A B.

    With a third arm A B C C B A, and so on through the rotations: no arm always goes first, and inside each block all
    arms have the same mean position.
    """
    shift = index % len(arms)
    turned = (*arms[shift:], *arms[:shift])
    return (*turned, *reversed(turned))


class MachineState(Record):
    """What else went on while an arm was timed; None where the machine does not say."""

    foreign_cpu_share: float | None = Field(ge=0, default=None)
    """CPU time that neither the visited arm nor its client took, as a share of all cores over the visit."""
    foreign_cpu_s: float | None = Field(ge=0, default=None)
    """The same in CPU seconds, also of a visit that is too short for a share of its own."""
    num_cores: int | None = None
    num_gpu_samples: int = 0
    """How often clocks, power, temperature and throttle reasons of the GPU were read; 0: they are not known."""
    sm_clock_mhz: float | None = None
    """Mean over the samples of the visit, as are power and temperature."""
    power_w: float | None = None
    temperature_c: float | None = None
    throttle_reasons: tuple[str, ...] = ()
    """Of any sample."""


class OpenLoopCheck(Record):
    """The same requests once more, from the harness's own client, each at its time whether or not others are answered.

    They are spread over the time that the load generator took: a server that does not keep that pace falls behind.
    """

    num_asked: int
    num_tokens: int
    """That the client got."""
    wall_s: float
    """From the first request sent to the last answer."""


class ExpertCounts(Record):
    """Which experts the tokens of a cell's first, untimed visit went to, by what the model's routing returned.

    Steps that replay a graph run no Python and are not among them: there it is the prompts' tokens that are counted.
    """

    layers: tuple[tuple[int, ...], ...]
    """A layer with experts: how many tokens each expert got."""
    problem: str = ""
    """What could not be counted."""


class Visit(Record):
    """What one arm did when it was visited once. Times are those of the client unless a field says otherwise."""

    arm: Arm
    position: int
    """Order in time within the block, from 0."""
    duration_s: float = Field(gt=0)
    """From the first request sent to the last answer."""
    num_asked: int
    num_answered: int
    num_failed: int
    num_truncated: int = 0
    """Agent-like replay: answers that are shorter than the trace's."""
    input_lens: tuple[int, ...]
    """Of each answered request, in tokens."""
    output_lens: tuple[int, ...]
    ttfts_ms: tuple[float, ...] = ()
    turn_token_ms: tuple[float, ...] = ()
    """Agent-like replay: of each answered turn, the mean time between its tokens."""
    turns: tuple[TurnResult, ...] = ()
    """Agent-like replay: every turn that was sent, the timeline of each conversation."""
    decode_step_ms: float | None = Field(gt=0, default=None)
    """Mean time of an engine step that holds the whole batch and no prompt token, from the ledger."""
    acceptance_length: float | None = Field(gt=0, default=None)
    """Mean tokens that a decode step emitted a request."""
    num_cached_tokens: int | None = None
    """Prompt tokens that the server said it took from its prefix cache."""
    counted_tokens: int | None = None
    """Output tokens by an independent count (the engine's ledger), for all requests of the visit."""
    wall_s: float | None = None
    """The harness's own clock around the load generator's work; its start, such as reading prompts, included."""
    engine_s: float | None = None
    """Of a foreign load generator: from the start of the engine's first step for the visit to the end of its last."""
    specialized_share: float | None = None
    """Share of the decode tokens that the specialised path served."""
    fallbacks: dict[str, int] = Field(default_factory=dict)
    """Decode steps that went another way than the specialised path after it was asked, by the reason that it told."""
    num_ranks: int = Field(ge=1, default=1)
    """Workers that wrote a ledger."""
    rank_difference: str = ""
    """Where they did not schedule, decide and run the same in a step; empty: nowhere."""
    open_loop: OpenLoopCheck | None = None
    """Of an arm's first visit of a cell, where another load generator than the harness's client did the work."""
    experts: ExpertCounts | None = None
    """Of an arm's first visit of a cell, where experts were to be counted."""
    kernels: StepKernels | None = None
    """Of an arm's first visit of a cell, where kernels were to be timed."""
    errors: tuple[str, ...] = ()
    """First lines of requests' errors: untrusted text."""
    machine: MachineState = MachineState()


class Block(Record):
    """All visits of one block: a unit of the statistics. Recorded once, the moment it is whole."""

    kind: Literal["block"] = "block"
    schema_version: Literal[1] = 1
    sweep: str
    """The plan's digest."""
    cell: str
    index: int
    visits: tuple[Visit, ...]
    attempt: int = 1
    """1 unless an infrastructure failure took the block away before."""
    host: str
    """A name for the machine that does not tell whose it is."""
    hardware: str
    gpu_topology: str = ""
    """Of an engine of several ranks: how the machine's GPUs are joined."""
    code_digest: str
    """Of the judge's code as the worker imported it."""
    recorded_at: str


class Failure(Record):
    """A block that was not measured, and whose failure it was."""

    kind: Literal["failure"] = "failure"
    schema_version: Literal[1] = 1
    sweep: str
    cell: str
    index: int
    cause: Literal["infrastructure", "engine", "refused", "measurement"]
    """`engine`: a server did not start, died or gave no answer. `refused`: an engine said, as it was made, that it does
    not take the deployment. `infrastructure`: a machine or worker was lost. `measurement`: the load generator's result
    cannot be used."""
    arm: Arm | None = None
    attempt: int = 1
    message: str
    log_tail: tuple[str, ...] = ()
    """Last lines of the log of a server that failed: untrusted text."""
    recorded_at: str

    @property
    def lines(self) -> tuple[str, ...]:
        """What failed, and the log's lines below it."""
        return (self.message, *(f"log: {line}" for line in self.log_tail))


class BlockTask(Record):
    """A block that is to be measured."""

    cell: Cell
    index: int
    arms: tuple[Arm, ...]
    seed: int

    @property
    def key(self) -> tuple[str, int]:
        """What names the block in a sweep."""
        return self.cell.name, self.index

    @property
    def order(self) -> tuple[Arm, ...]:
        """The arms, in the order in which they are visited."""
        return block_order(self.arms, self.index)


class SweepPlan(Record):
    """Everything that decides what is measured; its digest names the sweep."""

    schema_version: Literal[1] = 1
    subject: str
    """What is judged: the commit, or a name for a simulated arm."""
    tier: Literal[Tier.CPU, Tier.GPU] = Tier.CPU
    """Where the arms are served."""
    cells: tuple[Cell, ...] = Field(min_length=1)
    arms: tuple[Arm, ...] = ALL_ARMS
    num_blocks: int = Field(ge=2)
    seed: int = 0
    prompts_digest: str = ""
    """Of the user's own prompts, where there are any."""
    load: LoadGenerator = "client"
    trace_digest: str = ""
    """Of the user's own trace, where agent cells replay one."""

    @property
    def digest(self) -> str:
        """The sha256 of the plan."""
        return digest_of(self)

    def tasks(self) -> tuple[BlockTask, ...]:
        """All blocks: engine by engine, and cell by cell within, so that servers are started once."""
        by_engine = sorted(range(len(self.cells)), key=lambda i: (self.cells[i].engine.name, i))
        return tuple(
            BlockTask(cell=self.cells[i], index=index, arms=self.arms, seed=self.seed)
            for i in by_engine
            for index in range(self.num_blocks)
        )
