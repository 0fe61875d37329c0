"""Drives `vllm bench serve`: one process of it, given the arguments of one visit after the other."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from harness.engine.arm_spec import PASSED_ON
from perf_sweeps.bench_process import DONE, READY
from perf_sweeps.bench_result import BenchResultError

START_S = 180.0
VISIT_S = 1800.0
ROOT = Path(__file__).resolve().parents[1]
COMMAND = (sys.executable, "-P", "-m", "perf_sweeps.bench_process")


class BenchDriver:
    """The load generator beside a host's servers. It ends with this process: its input is a pipe from here."""

    def __init__(self, folder: Path, *, command: Sequence[str] = COMMAND) -> None:
        """`folder` exists and takes data sets, results and the generator's log."""
        self._folder, self._command = folder, command
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Starts the generator unless it runs, and waits until it is ready; raises `BenchResultError`."""
        if self._process is not None:
            return
        env = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
        env |= {"HOME": str(self._folder), "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}
        env |= {"OMP_NUM_THREADS": "1", "TORCHDYNAMO_DISABLE": "1", "PYTHONPATH": str(ROOT)}
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, env=env, text=True
            )
        self._expect(READY, START_S)

    def run(self, arguments: Sequence[str], prompts: Sequence[str]) -> str:
        """The text of the result that the generator saved for these arguments and prompts.

        Raises:
            BenchResultError: It ended, said nothing in time, or saved nothing. The next visit starts it anew.
        """
        self.start()
        assert self._process is not None and self._process.stdin is not None
        dataset, result = self._folder / "prompts.jsonl", self._folder / "result.json"
        rows = (json.dumps({"prompt": text}) + "\n" for text in prompts)
        dataset.write_text("".join(rows), encoding="utf-8")
        result.unlink(missing_ok=True)
        where = ("--dataset-path", str(dataset), "--result-dir", str(self._folder), "--save-result")
        line = json.dumps([*arguments, *where, "--result-filename", result.name])
        try:
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._gone() from None
        self._expect(DONE, VISIT_S)
        try:
            return result.read_text("utf-8")
        except OSError as error:
            raise BenchResultError("vllm bench serve saved no result.") from error

    def close(self) -> None:
        """Ends the generator. Safe to call twice."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.communicate()

    @property
    def _log(self) -> Path:
        return self._folder / "bench.log"

    def _expect(self, word: str, timeout_s: float) -> None:
        assert self._process is not None and self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], timeout_s)
        if not ready:
            self.close()
            raise BenchResultError(f"vllm bench serve gave no answer within {timeout_s:g} s.")
        if self._process.stdout.readline().strip() != word:
            raise self._gone()

    def _gone(self) -> BenchResultError:
        """Its last line says why: Python's own, of the error that ended it."""
        self.close()
        lines = self._log.read_text("utf-8", "replace").strip().splitlines()
        return BenchResultError(f"vllm bench serve ended: {lines[-1][:300] if lines else 'it said nothing'}")
