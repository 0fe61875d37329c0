"""Replays a trace of conversations against a server and says what became of every turn."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Semaphore

from harness.model.completion import Completer, CompletionRequest
from harness.model.record import Record
from harness.stats.order_statistics import min_n_for_upper_bound, sample_quantile
from perf_sweeps.agent_trace import Conversation, Turn

TokenSource = Callable[[str, int], tuple[int, ...]]
"""(a name, how many) to tokens; the same name gives the same tokens."""


class TurnResult(Record):
    """What became of one turn."""

    conversation: str
    turn: int
    started_s: float
    """Since the start of the replay."""
    ttft_ms: float | None = None
    token_ms: float | None = None
    """Mean time between the answer's tokens; None for answers of one token."""
    num_output_tokens: int = 0
    wanted_tokens: int
    num_prompt_tokens: int = 0
    request_id: str = ""
    error: str = ""
    """Why there is no answer: untrusted text."""

    @property
    def is_dropped(self) -> bool:
        """Whether the turn has no answer."""
        return bool(self.error) or self.num_output_tokens == 0

    @property
    def is_truncated(self) -> bool:
        """Whether the answer is shorter than the trace's."""
        return not self.is_dropped and self.num_output_tokens < self.wanted_tokens


class ReplayResult(Record):
    """A whole replay, turn by turn: the timeline of each conversation."""

    turns: tuple[TurnResult, ...]
    num_turns: int
    """Of the trace; turns after a dropped one are dropped with it."""
    wall_s: float

    @property
    def num_dropped(self) -> int:
        """Turns without an answer, those that were never sent included."""
        return self.num_turns - sum(not t.is_dropped for t in self.turns)

    @property
    def num_truncated(self) -> int:
        """Turns with a shorter answer than the trace's."""
        return sum(t.is_truncated for t in self.turns)

    def interactivity(self, share: float) -> float | None:
        """Tokens a second and user that this share of the turns reaches or exceeds; None with too few turns.

        P90 interactivity is the pace of the slowest tenth's edge: the .9 quantile of the time between tokens, inverted.
        """
        times = [t.token_ms for t in self.turns if t.token_ms is not None and not t.is_dropped]
        if len(times) < min_n_for_upper_bound(share, alpha=0.05):
            return None
        return 1000 / sample_quantile(times, share)


def replay(
    trace: Sequence[Conversation],
    completer: Completer,
    tokens: TokenSource,
    *,
    concurrency: int,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
    suite: str = "replay",
) -> ReplayResult:
    """Sends every conversation, turn by turn, at most `concurrency` requests at a time.

    A conversation starts at its time of the trace. The context of a turn is the prefix, all that was added before and
    the answers that the server really gave. After a turn without an answer the conversation ends: the rest counts as
    dropped.
    """
    started, room = clock(), Semaphore(concurrency)

    def run(conversation: Conversation) -> list[TurnResult]:
        sleep(max(0.0, conversation.start_s - (clock() - started)))
        name = conversation.prefix or conversation.id
        context = (
            list(tokens(f"prefix/{name}", conversation.prefix_tokens)) if conversation.prefix_tokens else []
        )
        found = []
        for index, turn in enumerate(conversation.turns):
            sleep(turn.pause_s)
            context += tokens(f"{conversation.id}/{index}", turn.added_tokens)
            with room:
                at_s = clock() - started
                result, answer = _ask(completer, conversation.id, index, turn, context, at_s, suite)
            found.append(result)
            if result.is_dropped:
                break
            context += answer
        return found

    with ThreadPoolExecutor(len(trace), thread_name_prefix="replay") as pool:
        results = [t for turns in pool.map(run, trace) for t in turns]
    return ReplayResult(
        turns=tuple(results), num_turns=sum(len(c.turns) for c in trace), wall_s=clock() - started
    )


def _ask(
    completer: Completer,
    conversation: str,
    index: int,
    turn: Turn,
    context: Iterable[int],
    at_s: float,
    suite: str,
) -> tuple[TurnResult, tuple[int, ...]]:
    request = CompletionRequest(
        item=f"{conversation}/{index}",
        prompt_token_ids=tuple(context),
        max_tokens=turn.output_tokens,
        ignore_eos=True,
        stream=True,
    )
    item = completer.complete_many([request], concurrency=1, suite=suite)[0]
    times = item.token_times_ms
    result = TurnResult(
        conversation=conversation,
        turn=index,
        started_s=at_s,
        ttft_ms=times[0] if times else None,
        token_ms=(times[-1] - times[0]) / (len(times) - 1) if len(times) > 1 else None,
        num_output_tokens=len(item.token_ids),
        wanted_tokens=turn.output_tokens,
        num_prompt_tokens=item.num_prompt_tokens,
        request_id=item.request_id,
        error=item.error[:200],
    )
    return result, item.token_ids


def timelines(result: ReplayResult) -> Mapping[str, Sequence[TurnResult]]:
    """The turns of each conversation in order."""
    found: dict[str, list[TurnResult]] = {}
    for turn in result.turns:
        found.setdefault(turn.conversation, []).append(turn)
    return found
