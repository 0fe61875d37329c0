"""Reads the engine's scheduler output: how many tokens of each request a step computes and hands out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple


@dataclass(slots=True)
class _Tracked:
    prompt_len: int
    prefill_end: int
    """Tokens that are known before the next one is sampled: the prompt, after a preemption also the output."""
    max_tokens: int | None
    stop_token_ids: frozenset[int]
    num_output_tokens: int = 0


@dataclass(slots=True)
class Steady:
    """A batch whose last written step computed and handed out one token of each request, and nothing else."""

    ids: list[str]
    computed: list[int]
    """Tokens whose state the next step starts from, if it goes on alike."""
    known: frozenset[str]
    """The same ids."""
    num_steps: int = 0
    """Steps that went on alike, and are not in the requests' own counts yet."""


class ScheduledRequest(NamedTuple):
    """One request's part of a step, before anything is sampled."""

    request_id: str
    num_scheduled_tokens: int
    num_prefill_tokens: int
    num_computed_tokens: int
    num_draft_tokens: int


class StepBook:
    """Follows the requests of a worker through the scheduler outputs that it is given, in order."""

    def __init__(self, max_model_len: int | None = None) -> None:
        self._requests: dict[str, _Tracked] = {}
        self._steady: Steady | None = None
        self.max_model_len = max_model_len

    def schedule(self, scheduler_output: Any) -> tuple[ScheduledRequest, ...]:
        """What a step computes for each request that it schedules."""
        self._leave()
        for request_id in scheduler_output.finished_req_ids:
            self._requests.pop(request_id, None)
        computed: dict[str, int] = {}
        for new in scheduler_output.scheduled_new_reqs:
            self._add(new)
            computed[new.req_id] = new.num_computed_tokens
        cached = scheduler_output.scheduled_cached_reqs
        for index, request_id in enumerate(cached.req_ids):
            computed[request_id] = cached.num_computed_tokens[index]
            if request_id in cached.resumed_req_ids:
                tracked = self._requests[request_id]
                tracked.prefill_end = tracked.prompt_len + cached.num_output_tokens[index]
        drafts = scheduler_output.scheduled_spec_decode_tokens
        return tuple(
            self._scheduled(request_id, num_tokens, computed[request_id], len(drafts.get(request_id, ())))
            for request_id, num_tokens in scheduler_output.num_scheduled_tokens.items()
        )

    def settle(self, scheduled: Sequence[ScheduledRequest], num_emitted: Sequence[int]) -> None:
        """Notes a written step: the next may go on from it if each request computed and was handed one token."""
        self._leave()
        parts = {(r.num_scheduled_tokens, r.num_prefill_tokens, r.num_draft_tokens) for r in scheduled}
        if parts == {(1, 0, 0)} and set(num_emitted) == {1}:
            ids = [r.request_id for r in scheduled]
            self._steady = Steady(ids, [r.num_computed_tokens + 1 for r in scheduled], frozenset(ids))

    def goes_on(self, scheduler_output: Any) -> Steady | None:
        """The batch, if a step schedules what the last written one did, each request one token further."""
        steady, cached = self._steady, scheduler_output.scheduled_cached_reqs
        tokens = scheduler_output.num_scheduled_tokens
        is_next = (
            steady is not None
            and list(cached.num_computed_tokens) == steady.computed
            and list(cached.req_ids) == steady.ids == list(tokens)
            and set(tokens.values()) == {1}
            and not scheduler_output.scheduled_new_reqs
            and not scheduler_output.finished_req_ids
            and not scheduler_output.scheduled_spec_decode_tokens
            and not cached.resumed_req_ids
        )
        return steady if is_next else None

    def went_on(self, steady: Steady, output: Any) -> bool:
        """Whether the batch's step is the next to be written and handed each request one token; it is noted then."""
        sampled = output.sampled_token_ids
        is_one_each = len(sampled) == len(steady.ids) and set(map(len, sampled)) == {1}
        if self._steady is not steady or not is_one_each or output.req_id_to_index.keys() != steady.known:
            return False
        steady.num_steps += 1
        steady.computed = [count + 1 for count in steady.computed]
        return True

    def spelt(self, steady: Steady) -> tuple[ScheduledRequest, ...]:
        """What the batch's step computes, request by request."""
        self._leave()
        return tuple(
            ScheduledRequest(i, 1, 0, c, 0) for i, c in zip(steady.ids, steady.computed, strict=True)
        )

    def _leave(self) -> None:
        steady, self._steady = self._steady, None
        if steady is not None:
            for request_id in steady.ids:
                if request_id in self._requests:
                    self._requests[request_id].num_output_tokens += steady.num_steps

    def _add(self, new: Any) -> None:
        params = new.sampling_params
        stops = set(params.stop_token_ids or ()) if params is not None else set()
        if params is not None and getattr(params, "eos_token_id", None) is not None:
            stops.add(params.eos_token_id)
        prompt = new.prompt_token_ids if new.prompt_token_ids is not None else new.prompt_embeds
        prompt_len = len(prompt)
        prefill = getattr(new, "prefill_token_ids", None)
        known = self._requests.get(new.req_id)
        self._requests[new.req_id] = _Tracked(
            prompt_len=prompt_len,
            prefill_end=len(prefill) if prefill is not None else prompt_len,
            max_tokens=params.max_tokens if params is not None else None,
            stop_token_ids=frozenset(stops),
            num_output_tokens=known.num_output_tokens if known is not None else 0,
        )

    def _scheduled(
        self, request_id: str, num_tokens: int, num_computed: int, num_drafts: int
    ) -> ScheduledRequest:
        before_end = self._requests[request_id].prefill_end - num_computed
        num_prefill = max(0, min(before_end, num_tokens))
        return ScheduledRequest(request_id, num_tokens, num_prefill, num_computed, num_drafts)

    def emit(self, request_id: str, token_ids: Sequence[int]) -> int:
        """How many of the sampled tokens reach the client: those after a stop are dropped by the scheduler."""
        tracked = self._requests.get(request_id)
        if tracked is None:
            return len(token_ids)
        for count, token_id in enumerate(token_ids, start=1):
            tracked.num_output_tokens += 1
            if self._stops(tracked, token_id):
                return count
        return len(token_ids)

    def _stops(self, tracked: _Tracked, token_id: int) -> bool:
        num_tokens = tracked.prompt_len + tracked.num_output_tokens
        return (
            token_id in tracked.stop_token_ids
            or (tracked.max_tokens is not None and tracked.num_output_tokens >= tracked.max_tokens)
            or (self.max_model_len is not None and num_tokens >= self.max_model_len)
        )
