"""What came of one turn of an arm, by who asked (client, replay, `vllm bench serve`), and the visit it makes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from harness.model.evaluation import SuiteItem
from harness.model.words import Arm
from perf_sweeps.bench_result import parse_bench_result
from perf_sweeps.block import MachineState, Visit
from perf_sweeps.cell import Cell, Workload
from perf_sweeps.decode_steps import VisitSteps
from perf_sweeps.replay import ReplayResult


@dataclass(frozen=True, slots=True, kw_only=True)
class VisitFrame:
    """What is known of a visit beside the answers and the engine's account."""

    cell: Cell
    arm: Arm
    position: int
    wall_s: float
    """The harness's clock around the turn."""
    machine: MachineState


class Turn(Protocol):
    """All answers of one turn."""

    @property
    def answered(self) -> Sequence[tuple[str, int]]:
        """The id that the client sent with each request, and how many tokens it got."""
        ...

    def visit(self, frame: VisitFrame, steps: VisitSteps | None) -> Visit:
        """The visit, with the engine's account where there is one; raises `EvidenceError` for a result of no use."""
        ...


def _by_engine(cell: Cell, steps: VisitSteps | None, input_lens: Sequence[int]) -> dict[str, object]:
    """The fields of a visit that the ledger fills; none where the arm keeps none."""
    if steps is None:
        return {}
    return {
        "decode_step_ms": steps.decode_step_ms if cell.workload is not Workload.AGENT else None,
        "acceptance_length": steps.acceptance_length if cell.workload is Workload.SPECULATIVE else None,
        "num_cached_tokens": max(0, sum(input_lens) - steps.num_prefill_tokens),
        "counted_tokens": steps.num_tokens,
        "specialized_share": steps.specialized_share,
        "fallbacks": dict(steps.fallbacks),
        "num_ranks": steps.num_ranks,
        "rank_difference": steps.rank_difference,
    }


def _some(errors: Iterable[str]) -> tuple[str, ...]:
    """The first lines of the first five different errors."""
    return tuple(dict.fromkeys(error.splitlines()[0][:200] for error in errors if error))[:5]


@dataclass(frozen=True, slots=True)
class ClientTurn:
    """Answers to the harness's own client. A request is answered when it gave a token and no error."""

    items: Sequence[SuiteItem]

    @property
    def answered(self) -> Sequence[tuple[str, int]]:
        """See `Turn`."""
        return [(item.request_id, item.num_received_tokens) for item in self.items]

    def visit(self, frame: VisitFrame, steps: VisitSteps | None) -> Visit:
        """See `Turn`. `duration_s` is the clients', `wall_s` the host's."""
        items, cell = self.items, frame.cell
        answered = [item for item in items if item.token_ids and not item.error]
        input_lens = tuple(item.num_prompt_tokens for item in answered)
        is_spread = cell.workload is Workload.MIXED or len(answered) < len(items)
        last_ms = max((item.token_times_ms[-1] for item in answered if item.token_times_ms), default=0.0)
        return Visit(
            arm=frame.arm,
            position=frame.position,
            # Requests that are sent one after the other share no start, so that only the host's clock spans them.
            duration_s=frame.wall_s if is_spread or not last_ms else last_ms / 1000,
            wall_s=frame.wall_s,
            num_asked=len(items),
            num_answered=len(answered),
            num_failed=len(items) - len(answered),
            input_lens=input_lens,
            output_lens=tuple(len(item.token_ids) for item in answered),
            ttfts_ms=tuple(item.token_times_ms[0] for item in answered if item.token_times_ms),
            errors=_some(item.error for item in items),
            machine=frame.machine,
        ).model_copy(update=_by_engine(cell, steps, input_lens))


@dataclass(frozen=True, slots=True)
class ReplayTurn:
    """A replay of conversations: turns in place of requests, those that were never sent among the asked."""

    result: ReplayResult

    @property
    def answered(self) -> Sequence[tuple[str, int]]:
        """See `Turn`."""
        return [(t.request_id, t.num_output_tokens) for t in self.result.turns]

    def visit(self, frame: VisitFrame, steps: VisitSteps | None) -> Visit:
        """See `Turn`."""
        result = self.result
        answered = [t for t in result.turns if not t.is_dropped]
        input_lens = tuple(t.num_prompt_tokens for t in answered)
        return Visit(
            arm=frame.arm,
            position=frame.position,
            duration_s=result.wall_s,
            wall_s=frame.wall_s,
            num_asked=result.num_turns,
            num_answered=len(answered),
            num_failed=result.num_dropped,
            num_truncated=result.num_truncated,
            input_lens=input_lens,
            output_lens=tuple(t.num_output_tokens for t in answered),
            ttfts_ms=tuple(t.ttft_ms for t in answered if t.ttft_ms is not None),
            turn_token_ms=tuple(t.token_ms for t in answered if t.token_ms is not None),
            turns=result.turns,
            errors=_some(t.error for t in result.turns),
            machine=frame.machine,
        ).model_copy(update=_by_engine(frame.cell, steps, input_lens))


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchTurn:
    """A result of `vllm bench serve`: untrusted until it agrees with the engine's account and the host's clock."""

    text: str
    request_ids: Sequence[str]
    """Of all requests that were asked for; the ledger has them by these names."""
    output_len: int

    @property
    def answered(self) -> Sequence[tuple[str, int]]:
        """See `Turn`; what each should have got."""
        return [(request_id, self.output_len) for request_id in self.request_ids]

    def visit(self, frame: VisitFrame, steps: VisitSteps | None) -> Visit:
        """See `Turn`."""
        visit = parse_bench_result(
            self.text,
            arm=frame.arm,
            position=frame.position,
            num_asked=len(self.request_ids),
            wall_s=frame.wall_s,
            machine=frame.machine,
        )
        span = {"engine_s": steps.span_s if steps else None}
        return visit.model_copy(update=_by_engine(frame.cell, steps, visit.input_lens) | span)
