"""What a server answered to one request, gathered piece by piece into a suite item."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from harness.model.completion import CompletionRequest
from harness.model.evaluation import GIVEN_UP, Choice, SuiteItem, TokenLogprobs

LOWEST_LOGPROB = -9999.0
"""What vLLM writes for a logprob of minus infinity."""


@dataclass(slots=True)
class _Choice:
    text: str = ""
    token_ids: list[int] = field(default_factory=list)
    finish_reason: str = ""
    stop_reason: str = ""
    top_logprobs: list[TokenLogprobs] = field(default_factory=list)
    tool_calls: list[Any] = field(default_factory=list)

    def take(self, choice: Mapping[str, Any]) -> None:
        """Takes a whole choice or a piece of one, of either endpoint."""
        message = choice.get("message") or choice.get("delta") or {}
        self.text += choice.get("text") or message.get("content") or ""
        self.token_ids += choice.get("token_ids") or ()
        self.tool_calls += message.get("tool_calls") or ()
        self.finish_reason = choice.get("finish_reason") or self.finish_reason
        stop_reason = choice.get("stop_reason")
        self.stop_reason = self.stop_reason if stop_reason is None else str(stop_reason)
        logprobs = choice.get("logprobs") or {}
        self.top_logprobs += [parse_top_logprobs(top) for top in logprobs.get("top_logprobs") or ()]
        for position in logprobs.get("content") or ():
            top = {entry["token"]: entry["logprob"] for entry in position["top_logprobs"]}
            self.top_logprobs.append(parse_top_logprobs(top))


class Answer:
    """Gathers what arrives for one request of the completions or the chat endpoint."""

    def __init__(self) -> None:
        self.error = ""
        self._choices: dict[int, _Choice] = {}
        self._num_prompt_tokens = 0
        self._num_completion_tokens: int | None = None
        self._prompt_logprobs: list[TokenLogprobs] = []
        self._token_times_ms: list[float] = []

    def add(self, event: Mapping[str, Any], arrived_ms: float | None) -> None:
        """Takes one JSON object of the server, a whole answer or a piece of a stream."""
        if "error" in event:
            self.error = f"error in the answer: {json.dumps(event['error'])[:2000]}"
            return
        try:
            self._take(event, arrived_ms)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            self.error = f"malformed answer: {type(error).__name__}: {error}"

    def _take(self, event: Mapping[str, Any], arrived_ms: float | None) -> None:
        usage = event.get("usage")
        if usage is not None:
            self._num_completion_tokens = usage["completion_tokens"]
            self._num_prompt_tokens = usage.get("prompt_tokens") or 0
        for choice in event.get("choices", ()):
            self._choices.setdefault(choice.get("index") or 0, _Choice()).take(choice)
            if arrived_ms is not None:
                self._token_times_ms += [arrived_ms] * len(choice.get("token_ids") or ())
            # The chat endpoint has them beside the choices, the completions endpoint in each.
            positions = choice.get("prompt_logprobs") or event.get("prompt_logprobs") or ()
            if positions and not self._prompt_logprobs:
                self._prompt_logprobs = [parse_prompt_logprobs(top) for top in positions if top is not None]

    @property
    def num_tokens(self) -> int:
        """Tokens that have arrived, over all choices."""
        return sum(len(choice.token_ids) for choice in self._choices.values())

    def give_up(self) -> None:
        """The client ends the answer here, before the server does."""
        for choice in self._choices.values():
            choice.finish_reason = choice.finish_reason or GIVEN_UP
        self._num_completion_tokens = self.num_tokens

    def item(self, request: CompletionRequest, request_id: str, concurrency: int) -> SuiteItem:
        """The suite item; an answer that is not what was asked for carries an error."""
        first = self._choices.get(0, _Choice())
        return SuiteItem(
            item=request.item,
            request_id=request_id,
            row=request.row,
            sample=request.sample,
            concurrency=concurrency,
            num_prompt_tokens=self._num_prompt_tokens or len(request.prompt_token_ids),
            token_ids=tuple(first.token_ids),
            text=first.text,
            finish_reason=first.finish_reason,
            stop_reason=first.stop_reason,
            num_completion_tokens=self._num_completion_tokens or 0,
            temperature=request.temperature,
            seed=request.seed,
            top_logprobs=tuple(first.top_logprobs),
            prompt_logprobs=tuple(self._prompt_logprobs),
            choices=tuple(
                Choice(token_ids=tuple(c.token_ids), text=c.text, finish_reason=c.finish_reason)
                for index, c in sorted(self._choices.items())
                if index
            ),
            tool_calls_text=json.dumps(first.tool_calls) if first.tool_calls else "",
            options_text=request.options_text,
            schema_text=request.json_schema,
            token_times_ms=tuple(self._token_times_ms),
            error=self.error or self._complaint(request, first),
        )

    def _complaint(self, request: CompletionRequest, first: _Choice) -> str:
        num_tokens = self.num_tokens
        num_forced = len(request.force_token_ids)
        if not first.finish_reason or self._num_completion_tokens is None:
            return "the answer ends without a finish reason and usage"
        if num_tokens != self._num_completion_tokens:
            return f"{num_tokens} token ids, but the usage says {self._num_completion_tokens}"
        if request.logprobs and len(first.top_logprobs) != len(first.token_ids):
            return f"{len(first.token_ids)} tokens, but logprobs for {len(first.top_logprobs)}"
        if tuple(first.token_ids[:num_forced]) != request.force_token_ids:
            return "the forced tokens did not come back"
        return ""


def parse_top_logprobs(top: Mapping[str, float | None] | None) -> TokenLogprobs:
    """One position's `{"token_id:7": -0.5}`, most likely first; null, NaN and infinities are only counted."""
    finite: list[tuple[float, int]] = []
    for name, value in (top or {}).items():
        if value is not None and math.isfinite(value) and value > LOWEST_LOGPROB:
            finite.append((value, int(name.removeprefix("token_id:"))))
    finite.sort(key=lambda pair: (-pair[0], pair[1]))
    return TokenLogprobs(
        token_ids=tuple(token_id for _, token_id in finite),
        logprobs=tuple(value for value, _ in finite),
        num_not_finite=len(top or {}) - len(finite),
    )


def parse_prompt_logprobs(top: Mapping[str, Mapping[str, Any]]) -> TokenLogprobs:
    """One prompt position's `{"7": {"logprob": -0.5, ...}}`, most likely first."""
    return parse_top_logprobs({token_id: entry["logprob"] for token_id, entry in top.items()})


def parse_json(text: str) -> Mapping[str, Any]:
    """The JSON object in `text`, or an object whose "error" says that there is none."""
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        return {"error": f"not a JSON object: {text[:200]!r}"}
    return value
