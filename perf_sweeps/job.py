"""A sweep that somebody else's machine is asked for, and what several of them say together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pydantic import Field, ValidationError

from harness.model.errors import ConfigurationError
from harness.model.record import Record
from harness.model.words import Outcome, Tier, Verdict
from perf_sweeps.analysis import CellResult, SweepResult
from perf_sweeps.block import LoadGenerator

KIND = "fasttrack-sweep-job"


class SweepJob(Record):
    """All that a machine needs beside a clone of the repository: it pulls the job, and no port is opened."""

    kind: Literal["fasttrack-sweep-job"] = "fasttrack-sweep-job"
    schema_version: Literal[1] = 1
    head: str
    """The commit whose code is served."""
    base: str
    """What it is merged into, as `--base` takes it; empty: the default branch."""
    preset: str
    match: str
    tier: Literal[Tier.CPU, Tier.GPU]
    """Where the arms are served."""
    num_blocks: int = Field(ge=2)
    seed: int
    load: LoadGenerator
    num_gpus: int
    """Of one server of the largest cell; 0 where the cells run on a CPU."""
    gpu_type: str
    gpu_minutes: float
    """As the plan prices it; minutes of the machine where there is no GPU."""
    sweep: str
    """The plan's digest: a return of another plan is refused."""
    code_digest: str
    """Of the judge: a machine with another one is refused before it measures."""


def parse_job(text: str, where: str) -> SweepJob:
    """The job of a file; raises `ConfigurationError` that names every wrong field."""
    try:
        return SweepJob.model_validate_json(text)
    except ValidationError as error:
        fields = "; ".join(f"{'.'.join(map(str, e['loc'])) or where}: {e['msg']}" for e in error.errors())
        advice = "`fasttrack job make` writes one."
        raise ConfigurationError("sweep-job", f"{where} is no job: {fields}.", advice) from error


class Return(Record):
    """One machine's answer to a job, judged anew from its records."""

    signer: str
    """Fingerprint of the key."""
    trust: str
    """What the policy makes of that key: a trust level, or `unknown`."""
    result: SweepResult


class ReplicatedCell(Record):
    """A cell over all returns."""

    cell: str
    is_required: bool
    outcome: Outcome
    message: str
    num_signers: int
    """Keys, known to the policy, whose returns decide the cell."""


def replicate(returns: Sequence[Return]) -> tuple[Verdict, tuple[ReplicatedCell, ...]]:
    """Holds the returns of one job against each other, cell by cell.

    A cell passes when two keys that the policy knows have it pass, on hardware of one name, with intervals of the ratio
    that overlap, and fails when one of them has it fail. Anything else decides nothing: one machine alone is no
    replication, and two that contradict each other are a question.
    """
    known = [r for r in returns if r.trust != "unknown"]
    cells = tuple(
        _replicated([(r.signer, r.result.cells[i]) for r in known], first)
        for i, first in enumerate(returns[0].result.cells)
    )
    required = [c.outcome for c in cells if c.is_required]
    if Outcome.FAIL in required:
        return Verdict.REJECT, cells
    is_all = bool(required) and all(o is Outcome.PASS for o in required)
    return (Verdict.ADMIT if is_all else Verdict.UNDECIDED), cells


def _replicated(found: Sequence[tuple[str, CellResult]], first: CellResult) -> ReplicatedCell:
    passing = {signer: cell for signer, cell in found if cell.outcome is Outcome.PASS}
    failing = {signer for signer, cell in found if cell.outcome is Outcome.FAIL}

    def cell(outcome: Outcome, message: str, num_signers: int = 0) -> ReplicatedCell:
        return ReplicatedCell(
            cell=first.cell.name,
            is_required=first.cell.is_required,
            outcome=outcome,
            message=message,
            num_signers=num_signers,
        )

    if failing and passing:
        return cell(Outcome.INCONCLUSIVE, "One machine shows it slower and another shows that it is not.")
    if failing:
        return cell(Outcome.FAIL, "It is shown to be slower.", len(failing))
    if len(passing) < 2:
        return cell(Outcome.INCONCLUSIVE, f"{len(passing)} known signers have it pass, of 2 that are needed.")
    if len({c.hardware for c in passing.values()}) > 1:
        return cell(Outcome.INCONCLUSIVE, "They measured on different hardware: nothing is replicated.")
    ratios = [c.ratio for c in passing.values() if c.ratio is not None]
    if max(r.ci_low for r in ratios) > min(r.ci_high for r in ratios):
        seen = "; ".join(map(str, ratios))
        return cell(Outcome.INCONCLUSIVE, f"The machines' intervals do not overlap: {seen}.")
    return cell(Outcome.PASS, f"Replicated: {'; '.join(map(str, ratios))}.", len(passing))
