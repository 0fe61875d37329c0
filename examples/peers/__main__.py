"""The exchanges of Kimi K3's decode path among 2, 4 or 8 GPUs of one host, in one run of less than ten minutes."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from examples.peers.plan import GPUS, render_plan
from examples.peers.record import RunRecord, changed_sources, render_summary
from examples.peers.run import run
from harness.model.words import Outcome

_EXIT = {Outcome.PASS: 0, Outcome.FAIL: 1}


def main() -> int:
    """0 when every part passed, 1 when one failed, 3 otherwise."""
    parser = argparse.ArgumentParser(prog="python -m examples.peers", description=__doc__)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--ranks", type=int, choices=GPUS, help="GPUs, one process each")
    what.add_argument(
        "--check", type=Path, metavar="RECORD", help="decides a record's answers again, for these sources"
    )
    parser.add_argument("--plan", action="store_true", help="says what would run, and runs nothing")
    parser.add_argument("--out", type=Path, default=Path("peers.json"), help="the record")
    parser.add_argument("--iterations", type=int, default=100_000, help="exchanges of each long case")
    parser.add_argument("--limit", type=float, default=540.0, help="seconds for everything")
    parser.add_argument(
        "--one-gpu",
        action="store_true",
        help="all processes on the first GPU, to try the command out: shows nothing of NVLink, and no times",
    )
    parser.add_argument(
        "--logs", type=Path, help="folder of what the processes print; none is kept without it"
    )
    options = parser.parse_args()
    if options.check:
        return _check(RunRecord.model_validate_json(options.check.read_bytes()))
    if options.plan:
        print(render_plan(options.ranks, options.iterations))
        return 0
    with tempfile.TemporaryDirectory() as scratch:
        record = run(
            options.ranks,
            one_gpu=options.one_gpu,
            num_iterations=options.iterations,
            limit_s=options.limit,
            folder=options.logs or Path(scratch),
            out=options.out,
        )
    print(render_summary(record))
    return _EXIT.get(record.outcome, 3)


def _check(record: RunRecord) -> int:
    """The outcome of a record, which a run of other sources, or of unknown ones, cannot pass."""
    print(render_summary(record))
    changed = changed_sources(record) if record.sources else ["the record names none"]
    if changed:
        print(f"not of the sources at hand: {', '.join(changed)}")
    return 3 if changed and record.outcome is Outcome.PASS else _EXIT.get(record.outcome, 3)


if __name__ == "__main__":
    sys.exit(main())
