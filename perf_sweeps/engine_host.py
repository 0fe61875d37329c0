"""Arms as real vLLM servers on this machine, visited in turn; the ledger is the second account of each visit."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.engine.arm_spec import ArmSpec
from harness.engine.client import CompletionClient
from harness.engine.ledger_reader import read_ledger
from harness.engine.server import ArmServer, start_together
from harness.model.completion import CompletionRequest
from harness.model.errors import EngineError
from harness.model.evaluation import SuiteItem
from harness.model.ledger import CodeTargets, LedgerRow
from harness.model.words import Arm
from perf_sweeps.agent_trace import AgentMix, Conversation, fit_trace, generate_trace
from perf_sweeps.block import BlockTask, MachineState, Visit
from perf_sweeps.cell import Cell, Workload
from perf_sweeps.decode_steps import VisitSteps, read_visit
from perf_sweeps.machine_load import LoadMeter
from perf_sweeps.prompts import PromptSource
from perf_sweeps.replay import ReplayResult, replay

MIXED_ROUNDS = 3
"""How often a mixed visit fills the batch: prompts of later rounds meet decoding requests."""
AGENT_TURNS = 6
LEDGER_WAIT_S = 5.0


class LedgerTail:
    """Reads a ledger's rows as they are appended."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._read_up_to: dict[Path, int] = {}

    def new_rows(self) -> tuple[LedgerRow, ...]:
        """Rows that were written since the last call."""
        rows = []
        for path in sorted(self._folder.glob("*.jsonl")):
            with path.open("rb") as file:
                file.seek(self._read_up_to.get(path, 0))
                whole = file.read().rpartition(b"\n")[0]
            self._read_up_to[path] = self._read_up_to.get(path, 0) + len(whole) + bool(whole)
            records = (json.loads(line) for line in whole.split(b"\n") if line)
            rows += [LedgerRow.model_validate(_fields(r)) for r in records if r.get("kind") == "row"]
        return tuple(rows)


def _fields(record: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in record.items() if name != "kind"}


class EngineHost:
    """The servers of all arms; one runs at a time, the others are stopped where they are."""

    def __init__(
        self,
        specs: Mapping[Arm, ArmSpec],
        *,
        passages: Sequence[str],
        seed: int,
        targets: CodeTargets,
        hardware: str,
        host: str,
    ) -> None:
        """Starts all servers; raises `EngineError` of the first that did not start, with nothing left running."""
        self.hardware, self.host = hardware, host
        self._targets = targets
        self._servers = {arm: ArmServer(spec) for arm, spec in specs.items()}
        self._clients: dict[Arm, CompletionClient] = {}
        try:
            for error in start_together(list(self._servers.values())):
                if error is not None:
                    raise error
            self._clients = {arm: CompletionClient(server) for arm, server in self._servers.items()}
            for arm, spec in specs.items():
                _require_sound(arm, spec)
            self._prompts = PromptSource(
                self._clients[Arm.BASELINE].tokenize, passages, seed=seed, vocabulary=None
            )
        except BaseException:
            self.close()
            raise
        self._tails = {arm: LedgerTail(spec.ledger_dir) for arm, spec in specs.items()}
        self._awake: Arm | None = None
        self._warm: set[tuple[str, Arm]] = set()

    def visit(self, task: BlockTask, arm: Arm, position: int) -> Visit:
        """One turn of an arm, after a turn that is not recorded where the arm has not served the cell yet."""
        self._wake(arm)
        if (task.cell.name, arm) not in self._warm:
            self._turn(task, arm, "warm", rounds=1)
            self._warm.add((task.cell.name, arm))
        self._servers[arm].reset_prefix_cache()
        self._tails[arm].new_rows()
        meter, started = LoadMeter(), time.monotonic()
        turn = self._turn(task, arm, f"p{position}", rounds=_rounds(task.cell))
        wall_s, foreign = time.monotonic() - started, meter.foreign_share()
        machine = MachineState(foreign_cpu_share=foreign, num_cores=os.cpu_count())
        if isinstance(turn, ReplayResult):
            answered = [(t.request_id, t.num_output_tokens) for t in turn.turns]
            steps = self._account(arm, answered, task.cell)
            return describe_replay(arm, position, turn, steps, wall_s=wall_s, machine=machine)
        steps = self._account(arm, [(i.request_id, i.num_received_tokens) for i in turn], task.cell)
        return describe_visit(task.cell, arm, position, turn, steps, wall_s=wall_s, machine=machine)

    def _turn(
        self, task: BlockTask, arm: Arm, turn: str, *, rounds: int
    ) -> tuple[SuiteItem, ...] | ReplayResult:
        if task.cell.workload is not Workload.AGENT:
            return self._serve(task, arm, turn, rounds=range(rounds))
        cell = task.cell
        return replay(
            trace_of(cell, f"{task.seed}/{task.index}"),
            self._clients[arm],
            lambda name, count: self._prompts.stretch(f"{cell.name}/{task.index}/{name}", count),
            concurrency=cell.batch,
            suite=f"{cell.name}/{task.index}/{turn}",
        )

    def _serve(self, task: BlockTask, arm: Arm, turn: str, *, rounds: Sequence[int]) -> tuple[SuiteItem, ...]:
        """All requests of a visit, `batch` of them in flight."""
        cell = task.cell
        prompts = [p for round_ in rounds for p in self._prompts.of(cell, task.index, round_)]
        requests = [
            CompletionRequest(
                item=f"r{index}",
                prompt_token_ids=prompt,
                max_tokens=cell.output_len,
                ignore_eos=True,
                stream=True,
            )
            for index, prompt in enumerate(prompts)
        ]
        suite = f"{cell.name}/{task.index}/{turn}"
        return self._clients[arm].complete_many(requests, concurrency=cell.batch, suite=suite)

    def _account(self, arm: Arm, answered: Sequence[tuple[str, int]], cell: Cell) -> VisitSteps:
        """The ledger's account of requests and their tokens, once it holds as many, or does not after a while."""
        ids, wanted = [request_id for request_id, _ in answered], sum(count for _, count in answered)
        deadline, rows = time.monotonic() + LEDGER_WAIT_S, list(self._tails[arm].new_rows())
        while True:
            steps = read_visit(rows, ids, batch=cell.batch, targets=self._targets)
            if steps.num_tokens >= wanted or time.monotonic() > deadline:
                return steps
            time.sleep(0.02)
            rows += self._tails[arm].new_rows()

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
        """Ends every server: nothing of it is needed any more."""
        for client in self._clients.values():
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
    )
    return fit_trace(generate_trace(mix, seed=seed), cell.context)


