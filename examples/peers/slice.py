"""A slice of Kimi K3 served by 2, 4 or 8 ranks in stock vLLM, with and without the specialised steps, by turns."""

from __future__ import annotations

import argparse
import json
import math
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

from examples.peers.environment import engine_environment, free_ports, rank_environment
from examples.peers.lost import STEP_LIMIT_S, lose_rank, lose_worker
from examples.peers.place import collect_place, why_not
from examples.peers.plan import DEPLOYED_RANKS, GPUS
from examples.peers.ranks import Ranks, RanksFailed, find_lines, shorten
from examples.slice.__main__ import ARMS, DEPTHS, Process, agreement, layer_times, schedules
from examples.slice.config import write_slice

Arms = dict[tuple[str, int], Ranks]
LOSSES = {"killed": signal.SIGKILL, "stalled": signal.SIGSTOP}
SCHEDULES = ("batch 1", "batch 8", "hand-over", "batch 64")
_LEG_S, _START_S, _SOON_S = 60.0, 210.0, 60.0
_LOSSES_S = 80.0
"""Kept for the ranks that are lost, whatever the legs before take."""
_SAID = (
    *("all-reduce backends", "llreduce is disabled", "Kimi K3 decode", "MoE backend", "GEMM-AR", "GEMM-RS"),
    *("multicast", "GPU KV cache size", "Graph capturing finished"),
)
"""What the record takes over of an engine's log: how its ranks sum, and what serves."""


@dataclass(slots=True)
class Session:
    """A run: legs one after another, each with its own time, each into the record as soon as it is there."""

    out: Path
    deadline: float
    results: dict[str, Any] = field(default_factory=dict)

    def leg(
        self, name: str, engines: Sequence[Ranks], do: Callable[[], Any], limit_s: float = _LEG_S
    ) -> None:
        """Runs one leg; what fails is written and ends nothing else."""
        start = time.monotonic()
        if start >= self.deadline:
            self._failed(name, "the run's time was over")
            return
        for engine in engines:
            engine.deadline = min(self.deadline, start + limit_s)
        try:
            self.keep(name, do())
        except (RuntimeError, OSError, LookupError, ValueError) as error:
            self._failed(name, f"{type(error).__name__}: {error}")
        self.keep("seconds", self.results.get("seconds", {}) | {name: round(time.monotonic() - start, 1)})

    def _failed(self, name: str, why: str) -> None:
        print(f"{name}: {why}", file=sys.stderr, flush=True)
        self.keep("failed", self.results.get("failed", {}) | {name: why})

    def keep(self, name: str, value: Any) -> None:
        """Takes a result into the record, which is whole at any time."""
        self.results[name] = value
        unfinished = self.out.with_name(self.out.name + ".part")
        text = json.dumps(without_nan(self.results), indent=1, allow_nan=False)
        unfinished.write_text(text + "\n", encoding="utf-8")
        unfinished.replace(self.out)


