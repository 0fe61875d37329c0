"""One arm from start to evidence: a server, a client, and what both leave behind."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from harness.app.arm_evidence import ArmServerRecord, keep_started, record_server
from harness.app.recorder import Recorder
from harness.engine.arm_spec import CPU_ENV, ArmSpec
from harness.engine.client import CompletionClient
from harness.engine.server import ArmServer
from harness.model.completion import Completer
from harness.model.errors import EngineError
from harness.model.evaluation import ChatMessage
from harness.model.manifest import Manifest
from harness.model.words import Arm

TokenIds = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmPlan:
    """What decides how an arm is started."""

    arm: Arm
    manifest: Manifest
    model_dir: Path
    import_path: Path
    workdir: Path
    with_coverage: bool


class ArmSession(Protocol):
    """A started, or failed, arm as the collection sees it."""

    ready_s: float | None
    command: tuple[str, ...]

    @property
    def alive(self) -> bool:
        """Whether it can be asked something."""
        ...

    @property
    def completer(self) -> Completer:
        """Sends requests to it."""
        ...

    def start(self) -> None:
        """Starts it; raises `EngineError` with the log's last lines."""
        ...

    def tokenize(self, text: str) -> TokenIds:
        """The served model's tokens of `text`, nothing added."""
        ...

    def count_prompt(self, messages: Sequence[ChatMessage]) -> int:
        """The served model's tokens of a conversation, as its chat template renders it."""
        ...

    def begin_suite(self, name: str) -> None:
        """Lines that run from now on are counted for this suite."""
        ...

    def perturb(self, amplitude: float, seed: int) -> int:
        """Makes what the specialised code returns noisy from now on; 0 ends it and empties the prefix cache.

        Returns the calls that the last noise changed.
        """
        ...

    def end_suite(self) -> None:
        """What the suite left in the worker is on disk, should the run be killed."""
        ...

    def end_coverage(self) -> None:
        """Nothing slows the worker from now on."""
        ...

    def pause(self) -> None:
        """It takes no time from others."""
        ...

    def resume(self) -> None:
        """It can be asked again."""
        ...

    def kill(self) -> None:
        """Ends it at once, also while it starts; requests in flight fail."""
        ...

    def close(self, recorder: Recorder) -> None:
        """Stops it and records what it leaves: the arm, its ledger, its coverage. Safe to call twice."""
        ...


def additional_config(manifest: Manifest, arm: Arm) -> dict[str, str]:
    """The switch as the arm sets it: left out, on, and explicitly off."""
    switch = manifest.switch
    if arm is Arm.BASELINE:
        return {}
    return {switch.key: switch.on, **switch.with_on} if arm is Arm.CANDIDATE else {switch.key: switch.off}