def _rounds(cell: Cell) -> int:
    return MIXED_ROUNDS if cell.workload is Workload.MIXED else 1


def _require_sound(arm: Arm, spec: ArmSpec) -> None:
    """Raises when the arm's tracer did not show that it is alive: its ledger would count for nothing."""
    problems = [p for p in read_ledger(spec.ledger_dir, spec.nonce).problems if "no row" not in p]
    if problems:
        raise EngineError("tracer", f"{arm}: {problems[0]}")


def describe_visit(
    cell: Cell,
    arm: Arm,
    position: int,
    items: Sequence[SuiteItem],
    steps: VisitSteps,
    *,
    wall_s: float,
    machine: MachineState,
) -> Visit:
    """The visit from the client's items and the engine's account. `duration_s` is the clients', `wall_s` the host's.

    A request is answered when it gave a token and no error.
    """
    answered = [item for item in items if item.token_ids and not item.error]
    input_lens = tuple(item.num_prompt_tokens for item in answered)
    is_spread = cell.workload is Workload.MIXED or len(answered) < len(items)
    last_ms = max((item.token_times_ms[-1] for item in answered if item.token_times_ms), default=0.0)
    return Visit(
        arm=arm,
        position=position,
        # Requests that are sent one after the other share no start, so that only the host's clock spans them.
        duration_s=wall_s if is_spread or not last_ms else last_ms / 1000,
        wall_s=wall_s,
        num_asked=len(items),
        num_answered=len(answered),
        num_failed=len(items) - len(answered),
        input_lens=input_lens,
        output_lens=tuple(len(item.token_ids) for item in answered),
        ttfts_ms=tuple(item.token_times_ms[0] for item in answered if item.token_times_ms),
        decode_step_ms=steps.decode_step_ms,
        acceptance_length=steps.acceptance_length if cell.workload is Workload.SPECULATIVE else None,
        num_cached_tokens=max(0, sum(input_lens) - steps.num_prefill_tokens),
        counted_tokens=steps.num_tokens,
        specialized_share=steps.specialized_share,
        errors=tuple(dict.fromkeys(item.error.splitlines()[0][:200] for item in items if item.error))[:5],
        machine=machine,
    )


def describe_replay(
    arm: Arm,
    position: int,
    result: ReplayResult,
    steps: VisitSteps,
    *,
    wall_s: float,
    machine: MachineState,
) -> Visit:
    """The visit of an agent cell: turns in place of requests, those that were never sent among the asked."""
    answered = [t for t in result.turns if not t.is_dropped]
    input_lens = tuple(t.num_prompt_tokens for t in answered)
    return Visit(
        arm=arm,
        position=position,
        duration_s=result.wall_s,
        wall_s=wall_s,
        num_asked=result.num_turns,
        num_answered=len(answered),
        num_failed=result.num_dropped,
        num_truncated=result.num_truncated,
        input_lens=input_lens,
        output_lens=tuple(t.num_output_tokens for t in answered),
        ttfts_ms=tuple(t.ttft_ms for t in answered if t.ttft_ms is not None),
        turn_token_ms=tuple(t.token_ms for t in answered if t.token_ms is not None),
        num_cached_tokens=max(0, sum(input_lens) - steps.num_prefill_tokens),
        counted_tokens=steps.num_tokens,
        specialized_share=steps.specialized_share,
        errors=tuple(dict.fromkeys(t.error.splitlines()[0] for t in result.turns if t.error))[:5],
        machine=machine,
    )