def without_nan(value: Any) -> Any:
    """The same with None in the place of numbers that JSON has not."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {name: without_nan(one) for name, one in value.items()}
    return [without_nan(one) for one in value] if isinstance(value, list | tuple) else value


def wait_until_ready(session: Session, engines: Mapping[str, Ranks]) -> None:
    """Waits for all engines at once; one that does not start is a failed leg of its own.

    One that fails soon is started once more: where many come up at once, one may find no memory for a moment.
    """

    def wait(name: str) -> None:
        engine, start = engines[name], time.monotonic()
        engine.deadline = min(session.deadline, start + _START_S)
        for may_fail in (True, False):
            try:
                ready[name] = engine.answer()["ready"]
                return
            except RuntimeError as error:
                if not may_fail or time.monotonic() > start + _SOON_S:
                    failed[name] = str(error)
                    return
                again[name] = str(error)
                engine.start()

    ready: dict[str, float] = {}
    failed: dict[str, str] = {}
    again: dict[str, str] = {}
    with ThreadPoolExecutor(max(1, len(engines))) as pool:
        list(pool.map(wait, engines))
    session.keep("ready_s", ready)
    session.keep("started_again", again)
    for name, why in failed.items():
        session._failed(f"start of {name}", why)


def measure(
    session: Session,
    arms: Arms,
    batches: Sequence[int],
    rounds: int,
    names: Sequence[str],
    more_batches: Sequence[int] = (),
) -> None:
    """Agreement, the times of a layer and greedy texts of the arms that have started; `more_batches` come last."""

    def able() -> dict[tuple[str, int], Process]:
        return {key: ranks for key, ranks in arms.items() if ranks.trouble is None}

    def both() -> dict[tuple[str, int], Process]:
        if missing := [arm for arm in ARMS if (arm, DEPTHS[0]) not in able()]:
            raise RanksFailed(f"{' and '.join(missing)} does not serve")
        return able()

    def times(batch: int) -> Any:
        row = layer_times(able(), [batch], 1024, rounds)[0]
        if not any(arm in row for arm in ARMS):
            raise RanksFailed("no arm serves in both depths")
        return row

    def compare(name: str) -> Any:
        return agreement(both(), [name])[name]

    every = list(arms.values())
    first, *others = names or ("",)
    if first:
        session.leg(f"agreement, {first}", every, lambda: compare(first))
    for batch in batches:
        session.leg(f"layers, batch {batch}", every, lambda batch=batch: times(batch))  # type: ignore[misc]
    for name in others:
        session.leg(f"agreement, {name}", every, lambda name=name: compare(name))  # type: ignore[misc]
    session.leg("greedy", every, lambda: greedy(both()))
    session.leg("about", every, lambda: {f"{a} {d}": ranks.ask("about") for (a, d), ranks in able().items()})
    for batch in more_batches:
        session.leg(f"layers, batch {batch}", every, lambda batch=batch: times(batch))  # type: ignore[misc]


def greedy(arms: Mapping[tuple[str, int], Process]) -> dict[str, Any]:
    """Free greedy texts of both arms and of stock once more: how many are the same, and where they part."""
    stock, specialised = arms["stock", DEPTHS[0]], arms["specialised", DEPTHS[0]]
    found = {}
    for batch, steps in ((1, 96), (8, 96)):
        reference = stock.ask("greedy", batch=batch, steps=steps)
        found[f"batch {batch}"] = {
            who: first_differences(reference, arm.ask("greedy", batch=batch, steps=steps)["tokens"])
            for who, arm in (("stock_again", stock), ("specialised", specialised))
        }
    return found


def first_differences(reference: Mapping[str, Any], tokens: Sequence[Sequence[int]]) -> dict[str, Any]:
    """Texts against the reference's; where one parts, by how much the reference's choice was ahead there."""
    parted = []
    for request, (ours, theirs) in enumerate(zip(reference["tokens"], tokens, strict=True)):
        pairs = enumerate(zip(ours, theirs, strict=True))
        place = next((place for place, (one, other) in pairs if one != other), None)
        if place is not None:
            parted.append({"request": request, "place": place, "gap": reference["gaps"][request][place]})
    return {
        "requests": len(tokens),
        "tokens": sum(map(len, tokens)),
        "same": len(tokens) - len(parted),
        "parted": parted,
    }


def lose(session: Session, arms: Arms, engines: Mapping[str, Ranks], logs: Mapping[str, Path]) -> None:
    """Ranks lost inside vLLM, by vLLM's own executor, and of those that were launched from outside."""
    for name, engine in engines.items():
        session.leg(
            name,
            [engine],
            lambda name=name, engine=engine: lose_worker(engine, LOSSES[name], 4, logs[name]),  # type: ignore[misc]
            2 * STEP_LIMIT_S + 40,
        )
        engine.end()
    for (name, number), arm in zip(LOSSES.items(), ARMS, strict=True):
        ranks = arms.get((arm, DEPTHS[0]))
        if ranks is not None and ranks.trouble is None:
            session.leg(
                f"{name}, launched from outside",
                [ranks],
                lambda ranks=ranks, number=number: lose_rank(ranks, number, 4, 10.0),  # type: ignore[misc]
            )


