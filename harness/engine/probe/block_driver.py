"""The program of a timed arm: `python -m harness.engine.probe.block_driver PLAN`.

Runs one engine in the environment of an arm, with its tracer, and serves what the harness asks over a connection: a
block of requests at a time, as many of them in flight as it is told. Every step's tokens are sent as soon as the
engine has them, so that it is the harness that tells the time of their arrival. The ledger's rows of a block are
written at its end. Between two blocks it waits and computes nothing.
"""

from __future__ import annotations

import json
import socket
import sys
import time
import zlib
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any, TextIO

from harness.engine.probe.drawn_weights import describe_ranks, describe_weights, offer_weights
from harness.engine.probe.engine_start import (
    REFUSALS,
    inspect_models_here,
    is_lack_of_memory,
    start_engine,
    start_replaying,
)
from harness.engine.tracer import Tracer, active
from harness.engine.worker_extension import FasttrackWorkerExtension


class BlockEngine:
    """One running engine, and the commands that it obeys."""

    def __init__(self, engine: Any, answers: TextIO, tracer: Tracer, has_workers: bool = False) -> None:
        """`tracer` is this process's, which is the one worker unless the engine has processes for its ranks."""
        self._engine = engine
        self._has_workers = has_workers
        self._tracer = tracer
        self._answers = answers

    @property
    def gives_tokens(self) -> bool:
        """Whether a request may be given its tokens."""
        return can_replay(self._engine)

    def obey(self, commands: TextIO) -> None:
        """Answers each line until "end", or until nobody asks any more."""
        for line in commands:
            command = json.loads(line)
            if command["do"] == "end":
                return
            if command["do"] == "tokenize":
                self._say(tokens=self._tokenize(command["text"]))
            elif command["do"] == "rpc":
                self._say(answers=self._call(command["method"], *command["args"]))
            elif command["do"] == "forget":
                self._say(forgot=self._forget())
            elif command["do"] == "alternate":
                with self._tracer.steps.held_back():
                    turns = self._alternate(command["requests"], command["turns"], command["num_steps"])
                self._say(turns=turns)
            else:
                with self._rows_held():
                    counts, refused = self._serve(command["requests"], command["concurrency"])
                self._say(counts=counts, refused=refused)

    def _call(self, method: str, *args: str) -> list[dict[str, Any]]:
        """What each worker answers, in the order of the ranks."""
        if self._has_workers:
            return list(self._engine.collective_rpc(method, args=args))
        return [getattr(FasttrackWorkerExtension(), method)(*args)]

    @contextmanager
    def _rows_held(self) -> Iterator[None]:
        if not self._has_workers:
            with self._tracer.steps.held_back():
                yield
            return
        self._call("fasttrack_rows", "hold")
        try:
            yield
        finally:
            self._call("fasttrack_rows", "write")

    def _say(self, **fields: Any) -> None:
        self._answers.write(json.dumps(fields, separators=(",", ":")) + "\n")
        self._answers.flush()

    def _tokenize(self, text: str) -> list[int]:
        tokenizer = getattr(self._engine, "tokenizer", None)
        if tokenizer is None:
            return spread_tokens(text, self._engine.model_config.get_vocab_size())
        return list(tokenizer.encode(text, add_special_tokens=False))

    def _forget(self) -> bool:
        """Whether nothing of earlier requests can be reused."""
        keeps = self._engine.vllm_config.cache_config.enable_prefix_caching
        return not keeps or bool(self._engine.reset_prefix_cache())

    def _serve(
        self, requests: Sequence[Mapping[str, Any]], concurrency: int
    ) -> tuple[dict[str, int], dict[str, str]]:
        """Tokens by request, and why some were refused; what is told before that is each step's tokens."""
        refused: dict[str, str] = {}
        counts: dict[str, int] = {}
        engine, waiting = self._engine, deque(requests)
        while waiting or engine.has_unfinished_requests():
            begun = []
            while waiting and engine.get_num_unfinished_requests() < concurrency:
                request = waiting.popleft()
                try:
                    self._add(request)
                    counts[request["id"]] = 0
                    begun.append(request["id"])
                except ValueError as error:
                    refused[request["id"]] = f"{type(error).__name__}: {error}"[:2000]
            if not engine.has_unfinished_requests():
                break
            if begun and len(begun) < len(counts):
                self._say(begun=begun, tokens={})
            outputs = [(o.request_id, o.outputs[0]) for o in engine.step()]
            tokens = {name: list(new.token_ids) for name, new in outputs}
            for name, new in tokens.items():
                counts[name] += len(new)
            tops = {name: likely for name, new in outputs if (likely := list(read_logprobs(new)))}
            self._say(tokens=tokens, **({"logprobs": tops} if tops else {}))
        return counts, refused

    def _alternate(
        self, requests: Sequence[Mapping[str, Any]], turns: Sequence[bool], num_steps: int
    ) -> list[dict[str, Any]]:
        """Decodes one batch, `num_steps` steps a turn: with the tracer where `turns` says so, else with it set aside.

        What is told of a turn: its seconds, the tokens that came, and the rows that the tracer wrote. As those of a
        timed arm's block, they are made when the steps are done.
        """
        engine, steps, told = self._engine, self._tracer.steps, []
        for request in requests:
            self._add(request)
        unanswered = {request["id"] for request in requests}
        while unanswered:
            unanswered -= {output.request_id for output in engine.step()}
        for is_traced in turns:
            steps.is_aside = not is_traced
            num_rows, num_tokens, started = steps.num_steps, 0, time.perf_counter()
            for _ in range(num_steps):
                num_tokens += sum(len(output.outputs[0].token_ids) for output in engine.step())
            seconds = time.perf_counter() - started
            steps.settle()
            told.append(
                {"seconds": seconds, "num_tokens": num_tokens, "num_rows": steps.num_steps - num_rows}
            )
        steps.is_aside = False
        while engine.has_unfinished_requests():
            engine.step()
        return told

    def _add(self, request: Mapping[str, Any]) -> None:
        from vllm import SamplingParams
        from vllm.exceptions import VLLMClientError
        from vllm.sampling_params import RequestOutputKind

        params = SamplingParams(
            temperature=0.0,
            max_tokens=request["max_tokens"],
            ignore_eos=True,
            logprobs=request.get("logprobs") or None,
            output_kind=RequestOutputKind.DELTA,
            detokenize=False,
        )
        if given := request.get("given"):
            if not self.gives_tokens:
                raise ValueError("this engine cannot be given tokens")
            params.trace_decode_token_ids = list(given)
        try:
            self._engine.add_request(request["id"], {"prompt_token_ids": request["prompt"]}, params)
        except VLLMClientError as error:
            raise ValueError(str(error)) from error


