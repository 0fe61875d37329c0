"""Which engine step emitted each token of each client request."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from heapq import merge

from harness.model.evaluation import SuiteItem
from harness.model.evidence import EvidenceSet, LedgerEvidence, RequestPart, SuiteEvidence, TimingEvidence
from harness.model.ledger import LedgerRow, Path, Served, path_of, stems_of
from harness.model.manifest import Manifest, ScopeSection
from harness.model.words import Arm, Tier


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenStep:
    """The step that emitted one token."""

    row: LedgerRow
    path: Path
    in_scope: bool
    """Whether the step's shape (requests, drafts) lies in the declared scope."""

    @property
    def batch(self) -> int:
        """Requests in the step."""
        return self.row.num_reqs

    @property
    def is_specialized(self) -> bool:
        """A decode step that the specialised path served, inside the scope."""
        return self.in_scope and self.row.is_pure_decode and self.path is Path.SPECIALIZED


TokenSteps = Mapping[str, Sequence[TokenStep]]
"""By the request id that the client sent: one step a token, in the order of the tokens."""


def step_in_scope(row: LedgerRow, scope: ScopeSection) -> bool:
    """Whether a decode step has no more requests and drafts than the manifest declares."""
    if row.num_reqs > scope.max_batch:
        return False
    return not row.is_pure_decode or all(
        r.num_scheduled_tokens - 1 <= scope.max_draft_tokens for r in row.requests
    )


def index_parts(ledger: LedgerEvidence, request_ids: Iterable[str]) -> Mapping[str, Sequence[RequestPart]]:
    """What the steps did of the given client requests, in order; of one that the ledger does not know, nothing."""
    found: dict[str, list[Sequence[RequestPart]]] = {request_id: [] for request_id in request_ids}
    for client, choices in found.items():
        for engine_request_id in ledger.by_stem.get(client, ()):
            if client_of(engine_request_id, found) == client:
                choices.append(ledger.parts[engine_request_id])
    return {client: tuple(merge(*choices)) for client, choices in found.items()}


def index_token_steps(ledger: LedgerEvidence, manifest: Manifest, request_ids: Iterable[str]) -> TokenSteps:
    """The steps of the given client requests; a request that the ledger does not know has none."""
    targets = manifest.dispatch.targets
    steps: dict[int, TokenStep] = {}
    found: dict[str, list[TokenStep]] = {}
    for client, parts in index_parts(ledger, request_ids).items():
        found[client] = []
        for place, _, num_emitted_tokens in parts:
            if place not in steps:
                row = ledger.steps[place]
                in_scope = step_in_scope(row, manifest.scope)
                steps[place] = TokenStep(row=row, path=path_of(row, targets), in_scope=in_scope)
            found[client].extend([steps[place]] * num_emitted_tokens)
    return found


def client_of(engine_request_id: str, known: Mapping[str, object]) -> str | None:
    """The longest known client id that the engine's id stems from (see `harness.model.ledger.belongs_to`)."""
    return max((stem for stem in stems_of(engine_request_id) if stem in known), key=len, default=None)


def count_token_steps(steps: TokenSteps, items: Iterable[SuiteItem]) -> Served:
    """Decode tokens, inside the scope, of the given requests by the path that served them."""
    counts = dict.fromkeys(Path, 0)
    for item in items:
        for step in steps.get(item.request_id, ()):
            if step.row.is_pure_decode and step.in_scope:
                counts[step.path] += 1
    return Served(
        specialized=counts[Path.SPECIALIZED],
        baseline=counts[Path.BASELINE],
        contradictory=counts[Path.CONTRADICTORY],
    )


def client_items(evidence: EvidenceSet, arm: Arm, tier: Tier) -> tuple[tuple[str, SuiteItem], ...]:
    """Every request that was sent to an arm, with the suite or timed cell that it belongs to."""
    suites = {r.suite: r for r in evidence.of(SuiteEvidence, tier=tier) if r.arm == arm}
    sent = [(f"suite {name}", item) for name, record in suites.items() for item in record.items]
    for cell in timing_cells(evidence, tier):
        for _, visited, items in cell.visits:
            if visited == arm:
                sent.extend((f"timing {cell.cell}", item) for item in items)
    return tuple(sent)


def timing_cells(evidence: EvidenceSet, tier: Tier) -> tuple[TimingEvidence, ...]:
    """The latest record of each timed cell and comparison."""
    latest = {(r.cell, r.batch, r.compares): r for r in evidence.of(TimingEvidence, tier=tier)}
    return tuple(latest.values())
