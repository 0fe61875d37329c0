"""Reads both commits of a change as text, on as many cores as there is separate work for."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import TypeVar

from harness.app.collector import collector_paused
from harness.app.inward import collect_inward_evidence
from harness.app.kernels import collect_kernel_sources
from harness.app.reaching import StaticQuestion, collect_outside
from harness.app.recorder import Recorder

R = TypeVar("R")
_GIVEN: list[StaticQuestion] = []
"""In a process that reads beside another: the question that it was forked with."""


def collect_text(question: StaticQuestion, recorder: Recorder) -> None:
    """Records what the subject reaches, which of its files hold kernels, and what reaches into it."""
    recorder.progress.say("reading the hooks, what imports the subject, and the kernels")
    fork = multiprocessing.get_context("fork")
    # Forked processes have the objects that were read; nothing is sent but the answers.
    with (
        collector_paused(),
        question.kept(),
        ProcessPoolExecutor(2, mp_context=fork, initializer=_GIVEN.append, initargs=(question,)) as pool,
    ):
        inward = pool.submit(_answer, collect_inward_evidence)
        kernels = pool.submit(_answer, collect_kernel_sources)
        collect_outside(question, recorder)
        recorder.record(kernels.result())
        for record in inward.result():
            recorder.record(record)


def _answer(collect: Callable[[StaticQuestion], R]) -> R:
    """What a collector says to the question of this process."""
    with collector_paused():
        return collect(_GIVEN[-1])
