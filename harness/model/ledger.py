"""The ledger: which arm's code served which request at every engine step, and joins over it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

from harness.model.record import Record


class Path(StrEnum):
    """Which code served a step."""

    SPECIALIZED = "specialized"
    BASELINE = "baseline"
    CONTRADICTORY = "contradictory"
    """The decision and the code that ran disagree: counts for neither."""


class StepRequest(Record):
    """One request's part of one engine step, in tokens."""

    request_id: str
    """The engine's id; starts with the id that the client sent, see `LedgerRow`."""
    num_scheduled_tokens: int
    num_prefill_tokens: int
    """Scheduled tokens at prompt positions, the prompt's last one included; 0 in a decode or verify step."""
    num_emitted_tokens: int
    """Tokens that the step sampled and handed to the client (0 in an unfinished chunked prefill)."""
    num_computed_tokens: int | None = None
    """Tokens whose state the step starts from; None where the tracer did not record it."""
    num_draft_tokens: int | None = None
    """Scheduled tokens that are drafts."""


class StepDecision(Record):
    """What one wrapped decision point of the manifest returned."""

    target: str
    specialized: bool
    reason: str


class LedgerRow(Record):
    """One engine step of one worker."""

    step: int
    started_ns: int
    """Monotonic clock of the worker, nanoseconds."""
    duration_ns: int
    num_reqs: int
    requests: tuple[StepRequest, ...]
    decisions: tuple[StepDecision, ...]
    ran: dict[str, int]
    """Calls, in this step, of each function named in the manifest as specialised or baseline code."""
    num_draft_tokens: int = 0
    graph_replayed: bool = False
    """Whether a captured graph served the step; the decisions are then those recorded at capture."""

    @cached_property
    def is_pure_decode(self) -> bool:
        """No request of the step computes a prompt position."""
        return self.num_reqs > 0 and all(r.num_prefill_tokens == 0 for r in self.requests)


class TracerProof(Record):
    """How a worker's tracer shows that it is alive and wraps what the manifest names."""

    nonce: str
    """Given by the harness at start; a row file without it is not ours."""
    marker_seen: bool
    """A function planted by the tracer, wrapped the same way as the targets and called, was recorded."""
    wrapped: tuple[str, ...]
    """Targets that are wrapped in the worker."""
    missing: dict[str, str]
    """Targets whose module was imported but that could not be wrapped, with the reason."""
    step_hooks: tuple[str, ...]
    """Engine functions that the tracer hooks to see steps, for instance `GPUModelRunner.execute_model`."""
    rank: int = 0
    """Of the worker among those of its engine."""


class ImportedFile(Record):
    """A source file of the subject that the worker imported, with the digest of its bytes as it was read."""

    module: str
    path: str
    """Relative to the import root."""
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeTargets:
    """The functions whose execution shows which path ran (from the manifest's `[dispatch]`)."""

    specialized_code: frozenset[str]
    baseline_code: frozenset[str]


_SAME_IN_ALL_RANKS = ("num_reqs", "requests", "decisions", "ran", "num_draft_tokens", "graph_replayed")


def find_rank_difference(rows: Sequence[LedgerRow], others: Mapping[int, Mapping[int, LedgerRow]]) -> str:
    """The first thing that another rank saw or did otherwise in a step than rank 0, times aside; empty: nothing.

    Args:
        rows: Rank 0's.
        others: Of each other rank, its rows by their steps.
    """
    for rank, by_step in others.items():
        for row in rows:
            if (difference := _difference(row, by_step.get(row.step))) is not None:
                return f"step {row.step}: {difference[0]} of rank {rank} {difference[1]}"
        if more := by_step.keys() - {row.step for row in rows}:
            return f"rank {rank} has step {min(more)}, and rank 0 has not"
    return ""