def can_replay(engine: Any) -> bool:
    """Whether vLLM's trace replay is on; with drafts it refuses requests that are given tokens."""
    config = getattr(engine, "vllm_config", None)
    has_drafts = getattr(config, "speculative_config", None) is not None
    return bool(getattr(engine.model_config, "enable_trace_replay", False)) and not has_drafts


def read_logprobs(output: Any) -> Iterator[dict[str, float]]:
    """Of each new token: logprobs by token id, its own among them; nothing where none were asked for."""
    for top in getattr(output, "logprobs", None) or ():
        yield {str(token): float(entry.logprob) for token, entry in top.items()}


def spread_tokens(text: str, vocabulary: int) -> list[int]:
    """A token for each byte of a text, told by all bytes up to it and spread over the whole vocabulary.

    For models without a tokenizer. Bytes themselves would be few tokens, which few experts serve.
    """
    data = text.encode()
    return [zlib.crc32(data[: end + 1]) % vocabulary for end in range(len(data))]


def graphs_followed(tracer: Tracer) -> AbstractContextManager[None]:
    """Replays count in the ledger where a device can capture graphs."""
    import torch

    if not torch.cuda.is_available():
        return nullcontext()
    from harness.engine.probe.cuda_graphs import follow_cuda_graphs

    return follow_cuda_graphs(tracer.steps)


def tell_refusal(error: BaseException, port: int, nonce: str) -> None:
    """Says why there will be no engine; who asked for it may have gone."""
    why = " ".join(f"{type(error).__name__}: {error}".split())[:2000]
    with suppress(OSError), socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(json.dumps({"nonce": nonce, "refused": why}).encode() + b"\n")


def main() -> None:
    """Starts the engine, says so, and obeys."""
    plan = json.loads(Path(sys.argv[1]).read_bytes())
    tracer = active()
    if tracer is None:
        raise RuntimeError("a timed arm has no tracer")
    has_workers = bool(plan.get("has_workers"))
    inspect_models_here()
    started = time.monotonic()
    drawer = offer_weights(plan.get("weights"))
    # Workers follow their own; a graph of this process would only take a device's memory.
    with nullcontext() if has_workers else graphs_followed(tracer):
        try:
            engine = (start_replaying if plan.get("gives_tokens") else start_engine)(plan["args"])
        except REFUSALS as error:
            if not is_lack_of_memory(error):
                tell_refusal(error, plan["port"], plan["nonce"])
            raise
        with socket.create_connection(("127.0.0.1", plan["port"])) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with connection.makefile("r", encoding="utf-8") as asked, connection.makefile("w") as answers:
                if has_workers:
                    weights = describe_ranks(engine.collective_rpc("fasttrack_weights"))
                else:
                    weights = drawer.describe(engine) if drawer is not None else describe_weights(engine)
                ready = {
                    "nonce": plan["nonce"],
                    "ready_s": round(time.monotonic() - started, 1),
                    "weights": weights.model_dump() if weights is not None else None,
                    "gives_tokens": can_replay(engine),
                }
                answers.write(json.dumps(ready) + "\n")
                answers.flush()
                BlockEngine(engine, answers, tracer, has_workers).obey(asked)
        engine.engine_core.shutdown()


if __name__ == "__main__":
    main()
