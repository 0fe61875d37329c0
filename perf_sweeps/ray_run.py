"""Measures blocks on a Ray cluster: an actor an engine configuration, a task a block.

A lost worker or machine is an infrastructure failure: its block is measured again, elsewhere where there is another
machine, and recorded once. What the engine itself did wrong comes back as a record and is not tried again.
"""

from __future__ import annotations

import signal
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from harness.model.errors import ConfigurationError, FasttrackError
from perf_sweeps.block import BlockTask, Failure
from perf_sweeps.measure import Bench, Keep, OpenHost, utc_now

LOCAL = "local"
MAX_ATTEMPTS = 3
POLL_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RayOptions:
    """Where a sweep runs and what it takes there."""

    address: str = LOCAL
    """`local` starts a cluster of this machine; anything else is an address as Ray takes it."""
    num_lanes: int = 1
    """Hosts of one engine configuration that may work side by side, each with servers of its own."""
    gpu_type: str = ""
    """A custom resource that a machine must offer; empty: any machine."""
    uses_gpus: bool = True


@dataclass(slots=True)
class _Lane:
    """Cells of one engine configuration that go to one host."""

    tasks: deque[BlockTask]
    actor: Any = None
    group: Any = None
    node: str = ""
    shunned: set[str] = field(default_factory=set)
    """Machines on which the lane's worker was lost."""


def run_on_ray(
    tasks: Sequence[BlockTask],
    open_host: OpenHost,
    keep: Keep,
    *,
    sweep: str,
    code_digest: Callable[[], str],
    options: RayOptions,
) -> None:
    """Measures all blocks, as many lanes at a time as the cluster has room for.

    Args:
        tasks: The blocks; those of a cell stay together.
        open_host: Opens a lane's host, in the worker.
        keep: Called in this process with every record, the moment it arrives.
        sweep: The plan's digest.
        code_digest: Called here and in each worker: the digest of the judge as it was imported there.
        options: Where, and how many.

    Raises:
        ConfigurationError: Ray is missing, no machine has what a lane needs, or a worker imported other code.
    """
    with _cluster(options.address) as ray:
        run = _RayRun(ray, open_host, keep, sweep=sweep, code_digest=code_digest, options=options)
        try:
            run.work(make_lanes(tasks, options.num_lanes))
        finally:
            run.end()


def make_lanes(tasks: Sequence[BlockTask], num_lanes: int) -> tuple[tuple[BlockTask, ...], ...]:
    """The tasks of each lane: engine by engine, whole cells dealt out to at most `num_lanes` lanes of an engine."""
    cells: dict[Any, dict[str, list[BlockTask]]] = {}
    for task in tasks:
        cells.setdefault(task.cell.engine, {}).setdefault(task.cell.name, []).append(task)
    lanes: list[tuple[BlockTask, ...]] = []
    for by_cell in cells.values():
        dealt = [list[BlockTask]() for _ in range(min(num_lanes, len(by_cell)))]
        for place, of_cell in enumerate(by_cell.values()):
            dealt[place % len(dealt)].extend(of_cell)
        lanes.extend(tuple(lane) for lane in dealt)
    return tuple(lanes)


@contextmanager
def _cluster(address: str) -> Iterator[Any]:
    """Ray, connected; a cluster that was started here is stopped in the end."""
    try:
        import ray
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            "no-ray", "Ray is not installed.", "Install the extra `sweep`, or give --address none."
        ) from error
    was_connected = ray.is_initialized()
    if not was_connected:
        on_sigterm = signal.getsignal(signal.SIGTERM)
        if address == LOCAL:
            ray.init(
                address=LOCAL, include_dashboard=False, log_to_driver=False, object_store_memory=100_000_000
            )
        else:
            ray.init(address=address, log_to_driver=False)
        if threading.current_thread() is threading.main_thread():
            # Ray's own handler ends the process there and then.
            signal.signal(signal.SIGTERM, on_sigterm)
    try:
        yield ray
    finally:
        if not was_connected:
            ray.shutdown()


