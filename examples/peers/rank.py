"""One process of a job: makes itself ready, waits for a line, goes through its parts and writes what it saw."""

from __future__ import annotations

import argparse
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

from examples.peers import parts, timing
from examples.peers.data import INPUTS
from examples.peers.exchange import NUM_BLOCKS
from examples.peers.facts import AbsenceFacts, ExchangeFacts, TimingFacts
from examples.peers.loss import exchange_until_lost
from examples.peers.plan import BATCHES, LOSSES
from examples.peers.record import ROOT
from examples.peers.rows import compile_rows, rows
from examples.peers.session import Session
from harness.kernels.sources import imported_sources
from specialized_path.kernels.attn_res.variants import HIDDEN, MAX_BATCH, Update
from specialized_path.kernels.attn_res.variants import find_variant as find_attn_res
from specialized_path.kernels.exchange.variants import consume_variant, publish_variant, reduce_variant
from specialized_path.kernels.projection.variants import find_variant as find_projection

_MEETING_LIMIT = timedelta(seconds=90)
RUNS: dict[str, Callable[[Session], Iterator[ExchangeFacts | AbsenceFacts | TimingFacts]]] = {
    "payloads": parts.payloads,
    "iterations": parts.iterations,
    "delays": parts.delays,
    "absence": parts.absence,
    "times": timing.times,
    "rows": rows,
}


def compile_all(num_ranks: int) -> None:
    """Every kernel that a part launches: a compilation in the middle would be taken for a rank that is late."""
    updates: tuple[Update, ...] = ("add", "replace")
    for update in updates:
        find_attn_res(NUM_BLOCKS, update).kernel.compiled()
    for is_two_shot in (False, True):
        for update in updates:
            consume_variant(num_ranks, NUM_BLOCKS, update, is_two_shot, MAX_BATCH).compiled()
        for batch in BATCHES:
            publish_variant(INPUTS, batch, num_ranks, is_two_shot).compiled()
    for batch in BATCHES:
        find_projection(HIDDEN, INPUTS, batch).kernel.compiled()
    reduce_variant(num_ranks, MAX_BATCH).compiled()


def work(session: Session, names: list[str]) -> None:
    """The parts one after the other, each case's facts as soon as they are there."""
    for name in names:
        if name in LOSSES:
            exchange_until_lost(session)
            continue
        for facts in RUNS[name](session):
            session.say("facts", part=name, facts=facts.model_dump(mode="json"))


def main() -> None:
    """Ends with 1 when something was raised; that is written as well."""
    parser = argparse.ArgumentParser(prog="python -m examples.peers.rank", description=__doc__)
    for name in ("process", "gpu", "num-processes", "num-ranks", "num-iterations"):
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--case-s", type=float, required=True)
    parser.add_argument("--lines", type=Path, required=True)
    parser.add_argument(
        "--meeting", type=Path, required=True, help="a file that the processes find each other by"
    )
    parser.add_argument("--parts", nargs="+", required=True)
    options = vars(parser.parse_args())
    meeting, names = options.pop("meeting").resolve(), options.pop("parts")
    session = Session(**options)
    code = 1
    try:
        torch.cuda.set_device(session.device)
        torch.zeros(1, device=session.device)
        compile_all(session.num_ranks)
        if "rows" in names:
            compile_rows(session.num_ranks)
        dist.init_process_group(
            "gloo",
            init_method=meeting.as_uri(),
            rank=session.process,
            world_size=session.num_processes,
            timeout=_MEETING_LIMIT,
        )
        session.meet()
        session.say("ready", sources=imported_sources(ROOT))
        # Without a line the supervisor is gone.
        if sys.stdin.readline():
            work(session, names)
            code = 0
    except Exception:
        session.say("raised", why=traceback.format_exc(limit=-3))
    finally:
        sys.stdout.flush()
        # Communicators with a lost peer do not end.
        os._exit(code)


if __name__ == "__main__":
    main()
