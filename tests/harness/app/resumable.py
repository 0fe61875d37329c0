"""A collection over pretended servers that leave what real ones leave; run as a program, it can be killed.

Usage: `python -m tests.harness.app.resumable OUT WORK KILL_AFTER`: kills itself, as `kill -9` does, once the candidate
has answered `KILL_AFTER` suites; 0 lets it end. Every suite that a server is asked is a line of `OUT.asked`.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from bundles.partial import begin, reopen
from bundles.writer import EvidenceStore
from harness.app.arm_evidence import ArmServerRecord, keep_started, record_server
from harness.app.arm_session import ArmPlan, additional_config
from harness.app.cpu_tier import CpuRun, collect_cpu_tier
from harness.app.recorder import Progress, Recorder
from harness.app.resuming import RUN_FOLDER, mark_run, recover
from harness.app.suite_plan import CpuSizes
from harness.config import load_manifest
from harness.model.change import Change
from harness.model.completion import Completer, CompletionRequest
from harness.model.evaluation import ChatMessage, SuiteItem
from harness.model.evidence import AnyEvidence
from harness.model.manifest import Manifest
from harness.model.words import Arm

ROOT = Path(__file__).resolve().parents[3]
CHANGE = Change(base="a" * 40, merge_base="a" * 40, head="b" * 40, head_subject="made")
ABOUT = {
    "manifest_text": (ROOT / "fasttrack.toml").read_text(),
    "policy_text": 'schema_version = 1\nversion = "t"\n',
}
SIZES = CpuSizes(
    num_greedy_prompts=2,
    num_forced_prompts=2,
    num_tokens=2,
    num_sampling_prompts=1,
    num_structured_prompts=1,
    num_full_context_prompts=1,
    num_feature_prompts=0,
    num_mrcr_rows=3,
    num_aime_rows=2,
    num_aime_samples=2,
    num_control_requests=2,
    with_probes=False,
    timing_pairs=0,
)
_LOCK = threading.Lock()


class PretendedSession:
    """Answers every request, and writes the ledger of it, as it is asked."""

    def __init__(self, plan: ArmPlan, asked: Path, kill_after: int) -> None:
        self._plan, self._asked, self._kill_after = plan, asked, kill_after
        self._num_suites = 0
        self._step = 0
        self.ready_s: float | None = None
        self.command = ("pretend", plan.arm.value)
        self._server = ArmServerRecord(
            arm=plan.arm,
            nonce=secrets.token_hex(8),
            command=self.command,
            additional_config=additional_config(plan.manifest, plan.arm),
            ready_s=1.0,
            coverage_globs=(),
        )

    alive = True

    @property
    def completer(self) -> Completer:
        return self

    def start(self) -> None:
        self._plan.workdir.mkdir(parents=True)
        dispatch = self._plan.manifest.dispatch
        targets = {
            *dispatch.baseline_code,
            *dispatch.specialized_code,
            *(d.target for d in dispatch.decisions),
        }
        self._write(kind="header", nonce=self._server.nonce, pid=1)
        self._write(
            kind="proof",
            nonce=self._server.nonce,
            marker_seen=True,
            wrapped=sorted(targets),
            missing={},
            step_hooks=["Runner.execute_model"],
        )
        keep_started(self._server, self._plan.workdir)
        self.ready_s = self._server.ready_s

    def _write(self, **fields: object) -> None:
        with (self._plan.workdir / "1.jsonl").open("a") as file:
            file.write(json.dumps(fields) + "\n")

    def tokenize(self, text: str) -> tuple[int, ...]:
        return tuple(text.encode())

    def count_prompt(self, messages: Sequence[ChatMessage]) -> int:
        return sum(len(message.content) + 2 for message in messages)

    def begin_suite(self, name: str) -> None:
        if self._plan.arm is Arm.CANDIDATE and self._kill_after and self._num_suites == self._kill_after:
            os.kill(os.getpid(), signal.SIGKILL)
        self._num_suites += 1
        with _LOCK, self._asked.open("a") as file:
            file.write(f"{name} on {self._plan.arm}\n")

    def complete_many(
        self, requests: Sequence[CompletionRequest], *, concurrency: int, suite: str, together: bool = False
    ) -> tuple[SuiteItem, ...]:
        return tuple(self._complete(request, concurrency, suite) for request in requests)

    def _complete(self, request: CompletionRequest, concurrency: int, suite: str) -> SuiteItem:
        tokens = request.force_token_ids or (7,) * min(2, request.max_tokens)
        request_id = f"{suite}-{self._server.nonce[:8]}-{self._step}r"
        part = {"request_id": f"cmpl-{request_id}-0", "num_scheduled_tokens": 1, "num_prefill_tokens": 0}
        self._write(
            kind="row",
            step=self._step,
            started_ns=time.monotonic_ns(),
            duration_ns=1,
            num_reqs=1,
            requests=[part | {"num_emitted_tokens": len(tokens)}],
            decisions=[],
            ran={},
        )
        self._step += 1
        return SuiteItem(
            item=request.item,
            request_id=request_id,
            row=request.row,
            sample=request.sample,
            concurrency=concurrency,
            num_prompt_tokens=1,
            token_ids=tokens,
            text="",
            finish_reason="length",
            num_completion_tokens=len(tokens),
        )

    def perturb(self, amplitude: float, seed: int) -> int:
        return 1

    def end_suite(self) -> None: ...

    def end_coverage(self) -> None: ...

    def pause(self) -> None: ...

    def resume(self) -> None: ...

    def kill(self) -> None: ...

    def close(self, recorder: Recorder) -> None:
        record_server(self._server, self._plan.workdir, self._plan.import_path, recorder)


def manifest() -> Manifest:
    found = load_manifest(ABOUT["manifest_text"])
    nano = found.nano_model.model_copy(update={"build": ("-c", "pass")})
    return found.model_copy(update={"models": found.models.model_copy(update={"nano": nano})})


def collect(out: Path, kill_after: int = 0, *, resume: bool = False) -> tuple[AnyEvidence, ...]:
    """Collects into `out`, or goes on with what is there; the records at the end."""
    kept = reopen(out, change=CHANGE, **ABOUT) if resume else None
    store = EvidenceStore(out, kept=kept)
    recorder = Recorder(sink=store, progress=Progress(quiet=True), records=list(kept or ()))
    if kept is None:
        begin(out, change=CHANGE, **ABOUT)
    else:
        recover(out, recorder)
    folder = Path(tempfile.mkdtemp(prefix=f"{RUN_FOLDER}{os.getpid()}-"))
    mark_run(folder, out)
    (folder / "arms").mkdir()
    asked = out.with_suffix(".asked")
    collect_cpu_tier(
        CpuRun(
            manifest=manifest(),
            recorder=recorder,
            change=CHANGE,
            import_path=folder,
            base_path=folder,
            workdir=folder / "arms",
            data_root=folder,
            tasks_root=folder,
            sizes=SIZES,
            open_session=lambda plan: PretendedSession(plan, asked, kill_after),
            collect_probes=lambda _: None,
        )
    )
    return store.records


if __name__ == "__main__":
    tempfile.tempdir = sys.argv[2]
    collect(Path(sys.argv[1]), int(sys.argv[3]))
