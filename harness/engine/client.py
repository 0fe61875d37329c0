"""Sends completion requests to one arm's server and turns its answers into suite items."""

from __future__ import annotations

import itertools
import json
import math
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx2

from harness.engine.server import ArmServer
from harness.model.completion import Completer, CompletionRequest
from harness.model.evidence import SuiteItem, TokenLogprobs

LOWEST_LOGPROB = -9999.0
"""What vLLM writes for a logprob of minus infinity."""


class CompletionClient(Completer):
    """Sends requests over HTTP. Every request has an id of its own, which the ledger's rows carry."""

    def __init__(self, server: ArmServer, *, timeout_s: float = 300) -> None:
        self._server = server
        self._url = f"{server.base_url}/v1/completions"
        self._mark = server.spec.nonce[:8]
        self._serial = itertools.count()
        limits = httpx2.Limits(max_connections=None)
        self._http = httpx2.Client(trust_env=False, timeout=timeout_s, limits=limits)

    def complete(self, request: CompletionRequest, *, suite: str = "single") -> SuiteItem:
        """The answer to one request, sent alone."""
        return self.complete_many([request], concurrency=1, suite=suite)[0]

    def complete_many(
        self, requests: Sequence[CompletionRequest], *, concurrency: int, suite: str
    ) -> tuple[SuiteItem, ...]:
        """Answers in the order of the requests, `concurrency` of them in flight while enough remain."""
        in_flight = max(1, min(concurrency, len(requests)))
        pool = ThreadPoolExecutor(in_flight, thread_name_prefix="completion")
        try:
            futures = [pool.submit(self._complete, r, in_flight, suite) for r in requests]
            return tuple(f.result() for f in futures)
        finally:
            pool.shutdown(wait=False, cancel_futures=True)

    def tokenize(self, text: str) -> tuple[int, ...]:
        """The served model's tokens of `text`, no special tokens added; raises EngineError."""
        body = {
            "model": self._server.spec.served_model_name,
            "prompt": text,
            "add_special_tokens": False,
        }
        try:
            answer = self._http.post(f"{self._server.base_url}/tokenize", json=body)
        except httpx2.TransportError as error:
            self._server.check()
            message = f"/tokenize failed: {type(error).__name__}."
            raise self._server.error("engine-unreachable", message) from error
        tokens = _parse_json(answer.text).get("tokens")
        if answer.status_code != 200 or not isinstance(tokens, list):
            message = f"/tokenize: HTTP {answer.status_code}: {answer.text[:300]}"
            raise self._server.error("engine-tokenize", message)
        return tuple(int(token) for token in tokens)

    def close(self) -> None:
        """Closes the connections."""
        self._http.close()

    def _complete(self, request: CompletionRequest, concurrency: int, suite: str) -> SuiteItem:
        request_id = f"{re.sub(r'[^A-Za-z0-9]+', '_', suite)}-{self._mark}-{next(self._serial)}r"
        body = render_body(request, self._server.spec.served_model_name)
        answer = _Answer()
        try:
            self._send(request, body, request_id, answer)
        except httpx2.TransportError as error:
            self._server.check()
            message = f"The request {request.item!r} failed: {type(error).__name__}."
            raise self._server.error("engine-unreachable", message) from error
        return answer.item(request, request_id, concurrency)

    def _send(
        self, request: CompletionRequest, body: Mapping[str, Any], request_id: str, answer: _Answer
    ) -> None:
        started = time.perf_counter()
        headers = {"X-Request-Id": request_id}
        with self._http.stream("POST", self._url, json=body, headers=headers) as response:
            if response.status_code != 200:
                answer.error = (
                    f"HTTP {response.status_code}: {response.read().decode(errors='replace')[:2000]}"
                )
                if response.status_code >= 500:
                    self._server.check()
            elif request.stream:
                for event in _events(response.iter_lines()):
                    answer.add(event, (time.perf_counter() - started) * 1000)
            else:
                answer.add(_parse_json(response.read().decode(errors="replace")), None)


class _Answer:
    """Gathers what arrives for one request."""

    def __init__(self) -> None:
        self.error = ""
        self._text = ""
        self._token_ids: list[int] = []
        self._finish_reason = ""
        self._num_completion_tokens: int | None = None
        self._top_logprobs: list[TokenLogprobs] = []
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
        for choice in event.get("choices", ()):
            token_ids = choice.get("token_ids") or ()
            self._text += choice.get("text") or ""
            self._token_ids += token_ids
            self._finish_reason = choice.get("finish_reason") or self._finish_reason
            if arrived_ms is not None:
                self._token_times_ms += [arrived_ms] * len(token_ids)
            logprobs = choice.get("logprobs") or {}
            self._top_logprobs += [parse_top_logprobs(top) for top in logprobs.get("top_logprobs") or ()]

    def item(self, request: CompletionRequest, request_id: str, concurrency: int) -> SuiteItem:
        """The suite item; an answer that is not what was asked for carries an error."""
        return SuiteItem(
            item=request.item,
            request_id=request_id,
            concurrency=concurrency,
            num_prompt_tokens=len(request.prompt_token_ids),
            token_ids=tuple(self._token_ids),
            text=self._text,
            finish_reason=self._finish_reason,
            num_completion_tokens=self._num_completion_tokens or 0,
            temperature=request.temperature,
            seed=request.seed,
            top_logprobs=tuple(self._top_logprobs),
            schema_text=request.json_schema,
            token_times_ms=tuple(self._token_times_ms),
            error=self.error or self._complaint(request),
        )

    def _complaint(self, request: CompletionRequest) -> str:
        num_tokens = len(self._token_ids)
        num_forced = len(request.force_token_ids)
        if not self._finish_reason or self._num_completion_tokens is None:
            return "the answer ends without a finish reason and usage"
        if num_tokens != self._num_completion_tokens:
            return f"{num_tokens} token ids, but the usage says {self._num_completion_tokens}"
        if request.logprobs and len(self._top_logprobs) != num_tokens:
            return f"{num_tokens} tokens, but logprobs for {len(self._top_logprobs)}"
        if tuple(self._token_ids[:num_forced]) != request.force_token_ids:
            return "the forced tokens did not come back"
        return ""


def render_body(request: CompletionRequest, model: str) -> dict[str, Any]:
    """The JSON body of a request as vLLM 0.32 and 0.33 take it."""
    body: dict[str, Any] = {
        "model": model,
        "prompt": list(request.prompt_token_ids),
        "max_tokens": request.max_tokens,
        "temperature": request.temperature,
        "top_p": request.top_p,
        "top_k": request.top_k,
        "ignore_eos": request.ignore_eos,
        "stream": request.stream,
        "return_token_ids": True,
    }
    if request.seed is not None:
        body["seed"] = request.seed
    if request.stream:
        body["stream_options"] = {"include_usage": True}
    if request.logprobs:
        body |= {"logprobs": request.logprobs, "return_tokens_as_token_ids": True}
    if request.json_schema:
        body["structured_outputs"] = {"json": json.loads(request.json_schema)}
    if request.force_token_ids:
        body["vllm_xargs"] = {"force_token_ids": json.dumps(list(request.force_token_ids))}
    return body


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


def _events(lines: Iterator[str]) -> Iterator[Mapping[str, Any]]:
    for line in lines:
        if line.startswith("data:") and line[5:].strip() != "[DONE]":
            yield _parse_json(line[5:])


def _parse_json(text: str) -> Mapping[str, Any]:
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        return {"error": f"not a JSON object: {text[:200]!r}"}
    return value
