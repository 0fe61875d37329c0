"""Serves a rank slice with and without the specialised path on one GPU, by turns, and writes what was measured."""

import argparse
import json
import math
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from examples.slice.agreement import divergences, summary
from examples.slice.config import write_slice

ARMS = {"stock": "auto", "specialised": "latency_specialized"}
DEPTHS = (5, 9)
"""Layers of the two models; the difference holds three KDA layers and one MLA layer, all with experts."""
STEPS = 20
"""Decode steps of a round."""
_BESIDE = 1024
"""Tokens that a request may have beside the longest prompt."""


class Process:
    """An arm in a process of its own."""

    def __init__(self, folder: Path, arm: str, max_context: int, kv_gib: float, log: Path) -> None:
        """Starts it; the log takes what the engine prints."""
        command = [
            sys.executable,
            "-m",
            "examples.slice.arm",
            str(folder),
            ARMS[arm],
            str(max_context),
            str(kv_gib),
        ]
        with log.open("w") as out:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=out, text=True
            )

    def answer(self) -> dict[str, Any]:
        """The next line; raises RuntimeError when the arm has ended."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the arm ended with {self._process.wait()}; its log says why")
        found: dict[str, Any] = json.loads(line)
        return found

    def ask(self, do: str, **arguments: Any) -> dict[str, Any]:
        """Runs one command and returns its answer."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": do, **arguments}) + "\n")
        self._process.stdin.flush()
        return self.answer()

    def end(self) -> None:
        """Ends it."""
        self._process.kill()
        self._process.wait()


def layer_times(
    arms: dict[tuple[str, int], Process], batches: list[int], context: int, rounds: int
) -> list[dict[str, Any]]:
    """Microseconds and kernels of a layer by arm and batch, from the difference of two depths, arms by turns.

    An arm that is not there in both depths is left out, and the ratio with it.
    """
    present = [arm for arm in ARMS if all((arm, depth) in arms for depth in DEPTHS)]
    able = {key: process for key, process in arms.items() if key[0] in present}
    return [_layer_row(able, present, batch, context, rounds) for batch in batches]


def _layer_row(
    arms: dict[tuple[str, int], Process], present: list[str], batch: int, context: int, rounds: int
) -> dict[str, Any]:
    """One batch: prompts are prefilled once, and each round times the next steps of the same requests."""
    seen: dict[tuple[str, int], list[dict[str, Any]]] = {key: [] for key in arms}
    filled = {key: arms[key].ask("fill", batch=batch, context=context, steps=STEPS * rounds) for key in arms}
    for turn in range(rounds):
        for key in sorted(arms, reverse=bool(turn % 2)):
            seen[key].append(arms[key].ask("time", steps=STEPS))
    for process in arms.values():
        process.ask("empty")
    row: dict[str, Any] = {"batch": batch, "context": context}
    for arm in present:
        deep, shallow = seen[arm, DEPTHS[1]], seen[arm, DEPTHS[0]]
        span = DEPTHS[1] - DEPTHS[0]
        row[arm] = {
            "layer_us": [(a["busy_us"] - b["busy_us"]) / span for a, b in zip(deep, shallow, strict=True)],
            "layer_kernels": (deep[0]["kernels"] - shallow[0]["kernels"]) / span,
            "step_busy_us": [a["busy_us"] for a in deep],
            "step_wall_us": [a["wall_us"] for a in deep],
            "first_tokens": [min(filled[arm, DEPTHS[1]]["tokens"]), max(filled[arm, DEPTHS[1]]["tokens"])],
            "names": deep[0]["names"],
        }
    medians = {arm: statistics.median(row[arm]["layer_us"]) for arm in present}
    if len(present) == len(ARMS):
        row["ratio"] = medians["specialised"] / medians["stock"]
    print(json.dumps({k: v for k, v in row.items() if k not in ARMS} | {"medians": medians}), flush=True)
    return row


def prefill_times(
    arms: dict[tuple[str, int], Process], lengths: list[int], times: int
) -> list[dict[str, Any]]:
    """Microseconds of a layer in a step that prefills one prompt, from the difference of two depths."""
    rows = []
    for tokens in lengths:
        seen = {key: arms[key].ask("prefill", tokens=tokens, times=times)["busy_us"] for key in sorted(arms)}
        span = DEPTHS[1] - DEPTHS[0]
        row: dict[str, Any] = {"tokens": tokens}
        for arm in ARMS:
            pairs = zip(seen[arm, DEPTHS[1]], seen[arm, DEPTHS[0]], strict=True)
            row[arm] = {"layer_us": [(deep - shallow) / span for deep, shallow in pairs]}
        rows.append(row)
        print(json.dumps(row), flush=True)
    return rows


