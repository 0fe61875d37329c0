"""Times what the tracer adds to a decode step that goes on as the one before, without an engine or a GPU.

    python tools/time_tracer.py [NUM_TURNS]

Made steps of a model runner whose one graph is replayed, in turns: with the tracer, and with it set aside, as in
`fasttrack sweep --preset overhead`. Between two steps other code runs, as much as displaces the tracer's own
from the processor's caches: an engine runs that much Python in a step. `warm` leaves it out. The difference of the
turns' medians is told, in microseconds a step. docs/performance.md says what came of it.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from harness.engine.probe.cuda_graphs import hook_graphs
from harness.engine.trace_settings import DecisionTarget, TraceSettings
from harness.engine.tracer import Tracer

BATCHES = (1, 8, 64)
NUM_TURNS = 100
PER_TURN = 32
"""Steps, as in the overhead preset."""
POINT = DecisionTarget(
    target="path.plan:Planner.plan", value="path", specialized="specialized", reason="reason"
)
CODE = ("path.decode:Decode.run", "engine.model:Model.forward")
RUNNER = "vllm.v1.worker.gpu_model_runner:GPUModelRunner"
NUM_FUNCTIONS = 1500
DISPLACING_BYTES = 4 * 2**20


@dataclass(slots=True)
class Cached:
    """As vLLM's `CachedRequestData`."""

    req_ids: list[str]
    num_computed_tokens: list[int]
    num_output_tokens: list[int]
    resumed_req_ids: set[str] = field(default_factory=set)


@dataclass(slots=True)
class Scheduled:
    """As vLLM's `SchedulerOutput`."""

    scheduled_new_reqs: list[Any]
    scheduled_cached_reqs: Cached
    num_scheduled_tokens: dict[str, int]
    finished_req_ids: set[str] = field(default_factory=set)
    scheduled_spec_decode_tokens: dict[str, list[int]] = field(default_factory=dict)


@dataclass(slots=True)
class New:
    """As vLLM's `NewRequestData`."""

    req_id: str
    prompt_token_ids: list[int]
    num_computed_tokens: int = 0
    sampling_params: Any = None
    prompt_embeds: Any = None


@dataclass(slots=True)
class Output:
    """As vLLM's `ModelRunnerOutput`."""

    sampled_token_ids: list[list[int]]
    req_id_to_index: dict[str, int]


class LateOutput:
    """As vLLM's `AsyncOutput`, which its second model runner gives at every step: fetched by the engine."""

    def __init__(self, output: Output) -> None:
        self.output = output

    def get_output(self) -> Output:
        """The output."""
        return self.output


class Graph:
    """A graph that computes nothing."""

    def capture_begin(self) -> None:
        """Nothing."""

    def capture_end(self) -> None:
        """Nothing."""

    def replay(self) -> None:
        """Nothing."""


@dataclass(slots=True)
class Plan:
    """What a decision point returns."""

    path: str = "specialized"
    reason: str | None = None


class Runner:
    """A model runner whose step replays its graph and hands out one token a request."""

    output: LateOutput

    def __init__(self, tracer: Tracer) -> None:
        self.graph = Graph()
        self.execute = tracer.runner_wrapper(Runner.execute_model, f"{RUNNER}.execute_model")
        self.sample = tracer.runner_wrapper(Runner.sample_tokens, f"{RUNNER}.sample_tokens")
        decide = tracer.steps.decision_wrapper(POINT)(Plan, POINT.target)
        run = tracer.steps.count_wrapper(lambda: None, CODE[0])
        self.graph.capture_begin()
        decide()
        run()
        self.graph.capture_end()

    def execute_model(self, scheduler_output: Scheduled) -> None:
        """Computes."""
        self.graph.replay()
        ids = list(scheduler_output.num_scheduled_tokens)
        self.output = LateOutput(Output([[7] for _ in ids], {name: index for index, name in enumerate(ids)}))

    def sample_tokens(self, _grammar: None) -> LateOutput:
        """Samples."""
        return self.output


def schedules(batch: int) -> Iterator[Scheduled]:
    """A prompt of each request, then one token of each, on and on."""
    ids = [f"batch{batch}-0-deadbeef-{index}r-{index}" for index in range(batch)]
    yield Scheduled(
        scheduled_new_reqs=[New(name, [1] * 32) for name in ids],
        scheduled_cached_reqs=Cached([], [], []),
        num_scheduled_tokens=dict.fromkeys(ids, 32),
    )
    computed = 32
    while True:
        yield Scheduled(
            scheduled_new_reqs=[],
            scheduled_cached_reqs=Cached(list(ids), [computed] * batch, [computed - 31] * batch),
            num_scheduled_tokens=dict.fromkeys(ids, 1),
        )
        computed += 1


def make_other_code() -> Callable[[], None]:
    """What displaces the tracer from the caches."""
    names: dict[str, Any] = {}
    for index in range(NUM_FUNCTIONS):
        exec(
            f"def f{index}(x, table={{'k{index}': {index}}}):\n"
            f"    y = [x + {index}, len(str(x)), table['k{index}']]\n"
            f"    z = {{'a': y, 'b{index}': tuple(y)}}\n"
            f"    return z['a'][0] if y[1] > {index % 7} else sum(z['b{index}'])\n",
            names,
        )
    functions = [names[f"f{index}"] for index in range(NUM_FUNCTIONS)]
    block = bytearray(DISPLACING_BYTES)

    def other_code() -> None:
        for function in functions:
            function(3)
        bytes(block)

    return other_code


def time_steps(folder: Path, batch: int, num_turns: int, between: Callable[[], None]) -> tuple[float, float]:
    """Microseconds of a step in the median turn, traced and with the tracer set aside."""
    settings = TraceSettings(
        nonce="n",
        ledger_dir=folder,
        import_path=folder,
        import_roots=(),
        decisions=(POINT,),
        code_targets=CODE,
    )
    tracer = Tracer(settings)
    tracer.is_worker = True
    seen: dict[bool, list[float]] = {True: [], False: []}
    with hook_graphs(Graph, None, tracer.steps, lambda: 0):
        runner = Runner(tracer)
        source = schedules(batch)
        for turn in range(max(4, num_turns)):
            is_traced = turn % 2 == 0
            tracer.steps.is_aside = not is_traced
            with tracer.steps.held_back():
                taken = sum(time_step(runner, next(source), between) for _ in range(PER_TURN))
            seen[is_traced].append(taken / PER_TURN / 1000)
    return median(seen[True]), median(seen[False])


def time_step(runner: Runner, scheduled: Scheduled, between: Callable[[], None]) -> int:
    """Nanoseconds of one step, which other code precedes."""
    between()
    started = time.perf_counter_ns()
    runner.execute(runner, scheduled)
    runner.sample(runner, None).get_output()
    return time.perf_counter_ns() - started


def main() -> None:
    """Prints a line a batch."""
    num_turns = int(sys.argv[1]) if len(sys.argv) > 1 else NUM_TURNS
    other_code = make_other_code()
    for batch in BATCHES:
        for name, between in (("cold", other_code), ("warm", lambda: None)):
            with tempfile.TemporaryDirectory() as folder:
                traced, aside = time_steps(Path(folder), batch, num_turns, between)
            print(f"batch {batch:2d} {name}: {traced - aside:5.1f} us a step ({traced:.1f} - {aside:.1f})")


if __name__ == "__main__":
    main()