class _Worker:
    """What runs in a lane's actor."""

    def __init__(
        self, open_host: OpenHost, first: BlockTask, sweep: str, code_digest: Callable[[], str]
    ) -> None:
        self._digest = code_digest()
        self._bench = Bench(open_host, first.cell.engine, first.arms, sweep=sweep, code_digest=self._digest)

    def where(self) -> tuple[str, str]:
        """The machine's id in the cluster, and the digest of the code that was imported there."""
        import ray

        return ray.get_runtime_context().get_node_id(), self._digest

    def measure(self, task: BlockTask, attempt: int) -> Any:
        """The block or its failure."""
        return self._bench.measure(task, attempt)

    def close(self) -> None:
        """Stops the servers."""
        self._bench.close()


class _RayRun:
    """The state of one run: which lane waits for which answer."""

    def __init__(
        self,
        ray: Any,
        open_host: OpenHost,
        keep: Keep,
        *,
        sweep: str,
        code_digest: Callable[[], str],
        options: RayOptions,
    ) -> None:
        self._ray, self._keep, self._options = ray, keep, options
        self._arguments = (open_host, sweep, code_digest)
        self._sweep, self._own_digest = sweep, code_digest()
        self._attempts: dict[tuple[str, int], int] = {}
        self._waiting: dict[Any, tuple[_Lane, BlockTask | None]] = {}
        """By the reference that is waited for; None for the question where a lane's worker runs."""
        self._lanes: list[_Lane] = []

    def work(self, lanes: Sequence[Sequence[BlockTask]]) -> None:
        """Until every lane is done."""
        for tasks in lanes:
            self._require_room(tasks[0])
            lane = _Lane(deque(tasks))
            self._lanes.append(lane)
            self._open(lane)
        while self._waiting:
            ready, _ = self._ray.wait(list(self._waiting), num_returns=1, timeout=POLL_S)
            for reference in ready:
                self._take(reference)

    def _take(self, reference: Any) -> None:
        lane, task = self._waiting.pop(reference)
        try:
            answer = self._ray.get(reference)
        except self._ray.exceptions.RayTaskError as error:
            raise error.as_instanceof_cause() from None
        except self._ray.exceptions.RayError as error:
            self._lost(lane, task, error)
            return
        if task is None:
            lane.node, digest = answer
            self._require_same_code(digest)
        else:
            self._keep(answer)
            lane.tasks.popleft()
            if isinstance(answer, Failure):
                lane.tasks = deque(t for t in lane.tasks if t.cell.name != task.cell.name)
        self._next(lane)

    def _next(self, lane: _Lane) -> None:
        if not lane.tasks:
            self._close(lane, in_order=True)
            return
        task = lane.tasks[0]
        attempt = self._attempts.setdefault(task.key, 1)
        self._waiting[lane.actor.measure.remote(task, attempt)] = (lane, task)

    def _lost(self, lane: _Lane, task: BlockTask | None, error: Exception) -> None:
        """Tells what was lost, and goes on elsewhere; a block that was lost too often is given up."""
        blamed = task or lane.tasks[0]
        attempt = self._attempts.setdefault(blamed.key, 1)
        self._keep(
            Failure(
                sweep=self._sweep,
                cell=blamed.cell.name,
                index=blamed.index,
                cause="infrastructure",
                attempt=attempt,
                message=f"{type(error).__name__}: {str(error).strip().splitlines()[0]}",
                recorded_at=utc_now(),
            )
        )
        self._attempts[blamed.key] = attempt + 1
        if attempt >= MAX_ATTEMPTS:
            lane.tasks = deque(t for t in lane.tasks if t.key != blamed.key)
        if lane.node:
            lane.shunned.add(lane.node)
        self._close(lane, in_order=False)
        if lane.tasks:
            self._open(lane)

    def _open(self, lane: _Lane) -> None:
        """Asks for a worker; the cluster starts it when there is room."""
        ray, first = self._ray, lane.tasks[0]
        open_host, sweep, code_digest = self._arguments
        wanted: dict[str, Any] = {"num_cpus": 1, "max_restarts": 0, "max_task_retries": 0}
        needs = self._needs(first)
        if needs:
            wanted |= self._on_gpus(lane, needs)
        elif (other := self._other_node(lane)) is not None:
            from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

            wanted["scheduling_strategy"] = NodeAffinitySchedulingStrategy(node_id=other, soft=True)
        actor = ray.remote(_Worker).options(**wanted)
        lane.actor, lane.node = actor.remote(open_host, first, sweep, code_digest), ""
        self._waiting[lane.actor.where.remote()] = (lane, None)

    def _on_gpus(self, lane: _Lane, needs: Mapping[str, float]) -> dict[str, Any]:
        """All GPUs of one machine where one has them; else one bundle a GPU, kept close together."""
        from ray.util.placement_group import placement_group
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        num_gpus = int(needs["GPU"])
        is_whole = any(_fits(node, needs) for node in self._nodes())
        rest = {name: amount for name, amount in needs.items() if name != "GPU"}
        whole = [{"CPU": 1.0, **needs}]
        split = [{"CPU": 1.0, "GPU": 1.0, **rest} for _ in range(num_gpus)]
        lane.group = placement_group(whole if is_whole else split, strategy="PACK")
        strategy = PlacementGroupSchedulingStrategy(
            lane.group, placement_group_bundle_index=0, placement_group_capture_child_tasks=True
        )
        return {"num_gpus": num_gpus if is_whole else 1, "scheduling_strategy": strategy}

    def _needs(self, task: BlockTask) -> dict[str, float]:
        """What a lane takes of the cluster beside a core; nothing where no GPUs are asked for."""
        if not self._options.uses_gpus:
            return {}
        kind = {self._options.gpu_type: 0.001} if self._options.gpu_type else {}
        return {"GPU": float(task.cell.engine.tensor_parallel), **kind}

    def _require_room(self, task: BlockTask) -> None:
        """Raises when the whole cluster, empty, could not hold a lane: Ray would wait for ever."""
        needs, nodes = self._needs(task), self._nodes()
        for name, amount in needs.items():
            has = sum(node["Resources"].get(name, 0.0) for node in nodes)
            if has < amount:
                raise ConfigurationError(
                    "no-room",
                    f"{task.cell.name} needs {amount:g} {name}; the cluster has {has:g} on {len(nodes)} machines.",
                    "Join a cluster with --address, or choose cells with --match.",
                )

    def _nodes(self) -> list[Mapping[str, Any]]:
        return [node for node in self._ray.nodes() if node["Alive"]]

    def _other_node(self, lane: _Lane) -> str | None:
        """A machine on which the lane has not failed, once it has failed on one."""
        ids = [str(node["NodeID"]) for node in self._nodes() if node["Resources"].get("CPU", 0) >= 1]
        fresh = [node for node in ids if node not in lane.shunned]
        return fresh[0] if lane.shunned and fresh else None

    def _require_same_code(self, digest: str) -> None:
        if digest != self._own_digest:
            raise ConfigurationError(
                "other-code",
                f"A worker imported other code of the judge ({digest[:12]}) than this process "
                f"({self._own_digest[:12]}).",
                "Install the same wheel of fasttrack on every machine.",
            )

    def _close(self, lane: _Lane, *, in_order: bool) -> None:
        actor, group = lane.actor, lane.group
        lane.actor = lane.group = None
        if actor is not None:
            if in_order:
                self._try(lambda: self._ray.get(actor.close.remote(), timeout=60))
            self._ray.kill(actor)
        if group is not None:
            from ray.util.placement_group import remove_placement_group

            remove_placement_group(group)

    def _try(self, what: Callable[[], object]) -> None:
        """Does what may fail because the cluster is going away: there is nothing left to lose then."""
        try:
            what()
        except (self._ray.exceptions.RayError, FasttrackError):
            return

    def end(self) -> None:
        """Kills what is left, at once: after an interrupt or an error."""
        for lane in self._lanes:
            self._close(lane, in_order=False)


def _fits(node: Mapping[str, Any], needs: Mapping[str, float]) -> bool:
    return all(node["Resources"].get(name, 0.0) >= amount for name, amount in needs.items())
