"""The decision of one step, from the engine's forward context alone."""

from __future__ import annotations

from typing import Any

from specialized_path.runtime.plan import StepPlan, StepPlanner


def decide_step(
    planner: StepPlanner, context: Any, num_rows: int, has_token_ids: bool
) -> tuple[str, StepPlan | None]:
    """Returns the reason as a stable slug, and the plan when the step runs on the specialised path.

    Args:
        planner: Knows the layers and the limits.
        context: vLLM's forward context, or None when there is none.
        num_rows: Rows of the step's tensors, padding included.
        has_token_ids: Whether the step brings token ids rather than embeddings.
    """
    if context is None:
        return "no-metadata", None
    if context.cudagraph_runtime_mode.name == "PIECEWISE":
        return "piecewise", None
    plan = planner.plan(context.attn_metadata, num_rows, has_token_ids)
    if plan.path == "plain":
        return plan.reason, None
    # Outside a graph the metadata covers the live requests only; a captured step is planned for all of its rows.
    return (plan.reason, plan) if plan.num_tokens == num_rows else ("padded", None)