def schedules() -> dict[str, list[list[int]]]:
    """Forced texts: every batch bucket, requests that join and leave, and more requests than the path takes."""
    found = {
        f"batch {batch}": [[0, 40 + 7 * row, 11 * row + 2, 12] for row in range(batch)]
        for batch in (1, 2, 3, 4, 8, 16, 32, 64)
    }
    found["hand-over"] = [[5 * row, 30 + 90 * row, 13 * row + 2, 40 - 2 * row] for row in range(12)]
    found["beyond the limit"] = [[row // 10, 20 + row, 11 * row + 2, 24] for row in range(70)]
    return found


def one_by_one(arrivals: list[list[int]]) -> list[list[int]]:
    """The same requests in the same order, each alone in the engine."""
    found, step = [], 0
    for _, prompt, token, count in sorted(arrivals):
        found.append([step, prompt, token, count])
        step += prompt // 4096 + count + 8
    return found


def agreement(arms: dict[tuple[str, int], Process], names: list[str]) -> dict[str, Any]:
    """Divergence of the specialised arm from stock, beside two of stock from itself.

    Once with the same schedule, where stock repeats itself almost to the bit, and once with each request alone, where
    other batches take other kernels: that is how far stock's own roundings reach.
    """
    stock, specialised = arms["stock", DEPTHS[0]], arms["specialised", DEPTHS[0]]
    found = {}
    for name in names:
        arrivals = schedules()[name]
        reference = stock.ask("force", arrivals=arrivals)["logprobs"]
        others = {
            "stock_again": stock.ask("force", arrivals=arrivals),
            "stock_one_by_one": stock.ask("force", arrivals=one_by_one(arrivals)),
            "specialised": specialised.ask("force", arrivals=arrivals),
        }
        found[name] = {
            who: summary(divergences(reference, texts["logprobs"])) for who, texts in others.items()
        }
        print(name, json.dumps(found[name]), flush=True)
    return found


class Record:
    """What has been measured, written anew with each result; says when no part may begin any more."""

    def __init__(self, out: Path, deadline: float) -> None:
        """Into `out`/slice.json; the deadline is one of the monotonic clock."""
        out.mkdir(parents=True, exist_ok=True)
        self._path, self._deadline = out / "slice.json", deadline
        self._results: dict[str, Any] = {}

    def keep(self, name: str, value: Any) -> None:
        """Takes a result."""
        self._results[name] = value
        unfinished = self._path.with_suffix(".part")
        unfinished.write_text(json.dumps(self._results, indent=1) + "\n")
        unfinished.replace(self._path)

    def add(self, name: str, part: str, begin: Callable[[], Any]) -> None:
        """Takes one more result of a list, unless the time is over."""
        if self.has_time(f"{name}, {part}"):
            self.keep(name, [*self._results.get(name, []), begin()])

    def has_time(self, part: str) -> bool:
        """Whether a part may begin; one that may not is named in the record."""
        if time.monotonic() < self._deadline:
            return True
        self.keep("left_out", [*self._results.get("left_out", []), part])
        return False


def measure(record: Record, arms: dict[tuple[str, int], Process], options: argparse.Namespace) -> None:
    """First context, texts, prefill, the other contexts; what the path says of itself is asked for early, too."""

    def about() -> None:
        record.keep("about", {_name(key): process.ask("about") for key, process in arms.items()})

    def layers(batches: list[int], context: int) -> None:
        for batch in batches:
            part = f"batch {batch} of {context}"
            record.add("layers", part, lambda: layer_times(arms, [batch], context, options.rounds)[0])  # noqa: B023

    for context in options.contexts[:1]:
        layers(options.batches, context)
    texts: dict[str, Any] = {}
    for name in options.schedules:
        if record.has_time(f"agreement, {name}"):
            texts |= agreement(arms, [name])
            record.keep("agreement", texts)
    about()
    for tokens in options.prefills:
        record.add("prefill", str(tokens), lambda: prefill_times(arms, [tokens], options.rounds)[0])  # noqa: B023
    for context in options.contexts[1:]:
        layers(options.batches if options.long_batches is None else options.long_batches, context)
    if options.soak_steps and record.has_time("soak"):
        soak = {"batch": 4, "steps": options.soak_steps}
        record.keep("soak", arms["specialised", DEPTHS[0]].ask("soak", **soak))
    about()


def main() -> None:
    """Runs what is asked for; results are written as they are made."""
    parser = argparse.ArgumentParser(prog="python -m examples.slice", description=__doc__)
    parser.add_argument(
        "--tp", type=int, choices=(8, 16), default=8, help="ranks of the deployment that is sliced"
    )
    parser.add_argument("--out", type=Path, required=True, help="folder of results and logs")
    parser.add_argument("--batches", type=int, nargs="*", default=[1, 8, 64])
    parser.add_argument("--contexts", type=int, nargs="*", default=[1024])
    parser.add_argument("--long-batches", type=int, nargs="*", help="of all contexts but the first")
    parser.add_argument("--prefills", type=int, nargs="*", default=[256, 2048, 8000])
    parser.add_argument("--schedules", nargs="*", choices=list(schedules()), default=list(schedules()))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--soak-steps", type=int, default=0)
    parser.add_argument("--max-context", type=int, help="of the engines; by default what the contexts need")
    parser.add_argument("--kv-gib", type=float, default=6.0)
    parser.add_argument("--seconds", type=float, default=math.inf, help="no part begins later than this")
    options = parser.parse_args()
    max_context = options.max_context or max(16384, max(options.contexts, default=0) + _BESIDE)
    record = Record(options.out, time.monotonic() + options.seconds)
    record.keep("options", {**vars(options), "out": None, "seconds": None, "max_context": max_context})
    arms: dict[tuple[str, int], Process] = {}
    with tempfile.TemporaryDirectory() as scratch:
        for arm in ARMS:
            for depth in DEPTHS:
                folder = write_slice(Path(scratch) / f"layers{depth}", options.tp, depth, max_context)
                log = options.out / f"{arm}-{depth}.log"
                arms[arm, depth] = Process(folder, arm, max_context, options.kv_gib, log)
        try:
            record.keep("ready_s", {_name(key): process.answer()["ready"] for key, process in arms.items()})
            measure(record, arms, options)
        finally:
            for process in arms.values():
                process.end()


def _name(key: tuple[str, int]) -> str:
    return f"{key[0]} {key[1]}"


if __name__ == "__main__":
    main()
