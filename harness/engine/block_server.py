"""A timed arm as a process: one engine that serves blocks of requests, and is stopped where it is in between."""

from __future__ import annotations

import itertools
import json
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TextIO

from harness.engine.answer import parse_top_logprobs
from harness.engine.arm_spec import ArmSpec
from harness.engine.driven_process import DrivenProcess
from harness.engine.request_id import make_request_id
from harness.model.completion import Completer, CompletionRequest
from harness.model.errors import EngineError, EngineRefused
from harness.model.evaluation import SuiteItem, TokenLogprobs
from harness.model.probe import DrawnWeights, WeightsSource

DRIVER = "harness.engine.probe.block_driver"
PLAN = "plan.json"
"""In the ledger's folder: what the driver is told."""
GREETING_S = 5.0
"""For a process that has connected to say who it is."""
FAULTS = (KeyError, TypeError, ValueError, AttributeError)
"""What reading an answer raises that the driver does not write."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedTurn:
    """One turn of a batch whose tracer is set aside by turns, by the engine's own process."""

    seconds: float
    num_tokens: int
    num_rows: int
    """Of the ledger, which none comes to while the tracer is set aside."""


class BlockServer(DrivenProcess, Completer):
    """Serves an arm between `start` and `stop`. `kill` may come from another thread.

    No request crosses an API server: at a large batch that is slower than the engine, and its pace would be timed.
    """

    def __init__(
        self,
        spec: ArmSpec,
        args: Sequence[str],
        *,
        weights: WeightsSource | None = None,
        gives_tokens: bool = False,
        program: Sequence[str] | None = None,
        ready_timeout_s: float = 900,
        answer_timeout_s: float = 120,
    ) -> None:
        """`args` are the engine's, `weights` what draws its weights where they ask for that. `gives_tokens` asks for an
        engine whose requests may be given their tokens, where vLLM has one. `program` is given the path of the plan;
        None runs the driver."""
        public = tuple(arg.replace(str(spec.model_dir), "{model}") for arg in args)
        super().__init__(spec, DRIVER, json.dumps({"args": public}), program)
        self.ready_s: float | None = None
        self.weights: DrawnWeights | None = None
        """What it serves with, by its own word; None where a checkpoint holds them."""
        self.gives_tokens = False
        """Whether a request may be given its tokens, by the engine's own word."""
        self._source = weights
        self._asks_to_give = gives_tokens
        self._args = tuple(args)
        self._ready_timeout_s = ready_timeout_s
        self._answer_timeout_s = answer_timeout_s
        self._serial = itertools.count()
        self._connection: socket.socket | None = None
        self._lines: TextIO | None = None
        self._is_ended = False

    @property
    def is_running(self) -> bool:
        """Whether it is ready and alive."""
        return self.ready_s is not None and super().is_running

    def start(self) -> None:
        """Starts the engine and waits until it says that it is ready.

        Raises:
            EngineRefused: it says that it does not take the deployment.
            EngineError: it died or took too long.
        """
        folder = self.spec.ledger_dir
        folder.mkdir(parents=True, exist_ok=True)
        with socket.create_server(("127.0.0.1", 0)) as listener:
            plan = folder / PLAN
            source = self._source.model_dump() if self._source is not None else None
            asked = {
                "args": self._args,
                "port": listener.getsockname()[1],
                "weights": source,
                "nonce": self.spec.nonce,
                "gives_tokens": self._asks_to_give,
                "has_workers": self.spec.worker_processes > 0,
            }
            plan.write_text(json.dumps(asked))
            try:
                if self._is_ended or self.launch_driver(str(plan)) is None:
                    raise self.error("blocks-start", "The engine's process could not be started.")
                self.ready_s = self._wait_until_ready(listener)
            except BaseException:
                self.kill()
                raise

    def _wait_until_ready(self, listener: socket.socket) -> float:
        deadline = time.monotonic() + self._ready_timeout_s
        listener.settimeout(0.2)
        while time.monotonic() < deadline:
            if self._is_ended:
                raise self.error("blocks-start", "The engine was stopped before it was ready.")
            is_alive = self._program is not None and self._program.is_running
            try:
                connection, _ = listener.accept()
            except TimeoutError:
                # What a process says as it ends is waiting to be accepted when it is gone.
                if not is_alive:
                    raise self.error("blocks-start", "The engine died before it was ready.") from None
                continue
            # Any process of the machine can connect; only this arm's knows its nonce.
            if (ready := self._greeting_of(connection)) is not None:
                return ready
        raise self.error("blocks-start", f"The engine was not ready within {self._ready_timeout_s:.0f} s.")

    def _greeting_of(self, connection: socket.socket) -> float | None:
        """Seconds that the engine took to start; None, and the connection closed, where it is another's."""
        connection.settimeout(GREETING_S)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        lines = connection.makefile("r", encoding="utf-8")
        try:
            ready = json.loads(lines.readline())
            if ready["nonce"] == self.spec.nonce:
                if "refused" in ready:
                    raise self._refused(str(ready["refused"]))
                told = ready.get("weights")
                self.weights = None if told is None else DrawnWeights.model_validate(told)
                self.gives_tokens = bool(ready.get("gives_tokens"))
                connection.settimeout(self._answer_timeout_s)
                self._connection, self._lines = connection, lines
                return float(ready["ready_s"])
        except (OSError, ValueError, KeyError, TypeError):
            pass
        lines.close()
        connection.close()
        return None

    def _refused(self, why: str) -> EngineRefused:
        refused = EngineRefused(
            "engine-refused", f"{self.spec.arm}: {why}", log_tail="\n".join(self.log_tail)
        )
        refused.arm = self.spec.arm
        return refused

    def tokenize(self, text: str) -> tuple[int, ...]:
        """The served model's tokens of `text`; spread over its vocabulary where it has no tokenizer."""
        self._say(do="tokenize", text=text)
        try:
            return tuple(int(token) for token in self._hear()["tokens"])
        except FAULTS as error:
            raise self.error("blocks-unreadable", "The engine's process tells no tokens.") from error

    def rpc(self, method: str, *args: str) -> tuple[dict[str, Any], ...]:
        """Calls a method of the worker extension in every worker; one answer a rank."""
        self._say(do="rpc", method=method, args=args)
        try:
            return tuple(dict(answer) for answer in self._hear()["answers"])
        except FAULTS as error:
            raise self.error(
                "blocks-unreadable", f"The engine's process does not answer {method}."
            ) from error

    def reset_prefix_cache(self) -> None:
        """Makes the engine forget what it could reuse of earlier requests; none may be running."""
        self._say(do="forget")
        if self._hear() != {"forgot": True}:
            raise self.error("blocks-forget", "The engine does not empty its prefix cache.")

    def complete_many(
        self,
        requests: Sequence[CompletionRequest],
        *,
        concurrency: int,
        suite: str,
        together: bool = False,  # noqa: ARG002 - they always start together
    ) -> tuple[SuiteItem, ...]:
        """Greedy answers to prompts of tokens, of which `concurrency` are in flight from the first step on.

        Of what a request asks beyond that, `logprobs` and `force_token_ids` are obeyed; those are the whole answer.

        A request's times count from when it is sent; of those that wait for others, from when the engine takes it.

        Raises:
            EngineError: the engine died, or what it says is not what the driver writes.
        """
        ids = [make_request_id(suite, self.spec, next(self._serial)) for _ in requests]
        asked = [
            {"id": name, "prompt": r.prompt_token_ids, "max_tokens": r.max_tokens}
            | ({"given": r.force_token_ids} if r.force_token_ids else {})
            | ({"logprobs": r.logprobs} if r.logprobs else {})
            for name, r in zip(ids, requests, strict=True)
        ]
        started = time.perf_counter()
        self._say(do="serve", concurrency=concurrency, requests=asked)
        try:
            return self._read_answers(ids, requests, started, concurrency)
        except FAULTS as error:
            message = f"The engine's process wrote what no driver writes: {type(error).__name__}."
            raise self.error("blocks-unreadable", message) from error

    def alternate(
        self, requests: Sequence[CompletionRequest], turns: Sequence[bool], *, num_steps: int, suite: str
    ) -> tuple[TracedTurn, ...]:
        """Decodes one batch, `num_steps` steps a turn: with the tracer where `turns` says so, else with it set aside.

        Every request must ask for more tokens than all turns make of it.

        Raises:
            EngineError: the engine died, or what it says is not what the driver writes.
        """
        asked = [
            {
                "id": make_request_id(suite, self.spec, next(self._serial)),
                "prompt": request.prompt_token_ids,
                "max_tokens": request.max_tokens,
            }
            for request in requests
        ]
        self._say(do="alternate", requests=asked, turns=list(turns), num_steps=num_steps)
        try:
            return tuple(TracedTurn(**turn) for turn in self._hear()["turns"])
        except FAULTS as error:
            message = f"The engine's process wrote what no driver writes: {type(error).__name__}."
            raise self.error("blocks-unreadable", message) from error

    def _read_answers(
        self, ids: Sequence[str], requests: Sequence[CompletionRequest], started: float, concurrency: int
    ) -> tuple[SuiteItem, ...]:
        """Tokens with their times of arrival, until the driver gives its own counts."""
        tokens: dict[str, list[int]] = {name: [] for name in ids}
        times: dict[str, list[float]] = {name: [] for name in ids}
        tops: dict[str, list[TokenLogprobs]] = {name: [] for name in ids}
        begun = dict.fromkeys(ids, started)
        while "counts" not in (line := self._hear()):
            now = time.perf_counter()
            begun |= dict.fromkeys(line.get("begun", ()), now)
            for name, new in line["tokens"].items():
                tokens[name] += new
                times[name] += [(now - begun[name]) * 1000] * len(new)
            for name, likely in line.get("logprobs", {}).items():
                tops[name] += map(parse_top_logprobs, likely)
        counts, refused = line["counts"], line["refused"]
        return tuple(
            SuiteItem(
                item=request.item,
                request_id=name,
                concurrency=min(concurrency, len(requests)),
                num_prompt_tokens=len(request.prompt_token_ids),
                token_ids=tuple(tokens[name]),
                text="",
                finish_reason="error" if name in refused else "length",
                num_completion_tokens=counts.get(name, 0),
                top_logprobs=tuple(tops[name]),
                token_times_ms=tuple(times[name]),
                error=refused.get(name, ""),
            )
            for name, request in zip(ids, requests, strict=True)
        )

    def _say(self, **command: Any) -> None:
        if self._connection is None:
            raise EngineError("blocks-not-started", f"{self.spec.arm}: the engine is not running")
        try:
            self._connection.sendall(json.dumps(command).encode() + b"\n")
        except OSError as error:
            raise self._lost(error) from error

    def _hear(self) -> Any:
        """The next line's JSON; ValueError where it is none."""
        assert self._lines is not None
        try:
            line = self._lines.readline()
        except OSError as error:
            raise self._lost(error) from error
        if not line:
            raise self.error("engine-died", "The engine's process is gone.")
        return json.loads(line)

    def _lost(self, error: OSError) -> EngineError:
        why = "It does not answer" if isinstance(error, TimeoutError) else "The engine's process is gone"
        return self.error("engine-died", f"{why}: {type(error).__name__}.")

    def stop(self) -> None:
        """Lets the engine shut down in good order, and ends whatever of it is left by force. Safe to call twice."""
        try:
            if self.is_running and not self._is_ended:
                self._say(do="end")
                assert self._program is not None
                self._program.wait(30)
        except EngineError:
            pass
        finally:
            self.kill()

    def kill(self) -> None:
        """Ends the process at once."""
        self._is_ended = True
        self.end()
        for end in (self._lines, self._connection):
            if end is not None:
                end.close()
