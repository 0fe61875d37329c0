"""Sends completion requests to one arm's server and turns its answers into suite items."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from threading import Semaphore
from typing import Any

import httpx2

from harness.engine.answer import Answer, parse_json
from harness.engine.hold import held_engine
from harness.engine.request_id import make_request_id
from harness.engine.server import ArmServer
from harness.model.completion import Completer, CompletionRequest
from harness.model.evaluation import ChatMessage, SuiteItem

SEND_S = 10.0
"""For a request to leave this machine's process."""


class CompletionClient(Completer):
    """Sends requests over HTTP. Every request has an id of its own, which the ledger's rows carry."""

    def __init__(self, server: ArmServer, *, timeout_s: float = 300) -> None:
        self._server = server
        self._serial = itertools.count()
        # A connection that is kept may be closed by the server just when it is used again.
        limits = httpx2.Limits(max_connections=None, max_keepalive_connections=0)
        self._http = httpx2.Client(trust_env=False, timeout=timeout_s, limits=limits)

    def complete(self, request: CompletionRequest, *, suite: str = "single") -> SuiteItem:
        """The answer to one request, sent alone."""
        return self.complete_many([request], concurrency=1, suite=suite)[0]

    def complete_many(
        self, requests: Sequence[CompletionRequest], *, concurrency: int, suite: str, together: bool = False
    ) -> tuple[SuiteItem, ...]:
        """Answers in the order of the requests, `concurrency` of them in flight while enough remain."""
        in_flight = max(1, min(concurrency, len(requests)))
        pool = ThreadPoolExecutor(in_flight, thread_name_prefix="completion")
        try:
            sent = Semaphore(0)
            with held_engine(self._server) if together else nullcontext():
                futures = [pool.submit(self._complete, r, in_flight, suite, sent) for r in requests]
                if together:
                    deadline = time.monotonic() + SEND_S
                    for _ in range(in_flight):
                        sent.acquire(timeout=max(0.0, deadline - time.monotonic()))
            return tuple(f.result() for f in futures)
        finally:
            pool.shutdown(wait=False, cancel_futures=True)

    def tokenize(self, text: str) -> tuple[int, ...]:
        """The served model's tokens of `text`, no special tokens added; raises EngineError."""
        return self._tokenize({"prompt": text, "add_special_tokens": False})

    def count_prompt(self, messages: Sequence[ChatMessage]) -> int:
        """Tokens of a conversation as the chat endpoint renders it for an answer; raises EngineError."""
        return len(
            self._tokenize({"messages": [m.model_dump() for m in messages], "add_generation_prompt": True})
        )

    def detokenize(self, tokens: Sequence[int]) -> str:
        """The text of the served model's tokens; raises EngineError."""
        return str(self._ask_tokenizer("/detokenize", {"tokens": list(tokens)}, "prompt", str))

    def _tokenize(self, what: Mapping[str, Any]) -> tuple[int, ...]:
        return tuple(int(token) for token in self._ask_tokenizer("/tokenize", what, "tokens", list))

    def _ask_tokenizer(self, path: str, what: Mapping[str, Any], field: str, kind: type) -> Any:
        body = {"model": self._server.spec.served_model_name, **what}
        try:
            answer = self._http.post(f"{self._server.base_url}{path}", json=body)
        except httpx2.TransportError as error:
            self._server.check()
            message = f"{path} failed: {type(error).__name__}."
            raise self._server.error("engine-unreachable", message) from error
        found = parse_json(answer.text).get(field)
        if answer.status_code != 200 or not isinstance(found, kind):
            message = f"{path}: HTTP {answer.status_code}: {answer.text[:300]}"
            raise self._server.error("engine-tokenize", message)
        return found

    def close(self) -> None:
        """Closes the connections."""
        self._http.close()

    def _complete(
        self, request: CompletionRequest, concurrency: int, suite: str, sent: Semaphore
    ) -> SuiteItem:
        request_id = make_request_id(suite, self._server.spec, next(self._serial))
        body = render_body(request, self._server.spec.served_model_name)
        answer = Answer()
        try:
            self._send(request, body, request_id, answer, sent)
        except httpx2.TransportError as error:
            self._server.check()
            message = f"The request {request.item!r} failed: {type(error).__name__}."
            raise self._server.error("engine-unreachable", message) from error
        return answer.item(request, request_id, concurrency)

    def _send(
        self,
        request: CompletionRequest,
        body: Mapping[str, Any],
        request_id: str,
        answer: Answer,
        sent: Semaphore,
    ) -> None:
        """Releases `sent` once the whole request has been written to the connection."""

        def trace(event: str, _: Mapping[str, Any]) -> None:
            if event == "http11.send_request_body.complete":
                sent.release()

        started = time.perf_counter()
        headers = {"X-Request-Id": request_id}
        path = "/v1/chat/completions" if request.messages else "/v1/completions"
        url = f"{self._server.base_url}{path}"
        extensions = {"trace": trace}
        with self._http.stream("POST", url, json=body, headers=headers, extensions=extensions) as response:
            if response.status_code != 200:
                answer.error = (
                    f"HTTP {response.status_code}: {response.read().decode(errors='replace')[:2000]}"
                )
                if response.status_code >= 500:
                    self._server.check()
            elif request.stream:
                for event in _events(response.iter_lines()):
                    answer.add(event, (time.perf_counter() - started) * 1000)
                    if request.give_up_after and answer.num_tokens >= request.give_up_after:
                        answer.give_up()
                        return
            else:
                answer.add(parse_json(response.read().decode(errors="replace")), None)


def render_body(request: CompletionRequest, model: str) -> dict[str, Any]:
    """The JSON body of a request as vLLM 0.32 and 0.33 take it."""
    body: dict[str, Any] = {
        "model": model,
        "max_tokens": request.max_tokens,
        "temperature": request.temperature,
        "top_p": request.top_p,
        "top_k": request.top_k,
        "ignore_eos": request.ignore_eos,
        "stream": request.stream,
        "return_token_ids": True,
    }
    if request.messages:
        body["messages"] = [message.model_dump() for message in request.messages]
    else:
        body["prompt"] = list(request.prompt_token_ids)
    if request.seed is not None:
        body["seed"] = request.seed
    if request.stream:
        body["stream_options"] = {"include_usage": True}
    if request.logprobs:
        asked = {"logprobs": True, "top_logprobs": request.logprobs} if request.messages else {}
        body |= {"logprobs": request.logprobs, "return_tokens_as_token_ids": True} | asked
    if request.json_schema:
        body["structured_outputs"] = {"json": json.loads(request.json_schema)}
    if request.force_token_ids:
        body["vllm_xargs"] = {"force_token_ids": json.dumps(list(request.force_token_ids))}
    if request.options_text:
        body |= json.loads(request.options_text)
    return body


def _events(lines: Iterator[str]) -> Iterator[Mapping[str, Any]]:
    for line in lines:
        if line.startswith("data:") and line[5:].strip() != "[DONE]":
            yield parse_json(line[5:])
