"""Arms as real vLLM servers on this machine, visited in turn; the ledger is the second account of each visit."""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from harness.engine.arm_spec import ArmSpec
from harness.engine.block_server import BlockServer
from harness.engine.client import CompletionClient
from harness.engine.ledger_reader import read_ledger
from harness.engine.server import ArmServer, start_together
from harness.model.completion import CompletionRequest
from harness.model.errors import EngineError
from harness.model.ledger import CodeTargets
from harness.model.record import Record
from harness.model.step_kernels import StepKernels
from harness.model.words import Arm
from perf_sweeps.agent_trace import AgentMix, Conversation, fit_trace, generate_trace
from perf_sweeps.bench_driver import BenchDriver
from perf_sweeps.bench_result import bench_arguments
from perf_sweeps.block import (
    BlockTask,
    ExpertCounts,
    LoadGenerator,
    MachineState,
    OpenLoopCheck,
    Visit,
)
from perf_sweeps.cell import Cell, Workload
from perf_sweeps.gpu_sampler import GpuSampler, Observe
from perf_sweeps.ledger_tail import LedgerTail
from perf_sweeps.machine_load import LoadMeter
from perf_sweeps.open_loop import check_open_loop
from perf_sweeps.prompts import PromptSource
from perf_sweeps.replay import replay
from perf_sweeps.turns import BenchTurn, ClientTurn, ReplayTurn, Turn, VisitFrame

MIXED_ROUNDS = 3
"""How often a mixed visit fills the batch: prompts of later rounds meet decoding requests."""
_RPC = {"experts": "fasttrack_experts", "kernels": "fasttrack_profile"}
"""What a worker is asked for a visit's field."""
AGENT_TURNS = 6
AGENT_PAUSE_S = 0.3
"""Mean of a generated trace's pauses: shorter than a tool takes, since a paused conversation measures nothing."""


