"""Where the declared scope sends an engine step, and whether it went there."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from harness.model.ledger import LedgerRow, Path, path_of
from harness.model.manifest import Manifest, ScopeSection
from harness.model.step_kind import StepKind, context_of, drafts_of, kind_of


class Way(StrEnum):
    """What the manifest says of a step."""

    SPECIALIZED = "specialised"
    BASELINE = "baseline"
    EITHER = "either path"
    REFUSED = "refused"
    """The step must not be computed at all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WentWrong:
    """A step that did not go where the manifest says."""

    row: LedgerRow
    kind: StepKind
    expected: Way
    found: Path

    def __str__(self) -> str:
        reasons = ", ".join(sorted({d.reason for d in self.row.decisions if d.reason})) or "no reason given"
        return (
            f"step {self.row.step}: {self.kind}, {self.row.num_reqs} requests, context {context_of(self.row)}, "
            f"{drafts_of(self.row)} drafts: expected {self.expected}, went {self.found} ({reasons})"
        )


def expected_way(row: LedgerRow, scope: ScopeSection) -> Way | None:
    """Where the scope sends a step; None when the ledger does not say enough about it."""
    return _way_of(row, kind_of(row), scope)


def _way_of(row: LedgerRow, kind: StepKind | None, scope: ScopeSection) -> Way | None:
    if kind is None:
        return None
    if kind is StepKind.PROMPT_END:
        return Way.EITHER
    if kind not in scope.steps:
        return Way.BASELINE
    within = (
        row.num_reqs <= scope.max_batch
        and drafts_of(row) <= scope.max_draft_tokens
        and context_of(row) <= scope.max_context
    )
    if within:
        return Way.SPECIALIZED
    return Way.REFUSED if scope.outside == "refuse" else Way.BASELINE


def find_wrong_way(row: LedgerRow, manifest: Manifest) -> WentWrong | None:
    """The step as a fault; None when it went where the manifest says, or when that cannot be told."""
    kind = kind_of(row)
    expected = _way_of(row, kind, manifest.scope)
    if expected is None or kind is None:
        return None
    found = path_of(row, manifest.dispatch.targets)
    allowed = {
        Way.SPECIALIZED: (Path.SPECIALIZED,),
        Way.BASELINE: (Path.BASELINE,),
        Way.EITHER: (Path.SPECIALIZED, Path.BASELINE),
        Way.REFUSED: (),
    }[expected]
    return None if found in allowed else WentWrong(row=row, kind=kind, expected=expected, found=found)
