"""One arm as a running OpenAI API server: started, watched, paused and stopped without leaving anything behind."""

from __future__ import annotations

import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx2

from harness.engine.arm_spec import ArmSpec
from harness.engine.log_tail import read_first_error, read_log_tail
from harness.engine.supervised import Supervised
from harness.engine.trace_settings import write_settings
from harness.model.errors import EngineError

LOG_TAIL_LINES = 40


class ArmServer:
    """Serves an arm between `start` and `stop`; use it as a context manager.

    Whatever ends the harness, also SIGKILL, ends every process of the server.
    """

    def __init__(
        self,
        spec: ArmSpec,
        *,
        command: Callable[[int], Sequence[str]] | None = None,
        ready_timeout_s: float = 240,
        stop_timeout_s: float = 15,
    ) -> None:
        """`command` gives the command line for a port; None runs vLLM."""
        self.spec = spec
        self.ready_s: float | None = None
        """Seconds from the start to the first healthy answer."""
        self.port = 0
        self._command = command or spec.command
        self._ready_timeout_s = ready_timeout_s
        self._stop_timeout_s = stop_timeout_s
        self._program: Supervised | None = None
        self._temp_dir = Path()
        self._is_ended = False
        self._http = httpx2.Client(trust_env=False, timeout=10)

    @property
    def base_url(self) -> str:
        """Where the server listens."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def is_running(self) -> bool:
        """Whether the server's process is alive."""
        return self._program is not None and self._program.is_running

    @property
    def log_tail(self) -> tuple[str, ...]:
        """The log's last lines, without secrets and paths of this machine: untrusted text."""
        return read_log_tail(self.spec.log_path, LOG_TAIL_LINES, self._public_names)

    @property
    def _public_names(self) -> dict[str, str]:
        spec = self.spec
        return {
            str(self._temp_dir): "{tmp}",
            str(spec.ledger_dir): "{ledger}",
            str(spec.model_dir): "{model}",
            str(spec.import_path): "{head}",
            str(Path(__file__).resolve().parents[2]): "{harness}",
            sys.prefix: "{python}",
            sys.base_prefix: "{python}",
            str(Path.home()): "~",
        }

    def error(self, slug: str, message: str, advice: str = "") -> EngineError:
        """An error about this server: names the first exception in its log and carries the last lines."""
        cause = read_first_error(self.spec.log_path, self._public_names)
        text = f"{self.spec.arm}: {message}" + (f" First error in its log: {cause}" if cause else "")
        return EngineError(slug, text, advice, "\n".join(self.log_tail))

    def start(self) -> None:
        """Starts the server and waits until it answers; raises EngineError if it dies or takes too long."""
        if self._is_ended:
            raise self.error("engine-ended", "It was stopped before it was started.")
        started = time.monotonic()
        self.spec.ledger_dir.mkdir(parents=True, exist_ok=True)
        write_settings(self.spec.trace_settings, self.spec.settings_path)
        self._temp_dir = Path(tempfile.mkdtemp(prefix="fasttrack-"))
        self.port = _free_port()
        try:
            self._launch()
            self._wait_until_ready(started + self._ready_timeout_s)
        except BaseException:
            self.kill()
            raise
        self.ready_s = time.monotonic() - started

    def _launch(self) -> None:
        self._program = Supervised(self._temp_dir, self.spec.log_path)
        command, env = self._command(self.port), self.spec.environment(self._temp_dir)
        if not self._program.launch(command, env, warm=self.spec.starts_warm):
            raise self.error("engine-start", "The server's command could not be run.")

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

    def pause(self) -> None:
        """Stops every process of the server (SIGSTOP), so that an idle arm takes no time from a timed one."""
        self._tell("pause")

    def resume(self) -> None:
        """Lets a paused server go on."""
        self._tell("resume")

    def _tell(self, word: str) -> None:
        if self._program is None or not self._program.tell(word):
            raise self.error("engine-died", f"The server cannot {word}: it is gone.")

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
        if self._program is not None:
            self._program.kill()
        elif self._temp_dir != Path():
            shutil.rmtree(self._temp_dir, ignore_errors=True)
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


def start_together(servers: Sequence[ArmServer]) -> tuple[EngineError | None, ...]:
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
