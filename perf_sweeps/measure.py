"""Measures blocks on hosts, and what one process does with a list of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from itertools import groupby
from typing import Literal, Protocol

from harness.model.errors import EngineError, EngineRefused, EvidenceError
from harness.model.words import Arm
from perf_sweeps.block import Block, BlockTask, Failure, Visit
from perf_sweeps.cell import Engine

Keep = Callable[[Block | Failure], None]
"""Takes a record the moment it is there."""


class ArmHost(Protocol):
    """All arms of one engine configuration, resident on one machine."""

    hardware: str
    host: str
    """A name for the machine that does not tell whose it is."""
    gpu_topology: str
    """How the GPUs of an engine of several ranks are joined; empty: one, or not told."""

    def visit(self, task: BlockTask, arm: Arm, position: int) -> Visit:
        """One arm's turn in a block.

        Raises `EngineError` when its server is gone or gives no answer, `EvidenceError` when what was measured
        cannot be read.
        """
        ...

    def close(self) -> None:
        """Stops every server. Safe to call twice."""
        ...


OpenHost = Callable[[Engine, tuple[Arm, ...]], ArmHost]
"""Starts the arms of an engine configuration; raises `EngineError`. Crosses processes, so it must pickle."""


class Bench:
    """One engine configuration's host, opened when first needed and opened anew after its server failed."""

    def __init__(
        self, open_host: OpenHost, engine: Engine, arms: tuple[Arm, ...], *, sweep: str, code_digest: str
    ) -> None:
        self._open_host, self._engine, self._arms = open_host, engine, arms
        self._sweep, self._code_digest = sweep, code_digest
        self._host: ArmHost | None = None

    def measure(self, task: BlockTask, attempt: int = 1) -> Block | Failure:
        """The block, or whose failure it was that there is none; the next block finds fresh servers then."""
        arm: Arm | None = None
        visits = []
        try:
            if self._host is None:
                self._host = self._open_host(self._engine, self._arms)
            for position, arm in enumerate(task.order):
                visits.append(self._host.visit(task, arm, position))
        except EngineRefused as error:
            self.close()
            return self._failure(task, error, "refused", Arm(error.arm), attempt)
        except EngineError as error:
            self.close()
            return self._failure(task, error, "engine", arm, attempt)
        except EvidenceError as error:
            return self._failure(task, error, "measurement", arm, attempt)
        return Block(
            sweep=self._sweep,
            cell=task.cell.name,
            index=task.index,
            visits=tuple(visits),
            attempt=attempt,
            host=self._host.host,
            hardware=self._host.hardware,
            gpu_topology=self._host.gpu_topology,
            code_digest=self._code_digest,
            recorded_at=utc_now(),
        )

    def _failure(
        self,
        task: BlockTask,
        error: EngineError | EvidenceError,
        cause: Literal["engine", "refused", "measurement"],
        arm: Arm | None,
        attempt: int,
    ) -> Failure:
        return Failure(
            sweep=self._sweep,
            cell=task.cell.name,
            index=task.index,
            cause=cause,
            arm=arm,
            attempt=attempt,
            message=error.message,
            log_tail=tuple(error.log_tail.splitlines()) if isinstance(error, EngineError) else (),
            recorded_at=utc_now(),
        )

    def close(self) -> None:
        """Stops the servers."""
        host, self._host = self._host, None
        if host is not None:
            host.close()


def run_here(
    tasks: Sequence[BlockTask], open_host: OpenHost, keep: Keep, *, sweep: str, code_digest: str
) -> None:
    """Measures all blocks in this process, one after the other.

    After a failure the rest of its cell is left out, and the other cells go on. An interrupt stops the servers and
    leaves what was kept.
    """
    for engine, group in groupby(tasks, key=lambda task: task.cell.engine):
        bench: Bench | None = None
        try:
            for task in _until_failure(group, failed := set()):
                if bench is None:
                    bench = Bench(open_host, engine, task.arms, sweep=sweep, code_digest=code_digest)
                record = bench.measure(task)
                keep(record)
                if isinstance(record, Failure):
                    failed.add(task.cell.name)
        finally:
            if bench is not None:
                bench.close()


def _until_failure(tasks: Iterable[BlockTask], failed: set[str]) -> Iterable[BlockTask]:
    return (task for task in tasks if task.cell.name not in failed)


def utc_now() -> str:
    """The time as records write it: UTC, ISO 8601, whole seconds."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