class EngineSession:
    """An arm served by a real vLLM engine."""

    def __init__(self, plan: ArmPlan) -> None:
        manifest = plan.manifest
        self._plan = plan
        self._nonce = secrets.token_hex(8)
        self._spec = ArmSpec(
            arm=plan.arm,
            model_dir=plan.model_dir,
            import_path=plan.import_path,
            import_roots=manifest.paths.import_roots,
            dispatch=manifest.dispatch,
            ledger_dir=plan.workdir,
            nonce=self._nonce,
            max_model_len=manifest.nano_model.max_model_len,
            # One request more than declared: a batch beyond the scope really occurs.
            max_num_seqs=manifest.scope.max_batch + 1,
            additional_config=additional_config(manifest, plan.arm),
            engine_args=manifest.nano_model.engine_args,
            coverage_globs=manifest.coverage.cpu if plan.with_coverage else (),
            cache_dir=plan.workdir.parent / "cache",
            starts_warm=True,
            env=CPU_ENV,
        )
        self._server = ArmServer(self._spec)
        self._client: CompletionClient | None = None
        self._failure = ""
        self._log_tail: tuple[str, ...] = ()
        self._killed = False
        self._closed = False
        self.command = self._spec.public_command
        self.ready_s: float | None = None

    @property
    def alive(self) -> bool:
        """Whether the server runs."""
        return self._client is not None and self._server.is_running

    @property
    def completer(self) -> Completer:
        """The client; raises `EngineError` before the server is ready."""
        return self._started_client

    @property
    def _started_client(self) -> CompletionClient:
        if self._client is None:
            raise EngineError("engine-not-started", f"{self._plan.arm}: the engine is not running")
        return self._client

    def start(self) -> None:
        """Starts the server; remembers a failure for the evidence and raises it again."""
        try:
            self._server.start()
        except EngineError as error:
            self._failure = error.message
            self._log_tail = tuple(error.log_tail.splitlines())
            raise
        self.ready_s = self._server.ready_s
        self._client = CompletionClient(self._server)
        keep_started(self._record, self._spec.ledger_dir)

    def tokenize(self, text: str) -> TokenIds:
        """Tokens by the server's own tokenizer, no special tokens added."""
        return self._started_client.tokenize(text)

    def count_prompt(self, messages: Sequence[ChatMessage]) -> int:
        """Tokens of a conversation by the server's own tokenizer and chat template."""
        return self._started_client.count_prompt(messages)

    def begin_suite(self, name: str) -> None:
        """Tells the worker which suite is running."""
        self._server.rpc("fasttrack_suite", name)

    def perturb(self, amplitude: float, seed: int) -> int:
        """Tells every worker; the fewest calls that any of them changed."""
        targets = self._plan.manifest.dispatch.specialized_code
        answers = self._server.rpc("fasttrack_perturb", str(amplitude), str(seed), *targets)
        if amplitude == 0:
            self._server.reset_prefix_cache()
        return min((int(answer["num_perturbed_calls"]) for answer in answers), default=0)

    def end_suite(self) -> None:
        """Saves coverage; the ledger is on disk as it is made."""
        self._save_coverage()

    def end_coverage(self) -> None:
        """Saves coverage and takes the trace function out of the worker."""
        self._save_coverage()
        answers = self._server.rpc("fasttrack_coverage_stop")
        if any(answer.get("tracing") for answer in answers):
            raise EngineError("still-traced", f"{self._plan.arm}: a trace function still slows the worker")

    def pause(self) -> None:
        """Stops the server's processes where they are."""
        self._server.pause()

    def resume(self) -> None:
        """Lets them go on."""
        self._server.resume()

    def _save_coverage(self) -> None:
        if self._plan.with_coverage:
            self._server.rpc("fasttrack_coverage_save")

    def kill(self) -> None:
        """Kills the server; that is no death of the engine's own."""
        self._killed = True
        self._server.kill()

    def close(self, recorder: Recorder) -> None:
        """Stops the server in good order and records arm, ledger and coverage."""
        if self._closed:
            return
        self._closed = True
        died = self._client is not None and not self._server.is_running and not self._killed
        self._wind_down(recorder)
        if died:
            self._failure = "the engine died before it was stopped"
        elif self._killed:
            self._failure = "stopped before its work was done"
        if died and not self._log_tail:
            self._log_tail = self._server.log_tail
        record_server(
            self._record,
            self._spec.ledger_dir,
            self._plan.import_path,
            recorder,
            failure=self._failure,
            log_tail=self._log_tail,
        )

    @property
    def _record(self) -> ArmServerRecord:
        return ArmServerRecord(
            arm=self._plan.arm,
            nonce=self._nonce,
            command=self.command,
            additional_config=dict(self._spec.additional_config),
            ready_s=self.ready_s,
            coverage_globs=self._spec.coverage_globs,
        )

    def _wind_down(self, recorder: Recorder) -> None:
        try:
            if self.alive:
                self.resume()
                self._save_coverage()
        except EngineError as error:
            recorder.progress.say(f"{self._plan.arm}: {error.message}")
        finally:
            if self._client is not None:
                self._client.close()
            self._server.stop()


def open_session(plan: ArmPlan) -> ArmSession:
    """A session of a real engine, not started yet."""
    return EngineSession(plan)
