"""One arm as a running OpenAI API server: started, watched, paused and stopped without leaving anything behind."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Any, Protocol, Self

import httpx2

from harness.engine.arm_spec import ArmSpec
from harness.engine.engine_process import EngineProcess
from harness.model.errors import EngineError


class ArmServer(EngineProcess):
    """Serves an arm between `start` and `stop`; use it as a context manager."""

    def __init__(
        self,
        spec: ArmSpec,
        *,
        command: Callable[[int], Sequence[str]] | None = None,
        ready_timeout_s: float = 240,
        stop_timeout_s: float = 15,
    ) -> None:
        """`command` gives the command line for a port; None runs vLLM."""
        super().__init__(spec)
        self.ready_s: float | None = None
        """Seconds from the start to the first healthy answer."""
        self.port = 0
        self._command = command or spec.command
        self._ready_timeout_s = ready_timeout_s
        self._stop_timeout_s = stop_timeout_s
        self._is_ended = False
        self._http = httpx2.Client(trust_env=False, timeout=10)

    @property
    def base_url(self) -> str:
        """Where the server listens."""
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Starts the server and waits until it answers; raises EngineError if it dies or takes too long."""
        if self._is_ended:
            raise self.error("engine-ended", "It was stopped before it was started.")
        started = time.monotonic()
        self.spec.ledger_dir.mkdir(parents=True, exist_ok=True)
        self.port = _free_port()
        try:
            if self.launch(self._command(self.port)) is None:
                raise self.error("engine-start", "The server's command could not be run.")
            self._wait_until_ready(started + self._ready_timeout_s)
        except BaseException:
            self.kill()
            raise
        self.ready_s = time.monotonic() - started

    def _wait_until_ready(self, deadline: float) -> None:
        while time.monotonic() < deadline:
            if self._is_ended or not self.is_running:
                raise self.error("engine-died-at-start", "The engine died before it was ready.")
            if self._answers_as_this_arm():
                return
            time.sleep(0.1)
        raise self.error(
            "engine-not-ready",
            f"The engine was not ready within {self._ready_timeout_s:.0f} s.",
            "Look at the log's last lines; a busy machine may need a longer deadline.",
        )

    def _answers_as_this_arm(self) -> bool:
        try:
            if self._http.get(f"{self.base_url}/health").status_code != 200:
                return False
            models = self._http.get(f"{self.base_url}/v1/models").json()
        except (httpx2.TransportError, ValueError):
            return False
        names = [m.get("id") for m in models.get("data", [])]
        if self.spec.served_model_name not in names:
            raise self.error("engine-wrong-server", f"Another server answers on the arm's port: {names}.")
        return True

    def check(self) -> None:
        """Raises EngineError unless the server is alive and healthy."""
        if not self.is_running:
            raise self.error("engine-died", "The engine's server died.")
        try:
            status = self._http.get(f"{self.base_url}/health").status_code
        except httpx2.TransportError as error:
            name = type(error).__name__
            raise self.error("engine-unreachable", f"The server does not answer: {name}.") from error
        if status != 200:
            raise self.error(
                "engine-unhealthy", f"The server says that its engine is not healthy ({status})."
            )

    def rpc(self, method: str, *args: str, timeout_s: float = 60) -> tuple[dict[str, Any], ...]:
        """Calls a method of the worker extension in every worker; one answer a worker."""
        body = {"method": method, "args": list(args)}
        try:
            answer = self._http.post(f"{self.base_url}/collective_rpc", json=body, timeout=timeout_s)
        except httpx2.TransportError as error:
            raise self.error("engine-rpc", f"{method}: {type(error).__name__}.") from error
        if answer.status_code != 200:
            raise self.error("engine-rpc", f"{method}: HTTP {answer.status_code}: {answer.text[:300]}")
        return tuple(answer.json()["results"])

    def reset_prefix_cache(self) -> None:
        """Makes the engine forget what it could reuse of earlier requests; none may be running."""
        try:
            answer = self._http.post(f"{self.base_url}/reset_prefix_cache", json={}, timeout=60)
            is_done = answer.status_code == 200 and answer.json().get("success") is not False
        except (httpx2.TransportError, ValueError) as error:
            raise self.error("engine-rpc", f"reset_prefix_cache: {type(error).__name__}.") from error
        if not is_done:
            raise self.error(
                "engine-rpc", f"reset_prefix_cache: HTTP {answer.status_code}: {answer.text[:300]}"
            )

    def stop(self) -> None:
        """Stops the server in good order, and whatever of it is left by force. Safe to call twice."""
        if self._program is None:
            return
        try:
            if self._program.is_running and self._program.send(f"stop {self._stop_timeout_s}"):
                self._program.wait(self._stop_timeout_s + 15)
        finally:
            self.kill()

    def kill(self) -> None:
        """Kills every process of the server at once and removes its temporary folder."""
        self._is_ended = True
        self.end()
        self._http.close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None or issubclass(kind, Exception):
            self.stop()
        else:
            self.kill()


class Startable(Protocol):
    """An arm that is started, and killed where another did not start."""

    def start(self) -> None:
        """Returns once it answers; raises EngineError."""
        ...

    def kill(self) -> None:
        """Ends it at once."""
        ...


def start_together(servers: Sequence[Startable]) -> tuple[EngineError | None, ...]:
    """Starts servers at the same time; for each, why it did not start, or None. Ctrl-C kills them all."""
    with ThreadPoolExecutor(len(servers)) as pool:
        futures = [pool.submit(server.start) for server in servers]
        try:
            return tuple(_engine_error(future) for future in futures)
        except BaseException:
            for server in servers:
                server.kill()
            raise


def _engine_error(future: Future[None]) -> EngineError | None:
    try:
        future.result()
    except EngineError as error:
        return error
    return None


def _free_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
