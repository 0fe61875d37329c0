"""The record of a run: where it ran, what ran, what every process answered, and what follows from that."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, Self

from pydantic import Field, model_validator

from examples.peers.facts import Answer
from examples.peers.plan import GPUS, NOT_BUILT, Part, make_jobs
from examples.peers.times import Fit, fit_times
from examples.peers.verdict import Question, decide_part
from harness.model.record import Record
from harness.model.words import Outcome

ROOT = Path(__file__).resolve().parents[2]


class Place(Record):
    """The machine and what was run on it."""

    gpus: tuple[str, ...]
    """As `nvidia-smi -L` names them, without their serial numbers."""
    driver: str | None
    topology: str | None
    """`nvidia-smi topo -m`; None where there is no such command."""
    versions: dict[str, str]
    """Python, PyTorch, NCCL, CuTe DSL: "missing" where it is."""


class PartRecord(Record):
    """One part of one job."""

    part: Part
    num_processes: int
    num_ranks: int
    not_run: str | None
    """Why it was never started."""
    answers: tuple[Answer, ...]
    outcome: Outcome
    reasons: tuple[str, ...]

    @model_validator(mode="after")
    def _outcome_follows(self) -> Self:
        if self.not_run is not None and self.answers:
            raise ValueError("a part that did not run has answers")
        question = Question(part=self.part, num_processes=self.num_processes, num_ranks=self.num_ranks)
        if (self.outcome, self.reasons) != _decide(question, self.answers, self.not_run):
            raise ValueError(f"{self.part}: outcome {self.outcome} does not follow from the answers")
        return self


class RunRecord(Record):
    """A whole run; every planned part is in it, in the plan's order, and nothing else is."""

    schema_version: Literal[1] = 1
    began: str
    """UTC, ISO 8601."""
    seconds: float = Field(ge=0)
    num_gpus: int
    one_gpu: bool
    """Whether all processes ran on one GPU: then no store crossed a link, and there are no times."""
    num_iterations: int = Field(ge=1)
    """Exchanges that each case of `iterations` was asked for."""
    place: Place
    sources: dict[str, str]
    """sha256 of each file of this repository that the processes had imported when they began, by path."""
    parts: tuple[PartRecord, ...]
    not_built: dict[str, str] = Field(default_factory=lambda: dict(NOT_BUILT))
    """Exchanges that this run cannot show, and why."""
    fit: Fit | None
    """None where the times did not pass."""

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        if self.num_gpus not in GPUS:
            raise ValueError(f"num_gpus: got {self.num_gpus}, expected one of {GPUS}")
        planned = [(p, j.num_processes, j.num_ranks) for j in make_jobs(self.num_gpus) for p in j.parts]
        if [(p.part, p.num_processes, p.num_ranks) for p in self.parts] != planned:
            raise ValueError("the parts are not the planned ones")
        if self.one_gpu and any(p.part == "times" and p.not_run is None for p in self.parts):
            raise ValueError("times of processes that share a GPU")
        asked = {f.asked for p in self.parts if p.part == "iterations" for a in p.answers for f in a.facts}  # type: ignore[union-attr]
        if asked - {self.num_iterations}:
            raise ValueError(f"iterations: asked for {sorted(asked)}, the run says {self.num_iterations}")
        if self.fit != find_fit(self.parts):
            raise ValueError("the fit does not follow from the times")
        return self

    @property
    def outcome(self) -> Outcome:
        """`fail` where a part failed, `pass` where all passed, else `inconclusive`."""
        outcomes = {part.outcome for part in self.parts}
        if Outcome.FAIL in outcomes:
            return Outcome.FAIL
        return Outcome.PASS if outcomes == {Outcome.PASS} else Outcome.INCONCLUSIVE


def make_part(question: Question, answers: Sequence[Answer], not_run: str | None = None) -> PartRecord:
    """The record of a part, decided."""
    outcome, reasons = _decide(question, answers, not_run)
    return PartRecord(
        part=question.part,
        num_processes=question.num_processes,
        num_ranks=question.num_ranks,
        not_run=not_run,
        answers=tuple(answers),
        outcome=outcome,
        reasons=reasons,
    )


def _decide(
    question: Question, answers: Sequence[Answer], not_run: str | None
) -> tuple[Outcome, tuple[str, ...]]:
    return decide_part(question, answers) if not_run is None else (Outcome.NOT_RUN, (not_run,))


def find_fit(parts: Sequence[PartRecord]) -> Fit | None:
    """The fit of the times, where they passed."""
    for part in parts:
        if part.part == "times" and part.outcome is Outcome.PASS:
            return fit_times(part.answers)
    return None


def changed_sources(record: RunRecord, root: Path = ROOT) -> list[str]:
    """Files that the run had imported and that are others, or none, below `root`."""
    return [
        path
        for path, digest in record.sources.items()
        if not (root / path).is_file() or hashlib.sha256((root / path).read_bytes()).hexdigest() != digest
    ]


def render_summary(record: RunRecord) -> str:
    """The outcome of every part with its reasons, and the times, as text."""
    lines = [f"{record.outcome}: {record.num_gpus} GPUs, {record.seconds:.0f} s"]
    for part in record.parts:
        lines.append(f"  {part.outcome}: {part.part}, {part.num_ranks} ranks")
        lines += [f"    {why}" for why in part.reasons]
    lines += [f"  not built: {name}: {why}" for name, why in record.not_built.items()]
    for row in record.fit.by_batch if record.fit else ():
        arms = ", ".join(f"{arm} {s.median:.2f} ({s.q1:.2f} to {s.q3:.2f})" for arm, s in row.arms.items())
        lines.append(f"  batch {row.batch}, us: {arms}; faster form: {row.faster_form or 'not decided'}")
    return "\n".join(lines)
