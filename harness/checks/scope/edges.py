"""The edges of a declared scope, and how a scripted run shows that it came to them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby

from harness.model.evidence import ProbeEvidence
from harness.model.manifest import ScopeSection
from harness.model.probe import LORA, ProbeStep, Refusal
from harness.model.step_kind import StepKind, context_of, drafts_of, kind_of

DECODES = (StepKind.DECODE, StepKind.VERIFY, StepKind.RAGGED_VERIFY)
Steps = Callable[[ProbeEvidence], Sequence[ProbeStep]]
Refusals = Callable[[ProbeEvidence], Sequence[Refusal]]


def _no_refusals(_probe: ProbeEvidence) -> Sequence[Refusal]:
    return ()


def _never(_probe: ProbeEvidence) -> bool:
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    """One edge."""

    name: str
    claim: str
    """What it is, as the beginning of a sentence."""
    steps: Steps
    """The steps that lie at it."""
    refusals: Refusals = _no_refusals
    """Requests or deployments beyond it that the engine did not take."""
    cannot_occur: Callable[[ProbeEvidence], bool] = _never
    """Whether no engine of the run can reach it."""


def edges_of(scope: ScopeSection) -> tuple[Edge, ...]:
    """Every edge of a scope: its limits and one beyond, each number of drafts, and what interrupts a decode."""
    most = scope.max_draft_tokens
    edges = [
        _rows(f"{scope.max_batch} requests", "The largest declared batch", _batch(scope.max_batch)),
        _rows(
            f"{scope.max_batch + 1} requests", "One request more than declared", _batch(scope.max_batch + 1)
        ),
        _rows(f"context {scope.max_context}", "The whole declared context", _context(scope.max_context)),
        Edge(
            name=f"context {scope.max_context + 1}",
            claim="One token more than the declared context",
            steps=lambda probe: [s for s in probe.steps if context_of(s.row) > scope.max_context],
            refusals=lambda probe: [r for r in probe.refusals if r.num_prompt_tokens > scope.max_context],
        ),
        *(_rows(f"{n} drafts", f"{n} draft tokens of every request", _uniform(n)) for n in range(most + 1)),
        Edge(
            name=f"{most + 1} drafts",
            claim="One draft token more than declared",
            steps=lambda probe: [s for s in probe.steps if drafts_of(s.row) > most],
            refusals=lambda probe: [
                r for r in probe.refusals if not r.scenario and not r.within_scope and r.engine != LORA
            ],
        ),
        _rows("mixed", "A prompt computed beside decodes", lambda s: kind_of(s.row) is StepKind.MIXED),
        _rows("prefill", "Prompts alone", lambda s: kind_of(s.row) is StepKind.PREFILL),
        _rows("one-token prompt", "A prompt of one token", _one_token),
        Edge(name="preemption", claim="Preempted and resumed requests", steps=_resumed),
        Edge(name="abort", claim="After a request was aborted", steps=_after_abort),
        Edge(
            name="prefix hit",
            claim="A prompt that starts from cached tokens",
            steps=_prefix_hits,
            cannot_occur=lambda probe: not any(e.caches_prefixes for e in probe.engines),
        ),
    ]
    if most:
        edges.append(
            _rows(
                "unequal drafts",
                "Unequal numbers of drafts",
                lambda s: kind_of(s.row) is StepKind.RAGGED_VERIFY,
            )
        )
    return tuple(edges)


def _rows(name: str, claim: str, lies_at: Callable[[ProbeStep], bool]) -> Edge:
    return Edge(name=name, claim=claim, steps=lambda probe: [s for s in probe.steps if lies_at(s)])


def _batch(size: int) -> Callable[[ProbeStep], bool]:
    return lambda s: s.row.num_reqs == size and kind_of(s.row) in DECODES


def _context(size: int) -> Callable[[ProbeStep], bool]:
    """The step behind `size` tokens, or the one before, whose token is the last that a model of that length serves."""
    return lambda s: size - 1 <= context_of(s.row) <= size and kind_of(s.row) in DECODES


def _uniform(drafts: int) -> Callable[[ProbeStep], bool]:
    kind = StepKind.VERIFY if drafts else StepKind.DECODE
    return lambda s: kind_of(s.row) is kind and drafts_of(s.row) == drafts


def _one_token(step: ProbeStep) -> bool:
    requests = step.row.requests
    return any(
        r.num_computed_tokens == 0 and r.num_prefill_tokens == r.num_scheduled_tokens == 1 for r in requests
    )


def _resumed(probe: ProbeEvidence) -> list[ProbeStep]:
    """Steps with a request that had decoded, or computed more, and computes its prompt again, from there on."""
    found = []
    for _, group in groupby(probe.steps, key=lambda s: (s.engine, s.scenario)):
        computed: dict[str, int] = {}
        decoded: set[str] = set()
        resumed: set[str] = set()
        for step in group:
            for r in step.row.requests:
                start = r.num_computed_tokens or 0
                if start < computed.get(r.request_id, 0) or (
                    r.num_prefill_tokens and r.request_id in decoded
                ):
                    resumed.add(r.request_id)
                if not r.num_prefill_tokens:
                    decoded.add(r.request_id)
                computed[r.request_id] = start
            if resumed & {r.request_id for r in step.row.requests}:
                found.append(step)
    return found


def _after_abort(probe: ProbeEvidence) -> list[ProbeStep]:
    """Steps of the others after the last step of a request that was given up while they ran."""
    aborted = {(r.engine, r.scenario): set(r.aborted) for r in probe.results if r.aborted}
    found = []
    for key, group in groupby(probe.steps, key=lambda s: (s.engine, s.scenario)):
        names = aborted.get(key, set())
        steps = list(group)
        seen = [i for i, s in enumerate(steps) if names & _names_in(s)]
        if seen:
            found += steps[seen[-1] + 1 :]
    return found


def _prefix_hits(probe: ProbeEvidence) -> list[ProbeStep]:
    """The first step of a request whose prompt starts from tokens that it never computed, and its later steps."""
    found = []
    for _, group in groupby(probe.steps, key=lambda s: (s.engine, s.scenario)):
        known: set[str] = set()
        hits: set[str] = set()
        for step in group:
            requests = step.row.requests
            hits |= {
                r.request_id
                for r in requests
                if r.request_id not in known and r.num_computed_tokens and r.num_prefill_tokens
            }
            known |= {r.request_id for r in requests}
            if hits & {r.request_id for r in requests}:
                found.append(step)
    return found


def _names_in(step: ProbeStep) -> set[str]:
    return {step.names.get(r.request_id, "") for r in step.row.requests}