class EngineHost:
    """The servers of all arms; one runs at a time, the others are stopped where they are.

    An arm is served by an API server, or by a process that is given its requests directly; only the first replays
    conversations and is asked by `vllm bench serve`.
    """

    def __init__(
        self,
        servers: Mapping[Arm, ArmServer | BlockServer],
        *,
        passages: Sequence[str],
        seed: int,
        targets: CodeTargets,
        hardware: str,
        host: str,
        load: LoadGenerator = "client",
        trace: Sequence[Conversation] = (),
        observe: Observe = lambda: None,
        times_kernels: bool = False,
        gpu_topology: str = "",
    ) -> None:
        """Starts all servers; raises `EngineError` of the first that did not start, with nothing left running.

        `trace` is what agent cells replay; where there is none they generate theirs. `observe` reads the GPU.
        `times_kernels` profiles decode steps of each cell's first turn.
        """
        self.hardware, self.host, self.gpu_topology = hardware, host, gpu_topology
        self._targets, self._trace, self._seed = targets, tuple(trace), seed
        self._observe, self._times_kernels = observe, times_kernels
        self._servers = dict(servers)
        specs = {arm: server.spec for arm, server in servers.items()}
        self._clients: dict[Arm, CompletionClient | BlockServer] = {}
        self._bench: BenchDriver | None = None
        self._bench_folder = tempfile.TemporaryDirectory(prefix="fasttrack-bench-")
        try:
            for error in start_together(list(self._servers.values())):
                if error is not None:
                    raise error
            self._clients = {
                arm: CompletionClient(server) if isinstance(server, ArmServer) else server
                for arm, server in self._servers.items()
            }
            for arm, spec in specs.items():
                require_sound(arm, spec)
            self._awake: Arm | None = None
            self._prompts = PromptSource(
                lambda text: self._reader.tokenize(text),
                passages,
                seed=seed,
                vocabulary=vocabulary_of(specs[Arm.BASELINE].model_dir),
                detokenize=lambda tokens: self._over_http(self._awake or Arm.BASELINE)[1].detokenize(tokens),
            )
        except BaseException:
            self.close()
            raise
        if load == "vllm-bench":
            self._bench = BenchDriver(Path(self._bench_folder.name))
        self._tails = {arm: LedgerTail(spec.ledger_dir, spec.num_ranks) for arm, spec in specs.items()}
        self._warm: set[tuple[str, Arm]] = set()
        self._num_bench_runs = 0

    @property
    def _reader(self) -> CompletionClient | BlockServer:
        """Of the arm that is awake: a stopped server answers nothing, and all have one tokenizer."""
        return self._clients[self._awake or Arm.BASELINE]

    def visit(self, task: BlockTask, arm: Arm, position: int) -> Visit:
        """One turn of an arm, after a turn that is not recorded where the arm has not served the cell yet."""
        self._wake(arm)
        is_first = (task.cell.name, arm) not in self._warm
        seen = self._warm_up(task, arm) if is_first else {}
        self._forget(arm)
        with GpuSampler(self._observe) as sampler:
            meter, started = LoadMeter(), time.monotonic()
            turn = self._turn(task, arm, f"p{position}", rounds=_rounds(task.cell))
            wall_s, share, foreign_s = (
                time.monotonic() - started,
                meter.foreign_share(),
                meter.foreign_cpu_s(),
            )
        machine = MachineState(
            foreign_cpu_share=share, foreign_cpu_s=foreign_s, num_cores=os.cpu_count()
        ).model_copy(update=sampler.state())
        tail = self._tails[arm]
        steps = tail.account(turn.answered, batch=task.cell.batch, targets=self._targets)
        frame = VisitFrame(cell=task.cell, arm=arm, position=position, wall_s=wall_s, machine=machine)
        visit = turn.visit(frame, steps).model_copy(update=seen)
        if is_first and isinstance(turn, BenchTurn):
            return visit.model_copy(update={"open_loop": self._open_loop(task, arm, visit.duration_s)})
        return visit

    def _warm_up(self, task: BlockTask, arm: Arm) -> dict[str, Record]:
        """The cell's first turn of the arm, which is not timed, and what was to be seen in it."""
        server = self._servers[arm]
        asked: dict[str, type[Record]] = {"experts": ExpertCounts} if server.spec.routers else {}
        asked |= {"kernels": StepKernels} if self._times_kernels else {}
        for name in asked:
            server.rpc(_RPC[name], "start")
        self._turn(task, arm, "warm", rounds=1)
        self._warm.add((task.cell.name, arm))
        return {name: kind.model_validate(server.rpc(_RPC[name], "stop")[0]) for name, kind in asked.items()}

    def _turn(self, task: BlockTask, arm: Arm, turn: str, *, rounds: int) -> Turn:
        if task.cell.workload is Workload.AGENT:
            return self._replay(task, arm, turn)
        if self._bench is not None:
            return self._run_bench(self._bench, task, arm, rounds)
        requests, suite = self._requests(task, rounds), f"{task.cell.name}/{task.index}/{turn}"
        items = self._clients[arm].complete_many(requests, concurrency=task.cell.batch, suite=suite)
        return ClientTurn(items)

    def _replay(self, task: BlockTask, arm: Arm, turn: str) -> Turn:
        cell = task.cell
        result = replay(
            self._trace or trace_of(cell, f"{task.seed}/{task.index}"),
            self._over_http(arm)[1],
            lambda name, count: self._prompts.stretch(f"{cell.name}/{task.index}/{name}", count),
            concurrency=cell.batch,
            suite=f"{cell.name}/{task.index}/{turn}",
        )
        return ReplayTurn(result)

    def _run_bench(self, bench: BenchDriver, task: BlockTask, arm: Arm, rounds: int) -> Turn:
        """All requests of a visit from `vllm bench serve`, `batch` of them in flight."""
        cell, (server, _) = task.cell, self._over_http(arm)
        prompts = [p for round_ in range(rounds) for p in self._prompts.texts(cell, task.index, round_)]
        self._num_bench_runs += 1
        prefix = f"bench-{server.spec.nonce[:8]}-{self._num_bench_runs}r"
        arguments = bench_arguments(
            base_url=server.base_url,
            model=server.spec.served_model_name,
            tokenizer=str(server.spec.model_dir),
            num_prompts=len(prompts),
            concurrency=cell.batch,
            output_len=cell.output_len,
            seed=self._seed,
            request_ids=prefix,
        )
        text = bench.run(arguments, prompts)
        server.check()
        ids = tuple(f"{prefix}{index}" for index in range(len(prompts)))
        return BenchTurn(text=text, request_ids=ids, output_len=cell.output_len)

    def _open_loop(self, task: BlockTask, arm: Arm, duration_s: float) -> OpenLoopCheck:
        """The visit's work once more, from the harness's own client at the pace that the load generator reported."""
        self._forget(arm)
        rounds = _rounds(task.cell)
        return check_open_loop(
            self._over_http(arm)[1],
            self._requests(task, rounds),
            spread_s=duration_s if rounds > 1 else 0.0,
            suite=f"{task.cell.name}/{task.index}/open",
        )

    def _requests(self, task: BlockTask, rounds: int) -> list[CompletionRequest]:
        cell = task.cell
        prompts = [p for round_ in range(rounds) for p in self._prompts.of(cell, task.index, round_)]
        return [
            CompletionRequest(
                item=f"r{index}",
                prompt_token_ids=prompt,
                max_tokens=cell.output_len,
                ignore_eos=True,
                stream=True,
            )
            for index, prompt in enumerate(prompts)
        ]

    def _over_http(self, arm: Arm) -> tuple[ArmServer, CompletionClient]:
        """The arm's API server and its client; raises `EngineError` where it has none."""
        server, client = self._servers[arm], self._clients[arm]
        if isinstance(server, ArmServer) and isinstance(client, CompletionClient):
            return server, client
        message = f"{arm} has no API server here, which conversations and `vllm bench serve` need."
        raise EngineError("no-api-server", message)

    def _forget(self, arm: Arm) -> None:
        """Empties the prefix cache, and passes over what the ledger holds of earlier requests."""
        self._servers[arm].reset_prefix_cache()
        self._tails[arm].skip()

    def _wake(self, arm: Arm) -> None:
        if self._awake is arm:
            return
        for other, server in self._servers.items():
            if other is not arm and (self._awake is None or other is self._awake):
                server.pause()
        if self._awake is not None:
            self._servers[arm].resume()
        self._awake = arm

    def close(self) -> None:
        """Ends every server and the load generator: nothing of them is needed any more."""
        if self._bench is not None:
            self._bench.close()
        self._bench_folder.cleanup()
        for client in self._clients.values():
            if isinstance(client, CompletionClient):
                client.close()
        for server in self._servers.values():
            server.kill()


