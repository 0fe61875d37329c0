"""Batches made ahead by other processes, so that a GPU does not wait for chats."""

import multiprocessing
import queue
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.process import BaseProcess
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Event

import torch

from nano_training.curriculum import Batch, Phase, batches

_AHEAD = 8
"""Batches that wait for each process."""
_GLANCE_SECONDS = 0.2
"""How often a process that waits looks whether the others are still there."""


@contextmanager
def feed(phase: Phase, seeds: list[int]) -> Iterator[Iterator[Batch]]:
    """Gives the batches of one process a seed, in the order in which they are made; the processes end with it.

    Raises:
        RuntimeError: While batches are taken: a process ended, as it does when a source has no more chats.
    """
    context = multiprocessing.get_context("spawn")
    made, stop = context.Queue(_AHEAD * len(seeds)), context.Event()
    processes = [context.Process(target=_fill, args=(phase, seed, made, stop)) for seed in seeds]
    for process in processes:
        process.start()
    try:
        yield _taken(made, processes)
    finally:
        stop.set()
        for process in processes:
            process.join()


def _taken(made: "Queue[tuple]", processes: Sequence[BaseProcess]) -> Iterator[Batch]:
    while True:
        try:
            token_ids, weights, source = map(torch.from_numpy, made.get(timeout=_GLANCE_SECONDS))
        except queue.Empty:
            if not all(process.is_alive() for process in processes):
                raise RuntimeError("a process that makes batches ended") from None
            continue
        yield Batch(token_ids=token_ids.long(), weights=weights, source=source)


def _fill(phase: Phase, seed: int, made: "Queue[tuple]", stop: Event) -> None:
    torch.set_num_threads(1)
    made.cancel_join_thread()
    for batch in batches(phase, seed):
        # As arrays: a tensor would travel through shared memory, of which a container has little.
        arrays = (batch.token_ids.to(torch.int16).numpy(), batch.weights.numpy(), batch.source.numpy())
        while not stop.is_set():
            try:
                made.put(arrays, timeout=_GLANCE_SECONDS)
                break
            except queue.Full:
                continue
        if stop.is_set():
            return
