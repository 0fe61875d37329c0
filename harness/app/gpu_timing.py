"""Collects timings of decode on a GPU: three resident engines of the slice, one of which computes at a time.

Once all is timed, short blocks are profiled.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from harness.app.arm_evidence import ArmServerRecord, keep_started, record_server
from harness.app.arm_session import additional_config
from harness.app.decode_timing import collect_timing
from harness.app.probes import ENGINE_ENV, ProbeRun, cache_of
from harness.app.recorder import Recorder
from harness.engine.arm_spec import ArmSpec
from harness.engine.block_server import BlockServer
from harness.facts.gpu_state import find_gpu_reader
from harness.model.errors import EngineError
from harness.model.words import Arm, Tier

FOLDER = "timing"
"""Below the run's arms: a folder for each arm."""
SHARES_CACHE = {Arm.BASELINE: "twin", Arm.BASELINE_AGAIN: "twin", Arm.CANDIDATE: "candidate"}
"""The scripted process with the same switch, whose compiled kernels an arm finds: nothing that the candidate compiled
is run for a baseline."""
MANY = 16
"""Requests from which on a block's answers are shorter: the step takes longer, and so does a row of the ledger."""


def num_tokens(batch: int) -> int:
    """Tokens of each answer: some 0.4 s of decode a block, at 2 to 7 ms a step."""
    return 160 if batch <= MANY else 64


class BlockSession:
    """An arm that serves blocks on a GPU."""

    def __init__(self, run: ProbeRun, arm: Arm, args: Sequence[str], folder: Path) -> None:
        manifest = run.manifest
        self._spec = ArmSpec(
            arm=arm,
            model_dir=run.model_dir,
            import_path=run.head_path,
            import_roots=manifest.paths.import_roots,
            dispatch=manifest.dispatch,
            ledger_dir=folder,
            nonce=secrets.token_hex(8),
            max_model_len=manifest.gpu_model.max_model_len,
            additional_config=additional_config(manifest, arm),
            cache_dir=cache_of(run, SHARES_CACHE[arm]),
            env=ENGINE_ENV[Tier.GPU],
        )
        asked = [a.replace("{model}", str(run.model_dir)) for a in args]
        self._server = BlockServer(self._spec, asked, weights=run.weights, gives_tokens=True)
        self._failure = ""
        self._log_tail: tuple[str, ...] = ()
        self._was_killed = False

    @property
    def alive(self) -> bool:
        """Whether the engine is ready and runs."""
        return self._server.is_running

    @property
    def completer(self) -> BlockServer:
        """The process itself."""
        return self._server

    def start(self) -> None:
        """Starts the engine; remembers a failure for the evidence and raises it again."""
        try:
            self._server.start()
        except EngineError as error:
            self._failure = error.message
            self._log_tail = tuple(error.log_tail.splitlines())
            raise
        keep_started(self._record, self._spec.ledger_dir)

    def tokenize(self, text: str) -> tuple[int, ...]:
        """The served model's tokens."""
        return self._server.tokenize(text)

    def end_coverage(self) -> None:
        """None was begun."""

    def pause(self) -> None:
        """Stops the process where it is."""
        self._server.pause()

    def resume(self) -> None:
        """Lets it go on."""
        self._server.resume()

    def kill(self) -> None:
        """Kills the process; that is no death of the engine's own."""
        self._was_killed = True
        self._server.kill()

    def close(self, recorder: Recorder) -> None:
        """Stops the engine and records arm and ledger."""
        if self._was_killed:
            self._failure = self._failure or "stopped before its work was done"
        elif self._server.ready_s is not None and not self.alive:
            self._failure = "the engine died before it was stopped"
            self._log_tail = self._log_tail or self._server.log_tail
        try:
            if self.alive:
                self.resume()
        except EngineError as error:
            self._failure = error.message
        finally:
            self._server.stop()
        record_server(
            self._record,
            self._spec.ledger_dir,
            self._spec.import_path,
            recorder,
            failure=self._failure,
            log_tail=self._log_tail,
        )

    @property
    def _record(self) -> ArmServerRecord:
        return ArmServerRecord(
            arm=self._spec.arm,
            tier=Tier.GPU,
            nonce=self._spec.nonce,
            command=self._server.command,
            additional_config=dict(self._spec.additional_config),
            ready_s=self._server.ready_s,
            weights=self._server.weights,
            coverage_globs=(),
        )


def collect_gpu_timing(
    run: ProbeRun,
    args_of: Callable[[Arm], Sequence[str]],
    *,
    num_pairs: int,
    meanwhile: Callable[[], None] = lambda: None,
) -> None:
    """Starts the arms side by side, times them by turns, and records cells, arms and ledgers.

    `meanwhile` is done while they start; nothing is timed before it has ended. Whatever ends it, no engine is left; one
    that does not start leaves a gap.
    """
    folder = run.workdir.parent / FOLDER
    sessions = {arm: BlockSession(run, arm, args_of(arm), folder / arm.value) for arm in Arm}

    def start(session: BlockSession) -> None:
        try:
            session.start()
        except EngineError as error:
            run.recorder.broken(Tier.GPU, f"arm {session.completer.spec.arm}", error)

    def profile(arm: Arm, word: str) -> Mapping[str, Any]:
        server = sessions[arm].completer
        (answer,) = server.rpc("fasttrack_profile", word)
        if problem := answer.get("problem"):
            raise server.error("profile-failed", f"Its steps could not be profiled: {problem}.")
        return answer

    observe, why_not = find_gpu_reader()
    if why_not:
        run.recorder.progress.say(f"clocks and temperature are not recorded: {why_not}")
    run.recorder.progress.say("timing: starting three engines")
    try:
        with ThreadPoolExecutor(len(sessions) + 1) as pool:
            other = pool.submit(meanwhile)
            try:
                list(pool.map(start, sessions.values()))
                other.result()
            except BaseException:
                for session in sessions.values():
                    session.kill()
                raise
        collect_timing(
            run.manifest,
            run.recorder,
            sessions,
            tier=Tier.GPU,
            num_pairs=num_pairs,
            num_tokens=num_tokens,
            observe=observe,
            profiler=profile,
            gives_tokens=all(session.completer.gives_tokens for session in sessions.values()),
        )
    except BaseException:
        for session in sessions.values():
            session.kill()
        raise
    finally:
        for session in sessions.values():
            session.close(run.recorder)