def trace_of(cell: Cell, seed: str) -> tuple[Conversation, ...]:
    """Conversations of an agent cell: `batch` main ones that share half of the cell's context as a prefix."""
    mix = AgentMix(
        num_conversations=cell.batch,
        num_turns=AGENT_TURNS,
        prefix_tokens=cell.input_len // 2,
        mean_added_tokens=max(1, cell.input_len // (4 * AGENT_TURNS)),
        mean_output_tokens=max(1, cell.output_len // 2),
        mean_pause_s=AGENT_PAUSE_S,
    )
    return fit_trace(generate_trace(mix, seed=seed), cell.context)


def _rounds(cell: Cell) -> int:
    return MIXED_ROUNDS if cell.workload is Workload.MIXED else 1


def vocabulary_of(model_dir: Path) -> int | None:
    """How many token ids the model's configuration names; None where it names none."""
    try:
        config = json.loads((model_dir / "config.json").read_text("utf-8"))
    except (OSError, ValueError):
        return None
    count = config.get("vocab_size", config.get("text_config", {}).get("vocab_size"))
    return count if isinstance(count, int) else None


def require_sound(arm: Arm, spec: ArmSpec) -> None:
    """Raises when the arm's tracer did not show that it is alive: its ledger would count for nothing."""
    problems = [
        p for p in read_ledger(spec.ledger_dir, spec.nonce, spec.num_ranks).problems if "no row" not in p
    ]
    if problems:
        raise EngineError("tracer", f"{arm}: {problems[0]}")
