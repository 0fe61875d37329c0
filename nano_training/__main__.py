"""Trains the miniature on chats.

Usage: `python -m nano_training OUT_DIR [--curriculum FILE] [--start FILE] [--seconds N] [--device cuda]`. A run that
was stopped goes on from its last saved step when started again with the same directory. Results: `model.safetensors`
with the served names, and `curve.json`.
"""

import argparse
import os
import tempfile
import time
from pathlib import Path

import torch
from torch import multiprocessing

from nano_training.loop import Run, run_worker

DEFAULT_CURRICULUM = Path(__file__).with_name("curriculum.json")


def main() -> None:
    """Starts one process a worker and waits for them."""
    started = time.monotonic()
    parser = argparse.ArgumentParser(prog="python -m nano_training", description=__doc__)
    parser.add_argument("out_dir", type=Path)
    parser.add_argument("--curriculum", type=Path, default=DEFAULT_CURRICULUM)
    parser.add_argument("--seed", type=int, default=0, help="seed of the start and of the data (default: 0)")
    parser.add_argument("--start", type=Path, help="weights to go on from (default: those of the seed)")
    parser.add_argument("--seconds", type=float, help="budget (default: the steps of the curriculum)")
    parser.add_argument("--device", default="cpu", help="cpu (default) or cuda")
    parser.add_argument(
        "--workers", type=int, help="processes of one thread each (default: cores; 1 on a GPU)"
    )
    parser.add_argument(
        "--feeders", type=int, help="processes that make batches ahead (default: none; 3 on a GPU)"
    )
    parser.add_argument("--matrix-lr", type=float, default=0.02, help="peak, Muon (default: 0.02)")
    parser.add_argument("--vector-lr", type=float, default=0.004, help="peak, Adam (default: 0.004)")
    parser.add_argument(
        "--compile", action="store_true", help="compile the forward: a minute a length, then faster"
    )
    arguments = parser.parse_args()
    is_gpu = arguments.device != "cpu"
    if arguments.workers is None:
        arguments.workers = 1 if is_gpu else os.cpu_count() or 1
    if arguments.feeders is None:
        arguments.feeders = 3 if is_gpu else 0
    arguments.out_dir.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        run = Run(**vars(arguments), started=started, rendezvous=f"{folder}/rendezvous")
        multiprocessing.spawn(run_worker, args=(run,), nprocs=arguments.workers)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