def _difference(row: LedgerRow, other: LedgerRow | None) -> tuple[str, str] | None:
    if other is None:
        return "the row", "is not there"
    for name in _SAME_IN_ALL_RANKS:
        ours, theirs = getattr(row, name), getattr(other, name)
        if ours != theirs:
            return name, f"are {str(theirs)[:200]}, of rank 0 {str(ours)[:200]}"
    return None


def path_of(row: LedgerRow, targets: CodeTargets) -> Path:
    """The path that served `row`: what was decided and what ran must agree."""
    decided = any(d.specialized for d in row.decisions)
    ran = [target for target, num_calls in row.ran.items() if num_calls > 0]
    specialized_ran = not targets.specialized_code.isdisjoint(ran)
    baseline_ran = not targets.baseline_code.isdisjoint(ran)
    if decided and specialized_ran and not baseline_ran:
        return Path.SPECIALIZED
    if not decided and not specialized_ran and baseline_ran:
        return Path.BASELINE
    return Path.CONTRADICTORY


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """Decode tokens served, by path; a decode token is one emitted by a pure decode step."""

    specialized: int = 0
    baseline: int = 0
    contradictory: int = 0

    @property
    def total(self) -> int:
        """All decode tokens."""
        return self.specialized + self.baseline + self.contradictory

    @property
    def share(self) -> float | None:
        """Specialised share of the decode tokens; None when there are none."""
        return self.specialized / self.total if self.total else None


_PREFIXES = ("cmpl-", "chatcmpl-", "")
_CHILD = re.compile(r"\d+_(?=cmpl-|chatcmpl-)")


def parent_of(engine_request_id: str) -> str:
    """The engine's id of the whole request: vLLM schedules each of several choices apart, as `<index>_<id>`."""
    child = _CHILD.match(engine_request_id)
    return engine_request_id[child.end() :] if child else engine_request_id


def stems_of(engine_request_id: str) -> Sequence[str]:
    """Every client id that an engine's id may stem from (see `belongs_to`)."""
    engine_request_id = parent_of(engine_request_id)
    stems = []
    for prefix in _PREFIXES:
        if engine_request_id.startswith(prefix):
            stem = engine_request_id[len(prefix) :]
            while stem:
                stems.append(stem)
                stem = stem.rpartition("-")[0]
    return stems


def belongs_to(engine_request_id: str, client_request_id: str) -> bool:
    """Whether the engine's request id stems from the id that the client sent.

    vLLM writes `cmpl-<client id>-<index>[-<suffix>]` or `chatcmpl-<client id>[-<suffix>]`; client ids of the
    harness end in a letter, so that one is never a prefix of another.
    """
    engine_request_id = parent_of(engine_request_id)
    for prefix in _PREFIXES:
        start = prefix + client_request_id
        if engine_request_id == start or engine_request_id.startswith(start + "-"):
            return True
    return False


def count_served(
    rows: Iterable[LedgerRow], targets: CodeTargets, request_ids: Iterable[str] | None = None
) -> Served:
    """Decode tokens of the given client requests (all when None) by the path that served them."""
    wanted = None if request_ids is None else tuple(request_ids)
    counts = dict.fromkeys(Path, 0)
    for row in rows:
        if not row.is_pure_decode:
            continue
        path = path_of(row, targets)
        for request in row.requests:
            if wanted is None or any(belongs_to(request.request_id, w) for w in wanted):
                counts[path] += request.num_emitted_tokens
    return Served(
        specialized=counts[Path.SPECIALIZED],
        baseline=counts[Path.BASELINE],
        contradictory=counts[Path.CONTRADICTORY],
    )


def served_by_batch(rows: Iterable[LedgerRow], targets: CodeTargets) -> Mapping[int, Served]:
    """Decode tokens by the number of requests in the step that emitted them, in rising order."""
    groups: dict[int, list[LedgerRow]] = {}
    for row in rows:
        if row.is_pure_decode:
            groups.setdefault(row.num_reqs, []).append(row)
    return {batch: count_served(groups[batch], targets) for batch in sorted(groups)}
