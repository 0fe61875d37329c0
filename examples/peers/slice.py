"""A slice of Kimi K3 served by 2, 4 or 8 ranks in stock vLLM, with and without the specialised steps, by turns."""

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from examples.peers.place import collect_place, why_not
from examples.peers.plan import DEPLOYED_RANKS, GPUS
from examples.peers.slice_rank import NO_MULTICAST
from examples.slice.__main__ import ARMS, DEPTHS, Process, agreement, layer_times, schedules
from examples.slice.config import write_slice


class Ranks(Process):
    """An arm whose ranks are processes of their own: all get every command, and must answer alike."""

    def __init__(self, commands: Sequence[Sequence[str]], logs: Sequence[Path], port: int) -> None:
        """Starts a process for each command; they meet at the port."""
        self._ranks = []
        for rank, (command, log) in enumerate(zip(commands, logs, strict=True)):
            with log.open("w") as out:
                self._ranks.append(
                    subprocess.Popen(
                        command,
                        stdin=subprocess.PIPE,
                        stdout=subprocess.PIPE,
                        stderr=out,
                        text=True,
                        env={**os.environ, **NO_MULTICAST, **_meeting(rank, len(commands), port)},
                    )
                )

    def answer(self) -> dict[str, Any]:
        """The first rank's next line.

        Raises:
            RuntimeError: a rank has ended, or refused to serve.
            RanksDiffer: log probabilities of the ranks are not the same.
        """
        found = []
        for rank, process in enumerate(self._ranks):
            assert process.stdout is not None
            line = process.stdout.readline()
            if not line:
                raise RuntimeError(f"rank {rank} ended with {process.wait()}; its log says why")
            found.append(json.loads(line))
            if "refused" in found[-1]:
                raise RuntimeError(f"rank {rank} refused: {found[-1]['refused']}")
        differing = [
            rank for rank, one in enumerate(found) if one.get("logprobs") != found[0].get("logprobs")
        ]
        if differing:
            raise RanksDiffer(f"ranks {differing} answered other log probabilities than rank 0")
        return dict(found[0])

    def ask(self, do: str, **arguments: Any) -> dict[str, Any]:
        """Runs one command in all ranks."""
        for process in self._ranks:
            assert process.stdin is not None
            process.stdin.write(json.dumps({"do": do, **arguments}) + "\n")
            process.stdin.flush()
        return self.answer()

    def end(self) -> None:
        """Ends all."""
        for process in self._ranks:
            process.kill()
        for process in self._ranks:
            process.wait()


class RanksDiffer(RuntimeError):
    """Ranks that must have the same bits have not."""


def _meeting(rank: int, count: int, port: int) -> Mapping[str, str]:
    return {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(count),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    }


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def measure(arms: Mapping[tuple[str, int], Ranks], batches: list[int], rounds: int, out: Path) -> None:
    """Starts, agreement and times, each into `out` as soon as it is there; what fails is written and ends nothing."""
    results: dict[str, Any] = {"place": collect_place().model_dump(mode="json")}
    processes: dict[tuple[str, int], Process] = {**arms}
    legs: dict[str, Callable[[], Any]] = {
        "ready_s": lambda: {
            f"{arm} {depth}": ranks.answer()["ready"] for (arm, depth), ranks in arms.items()
        },
        "agreement": lambda: agreement(processes, [*schedules()]),
        "layers": lambda: layer_times(processes, batches, 1024, rounds),
        "about": lambda: {f"{arm} {depth}": ranks.ask("about") for (arm, depth), ranks in arms.items()},
    }
    for name, leg in legs.items():
        try:
            results[name] = leg()
        except (RuntimeError, OSError) as error:
            results.setdefault("failed", {})[name] = f"{type(error).__name__}: {error}"
            print(f"{name}: {error}", file=sys.stderr)
        out.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
        if name == "ready_s" and "failed" in results:
            break


def main() -> int:
    """0 when everything was measured, 1 when something failed, 3 when there are too few GPUs."""
    parser = argparse.ArgumentParser(prog="python -m examples.peers.slice", description=__doc__)
    parser.add_argument("--ranks", type=int, choices=GPUS, required=True)
    parser.add_argument("--out", type=Path, required=True, help="folder of the record and of the ranks' logs")
    parser.add_argument("--batches", type=int, nargs="*", default=[1, 8, 64])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--max-context", type=int, default=16384)
    parser.add_argument("--kv-gib", type=float, default=6.0)
    options = parser.parse_args()
    if (missing := why_not(collect_place(), options.ranks)) is not None:
        print(f"not run: {missing}", file=sys.stderr)
        return 3
    options.out.mkdir(parents=True, exist_ok=True)
    arms: dict[tuple[str, int], Ranks] = {}
    with tempfile.TemporaryDirectory() as scratch:
        try:
            for arm, backend in ARMS.items():
                for depth in DEPTHS:
                    # A slice of so many deployed ranks' width, which vLLM cuts among its own.
                    folder = write_slice(
                        Path(scratch) / f"layers{depth}",
                        DEPLOYED_RANKS // options.ranks,
                        depth,
                        options.max_context,
                    )
                    words = [str(folder), backend, str(options.max_context), str(options.kv_gib)]
                    command = [sys.executable, "-m", "examples.peers.slice_rank", *words]
                    logs = [options.out / f"{arm}-{depth}-rank{rank}.log" for rank in range(options.ranks)]
                    arms[arm, depth] = Ranks([command] * options.ranks, logs, _free_port())
            measure(arms, options.batches, options.rounds, options.out / "slice.json")
        finally:
            for ranks in arms.values():
                ranks.end()
    return int("failed" in json.loads((options.out / "slice.json").read_text(encoding="utf-8")))


if __name__ == "__main__":
    sys.exit(main())
