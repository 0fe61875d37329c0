"""Times decode on resident arms, one server busy at a time."""

from __future__ import annotations

from collections.abc import Mapping

from eval_suites.prompts import select_prompts
from harness.app.arm_session import ArmSession
from harness.app.recorder import Recorder, utc_now
from harness.app.suite_plan import SEED, CpuSizes
from harness.model.errors import EngineError
from harness.model.evidence import TimingEvidence
from harness.model.manifest import Manifest
from harness.model.words import Arm, Tier
from perf_sweeps.decode_latency import time_decode


def collect_timing(
    manifest: Manifest, recorder: Recorder, sizes: CpuSizes, sessions: Mapping[Arm, ArmSession]
) -> None:
    """Times decode at each batch of the manifest, candidate and A/A, with coverage off.

    Cells that are in evidence are not timed again.
    """
    done = {(cell.batch, cell.compares) for cell in recorder.evidence.of(TimingEvidence, tier=Tier.CPU)}
    cells = [
        (batch, compares)
        for batch in manifest.performance.decode_batches
        for compares in ((Arm.BASELINE, Arm.BASELINE_AGAIN), (Arm.BASELINE, Arm.CANDIDATE))
        if (batch, compares) not in done
    ]
    missing = [arm for arm in Arm if arm not in sessions or not sessions[arm].alive]
    if cells and missing:
        names = ", ".join(missing)
        recorder.gap(Tier.CPU, "timing", f"needs all arms; not running: {names}", broke=False)
        return
    if cells:
        for session in sessions.values():
            session.end_coverage()
    texts = select_prompts(64, seed=SEED + 4, min_bytes=24, max_bytes=48)

    def wake(awake: Arm) -> None:
        for arm, session in sessions.items():
            if arm is not awake:
                session.pause()
        sessions[awake].resume()

    for batch, compares in cells:
        what = f"timing at batch {batch}, {compares[0]} against {compares[1]}"
        recorder.progress.say(what)
        try:
            wake(Arm.BASELINE)
            cell = time_decode(
                {arm: session.completer for arm, session in sessions.items()},
                [sessions[Arm.BASELINE].tokenize(text) for text in texts],
                compares=compares,
                batch=batch,
                num_pairs=sizes.timing_pairs,
                num_tokens=sizes.timing_tokens,
                tier=Tier.CPU,
                hardware=recorder.hardware,
                recorded_at=utc_now,
                wake=wake,
            )
        except EngineError as error:
            recorder.broken(Tier.CPU, what, error)
        else:
            recorder.record(cell)