def main() -> int:
    """0 when everything was measured, 1 when something failed, 3 when there are too few GPUs."""
    options = _options().parse_args()
    if (missing := why_not(collect_place(), options.ranks)) is not None:
        print(f"not run: {missing}", file=sys.stderr)
        return 3
    options.out.mkdir(parents=True, exist_ok=True)
    session = Session(options.out / "slice.json", time.monotonic() + options.limit)
    session.keep("place", collect_place().model_dump(mode="json"))
    session.keep("ranks", options.ranks)
    everyone: list[Ranks] = []
    logs: list[Path] = []

    def stop(number: int, _frame: FrameType | None) -> None:
        """Told to end, it ends its processes first: whoever waits for an answer of theirs stops waiting."""
        for ranks in everyone:
            ranks.end()
        raise SystemExit(128 + number)

    signal.signal(signal.SIGTERM, stop)
    with tempfile.TemporaryDirectory() as scratch:
        try:
            arms = _start_arms(options, Path(scratch), everyone, logs)
            losing = _start_losing(options, Path(scratch), everyone, logs)
            wait_until_ready(session, {f"{a} {d}": ranks for (a, d), ranks in arms.items()} | losing)
            session.keep("said", {log.stem: find_lines(log, _SAID) for log in logs})
            kept = _LOSSES_S if any(engine.trouble is None for engine in losing.values()) else 0.0
            session.deadline -= kept
            measure(session, arms, options.batches, options.rounds, options.schedules, options.more_batches)
            session.deadline += kept
            losing = {name: engine for name, engine in losing.items() if engine.trouble is None}
            lose(session, arms, losing, {name: options.out / f"{name}.log" for name in losing})
        finally:
            for ranks in everyone:
                ranks.end()
            for log in logs:
                shorten(log)
    return int("failed" in session.results)


def _start_arms(options: argparse.Namespace, scratch: Path, everyone: list[Ranks], logs: list[Path]) -> Arms:
    arms: Arms = {}
    ports = free_ports(len(ARMS) * len(DEPTHS))
    for arm, backend in ARMS.items():
        for depth in DEPTHS:
            # A slice of so many deployed ranks' width, which vLLM cuts among its own.
            folder = write_slice(
                scratch / f"layers{depth}", DEPLOYED_RANKS // options.ranks, depth, options.max_context
            )
            command = _command(folder, backend, options.max_context, options.kv_gib, "external_launcher")
            own = [options.out / f"{arm}-{depth}-rank{rank}.log" for rank in range(options.ranks)]
            logs += own
            port = ports[len(arms)]
            seen = [rank_environment(rank, options.ranks, port) for rank in range(options.ranks)]
            arms[arm, depth] = Ranks([command] * options.ranks, own, seen)
            everyone.append(arms[arm, depth])
    return arms


def _start_losing(
    options: argparse.Namespace, scratch: Path, everyone: list[Ranks], logs: list[Path]
) -> dict[str, Ranks]:
    """An engine for each way to lose a rank, which starts its ranks as a server's engine does."""
    if options.no_losses:
        return {}
    found = {}
    for name in LOSSES:
        folder = write_slice(scratch / "losing", DEPLOYED_RANKS // options.ranks, DEPTHS[0], 4096)
        command = _command(folder, ARMS["specialised"], 4096, 1.0, "mp")
        log = options.out / f"{name}.log"
        logs.append(log)
        found[name] = Ranks([command], [log], [engine_environment(options.ranks, STEP_LIMIT_S)])
        everyone.append(found[name])
    return found


def _command(folder: Path, backend: str, max_context: int, kv_gib: float, executor: str) -> list[str]:
    words = [str(folder), backend, str(max_context), str(kv_gib), executor]
    return [sys.executable, "-m", "examples.peers.slice_rank", *words]


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m examples.peers.slice", description=__doc__)
    parser.add_argument("--ranks", type=int, choices=GPUS, required=True)
    parser.add_argument("--out", type=Path, required=True, help="folder of the record and of the ranks' logs")
    parser.add_argument("--batches", type=int, nargs="*", default=[1, 8, 64])
    parser.add_argument(
        "--more-batches", type=int, nargs="*", default=[], help="timed last, if there is time"
    )
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--schedules", nargs="*", choices=list(schedules()), default=list(SCHEDULES))
    parser.add_argument("--max-context", type=int, default=16384)
    parser.add_argument("--kv-gib", type=float, default=6.0)
    parser.add_argument("--no-losses", action="store_true", help="no rank is killed or held")
    parser.add_argument("--limit", type=float, default=300.0, help="seconds of the whole run")
    return parser


if __name__ == "__main__":
    sys.exit(main())
