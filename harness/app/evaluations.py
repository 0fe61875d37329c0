"""What the evaluation suites ask, as evidence and as requests."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from eval_suites.eval_set import EvalSet
from eval_suites.suite import Suite
from harness.app.recorder import Recorder, utc_now
from harness.app.suite_plan import EvalRows, SuiteBuilder
from harness.model.evaluation import ChatMessage
from harness.model.evidence import EvalSetEvidence
from harness.model.words import Tier


def collect_eval_sets(
    recorder: Recorder,
    builder: SuiteBuilder,
    count_prompt: Callable[[Sequence[ChatMessage]], int],
    rows: EvalRows,
) -> tuple[Suite, ...]:
    """Records what the evaluation suites ask, once for all arms, and returns them as requests."""
    eval_sets = builder.eval_sets(rows, count_prompt)
    kept = {record.suite for record in recorder.evidence.of(EvalSetEvidence, tier=Tier.CPU)}
    for eval_set in eval_sets:
        if eval_set.suite not in kept:
            recorder.record(eval_set_evidence(eval_set, recorder.hardware))
    return tuple(builder.evaluation(eval_set) for eval_set in eval_sets)


def eval_set_evidence(eval_set: EvalSet, hardware: str) -> EvalSetEvidence:
    """The questions of one evaluation suite as evidence."""
    return EvalSetEvidence(
        tier=Tier.CPU,
        recorded_at=utc_now(),
        hardware=hardware,
        seed=eval_set.seed,
        suite=eval_set.suite,
        source=eval_set.source,
        source_sha256=eval_set.source_sha256,
        grader=eval_set.grader,
        rows=eval_set.rows,
        num_left_out=eval_set.num_left_out,
    )
