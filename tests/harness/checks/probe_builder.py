"""Made scripted runs: evidence of a clean path of a small scope, and of the same with known faults."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from harness.model.check import CheckContext
from harness.model.evidence import (
    AnyEvidence,
    ArmEvidence,
    HandoverEvidence,
    ProbeEvidence,
    SubjectEvidence,
)
from harness.model.ledger import LedgerRow, StepDecision, StepRequest
from harness.model.manifest import Manifest, StateSection
from harness.model.policy import Policy
from harness.model.probe import (
    Distance,
    HandoverStep,
    Place,
    ProbedEngine,
    ProbeStep,
    Refusal,
    ScenarioResult,
    Write,
)
from harness.model.words import Arm, Tier
from tests.harness.checks.evidence_builder import (
    DECISION,
    EXECUTOR,
    MANIFEST,
    PLAIN,
    POLICY,
    context_of,
    small_evidence,
)

MAX_BATCH, MAX_CONTEXT, MAX_DRAFTS = 2, 32, 1
STATE = StateSection(caches=("attn.*",), states=("kda.*",), max_relative_difference=1e-4)
SCOPE = MANIFEST.scope.model_copy(
    update={"max_batch": MAX_BATCH, "max_context": MAX_CONTEXT, "max_draft_tokens": MAX_DRAFTS}
)
PROBED: Manifest = MANIFEST.model_copy(update={"state": STATE, "scope": SCOPE})
OWN = (
    Write(buffer="kda.0", place=Place.OWN_SLOT, owner="a", num_bytes=64),
    Write(buffer="attn.3", place=Place.OWN_SLOT, owner="a", num_bytes=16),
)
NEAR = Distance(num_words=100, num_differing=40, largest=1e-6, worst="a, kda.0")
NOTHING = Distance(num_words=0, num_differing=0, largest=0.0)


@dataclass(frozen=True, slots=True)
class Part:
    """One request's part of a step."""

    name: str
    computed: int
    scheduled: int = 1
    prefill: int = 0
    drafts: int = 0


def decode(*names: str, computed: int = 10, drafts: int = 0) -> tuple[Part, ...]:
    """Requests that decode or verify together."""
    return tuple(Part(name, computed, 1 + drafts, 0, drafts) for name in names)


def prefill(name: str, tokens: int = 5, computed: int = 0) -> Part:
    return Part(name, computed, tokens, tokens)


def row(number: int, parts: Sequence[Part], *, fast: bool, reason: str = "because") -> LedgerRow:
    """A step, with the path that it took."""
    return LedgerRow(
        step=number,
        started_ns=number,
        duration_ns=1,
        num_reqs=len(parts),
        requests=tuple(
            StepRequest(
                request_id=f"{part.name}-x",
                num_scheduled_tokens=part.scheduled,
                num_prefill_tokens=part.prefill,
                num_emitted_tokens=1,
                num_computed_tokens=part.computed,
                num_draft_tokens=part.drafts,
            )
            for part in parts
        ),
        decisions=(StepDecision(target=DECISION, specialized=fast, reason=reason),),
        ran={EXECUTOR if fast else PLAIN: 1},
    )


@dataclass(frozen=True, slots=True)
class Made:
    """One made step of a scenario."""

    scenario: str
    parts: tuple[Part, ...]
    fast: bool
    engine: str = "plain"


CLEAN = (
    Made("batch", (prefill("a"), prefill("b")), False),
    Made("batch", decode("a", "b"), True),
    Made("batch", (*decode("a", "b"), prefill("c", 1)), False),
    Made("batch", decode("a", "b", "c"), False),
    Made("batch", decode("a", "b"), True),
    Made("context", decode("a", computed=30), True),
    Made("prefix", (prefill("a", 3, computed=16),), False),
    Made("prefix", decode("a", computed=19), True),
    Made("preempted", decode("a", computed=10), True),
    Made("preempted", (prefill("a", 11),), False),
    Made("preempted", decode("a", computed=11), True),
    Made("aborted", decode("a", "b"), True),
    Made("aborted", decode("b"), True),
    Made("drafts", decode("a", "b", drafts=1), True, "verify"),
    Made("drafts", (*decode("a"), *decode("b", drafts=1)), False, "verify"),
    Made("drafts", decode("a", "b", drafts=1), True, "verify"),
)
"""Every edge of the made scope, each gone where it says."""


def steps_of(made: Iterable[Made]) -> tuple[ProbeStep, ...]:
    return tuple(
        ProbeStep(
            engine=m.engine,
            scenario=m.scenario,
            position=number,
            row=row(number, m.parts, fast=m.fast),
            names={f"{p.name}-x": p.name for p in m.parts},
            writes=OWN if m.fast else (),
        )
        for number, m in enumerate(made)
    )


def process(arm: Arm) -> ArmEvidence:
    """A sound process: an arm's record."""
    record = small_evidence().arm(arm, Tier.CPU)
    assert record is not None
    return record


def probe(made: Iterable[Made] = CLEAN, **update: object) -> ProbeEvidence:
    """The candidate's scripted run."""
    record = ProbeEvidence(
        tier=Tier.CPU,
        recorded_at="now",
        arm=Arm.CANDIDATE,
        process=process(Arm.CANDIDATE),
        steps=steps_of(made),
        engines=(
            ProbedEngine(name="plain", ready_s=1.0, caches_prefixes=True),
            ProbedEngine(name="verify", ready_s=1.0, caches_prefixes=False),
        ),
        results=(ScenarioResult(engine="plain", scenario="aborted", token_ids={}, aborted=("a",)),),
        refusals=(
            Refusal(
                engine="plain", scenario="context", request="z", num_prompt_tokens=33, message="too long"
            ),
            Refusal(engine="beyond", message="too many drafts"),
            Refusal(engine="lora", message="enable_lora: got True, expected False"),
        ),
    )
    return record.model_copy(update=update)


def handover(
    made: Iterable[Made] = CLEAN, change: Callable[[HandoverStep], HandoverStep] = lambda s: s
) -> HandoverEvidence:
    """The scripted run beside its twin's: near, with the twin's tokens, unless changed."""
    steps = [
        HandoverStep(
            engine=m.engine,
            scenario=m.scenario,
            position=number,
            same_work=True,
            num_starts=sum(1 for p in m.parts if p.computed),
            states=NEAR if any(p.computed for p in m.parts) else NOTHING,
            caches=NEAR if any(p.computed for p in m.parts) else NOTHING,
            num_bytes_beyond={},
            num_bytes_between={},
        )
        for number, m in enumerate(made)
    ]
    return HandoverEvidence(
        tier=Tier.CPU,
        recorded_at="now",
        arm=Arm.CANDIDATE,
        twin=process(Arm.BASELINE),
        steps=tuple(change(step) for step in steps),
    )


def probed_context(
    *records: AnyEvidence, manifest: Manifest = PROBED, policy: Policy = POLICY
) -> CheckContext:
    """The records with the subject's files, which every process must have imported."""
    subject = [r for r in small_evidence() if isinstance(r, SubjectEvidence)]
    return context_of([*subject, *records], manifest, policy)
