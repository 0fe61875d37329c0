"""Runs one lm-eval task on one arm: what was served, and the scores that the task's own filters and metrics give."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from lm_eval.evaluator import simple_evaluate
from lm_eval.tasks import TaskManager

from eval_suites.lm_eval_model import CompleterLM
from harness.model.completion import Completer
from harness.model.errors import ConfigurationError, EngineError
from harness.model.evals import LmEvalTask
from harness.model.evaluation import SuiteItem, TaskScore
from harness.model.record import digest_of

_OF_A_TASK = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    ImportError,
    LookupError,
    NameError,
    OSError,
    RuntimeError,
    TypeError,
    ValueError,
)
"""What a task's definition, its data set or its metrics may raise: they are code of others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskResult:
    """What one arm answered and how lm-eval scored it."""

    items: tuple[SuiteItem, ...]
    scores: tuple[TaskScore, ...]
    config_sha256: str
    library: str
    """Name and version of what scored."""


def run_task(
    task: LmEvalTask,
    completer: Completer,
    *,
    root: Path,
    tokenize: Callable[[str], tuple[int, ...]],
    concurrency: int,
    chat: bool,
) -> TaskResult:
    """Puts an arm through a task.

    Args:
        task: Which one.
        completer: Asks the arm.
        root: The folder that `task.include_path` is relative to. The files there are code as far as lm-eval is
            concerned: they must not be the change's own.
        tokenize: The served model's tokens of a text.
        concurrency: Requests in flight.
        chat: Whether documents are asked as messages. Continuations are scored in plain text only.

    Raises:
        ConfigurationError: there is no such task, or it asks for what cannot be served.
        EngineError: the server refused a request, or died, or the task itself failed, as without its data set.
    """
    include = [str(root / task.include_path)] if task.include_path else None
    manager = TaskManager(include_path=include, include_defaults=not include)
    if task.task not in manager.all_tasks:
        where = task.include_path or "lm-eval"
        raise ConfigurationError("lm-eval-task", f"There is no task {task.task!r} in {where}.")
    model = CompleterLM(completer, suite=suite_of(task), tokenize=tokenize, concurrency=concurrency)
    try:
        results: Any = simple_evaluate(
            model,
            tasks=[task.task],
            task_manager=manager,
            limit=task.limit or None,
            apply_chat_template=chat,
            bootstrap_iters=0,
            log_samples=True,
        )
    except _OF_A_TASK as error:
        reason = f"{task.task}: lm-eval ended with {type(error).__name__}: {error}"
        raise EngineError("lm-eval-failed", reason[:500]) from error
    samples = [(name, sample) for name, found in sorted(results["samples"].items()) for sample in found]
    return TaskResult(
        items=tuple(model.items),
        scores=tuple(score for name, sample in samples for score in _scores(name, sample)),
        config_sha256=digest_of(str(sorted(results["configs"].items()))),
        library=f"lm-eval {version('lm-eval')}",
    )


def suite_of(task: LmEvalTask) -> str:
    """The name of the suite that a task becomes."""
    return f"lm_eval_{task.task}"


def _scores(task: str, sample: dict[str, Any]) -> list[TaskScore]:
    """One score a metric of a document; a metric that is no finite number for one document is left out."""
    return [
        TaskScore(
            task=task, row=str(sample["doc_id"]), filter=sample["filter"], metric=metric, value=float(value)
        )
        for metric in sample["metrics"]
        if isinstance(value := sample[metric], int | float) and math.isfinite(value)
    ]
