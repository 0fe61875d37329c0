"""What is learned in which order: phases of growing length, each fed by commands that write chats."""

import json
import random
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from nano_training.chats import TokenizedChat, read_chats
from specialized_path.nano.tokenizer import PAD, special_token_id


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A command that writes chats as JSON lines; `{seed}` in it becomes the seed of the stream."""

    name: str
    command: str
    share: float
    """Relative number of sequences."""
    loss_weight: float
    """Weight of one learned token."""

    def read(self, seed: int) -> Iterator[TokenizedChat]:
        """Yields the chats of the command, which ends with the iterator."""
        command = shlex.split(self.command.replace("{seed}", str(seed)))
        command[0] = sys.executable if command[0] == "python" else command[0]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            try:
                yield from read_chats(process.stdout)
            finally:
                process.kill()


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """So many steps on sequences of one length."""

    steps: int
    length: int
    """Tokens of a sequence; longer chats are left out, shorter ones padded."""
    sequences: int
    """Sequences of a step and worker."""
    sources: tuple[Source, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """One step of one worker."""

    token_ids: Tensor
    """[B, T + 1]"""
    weights: Tensor
    """[B, T], of the prediction of each following token."""
    source: Tensor
    """[B], index of the source."""


def load_curriculum(path: Path) -> tuple[Phase, ...]:
    """Reads the phases; an unknown or missing key is a TypeError."""
    phases: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["phases"]
    return tuple(Phase(**p | {"sources": tuple(Source(**source) for source in p["sources"])}) for p in phases)


def batches(phase: Phase, seed: int) -> Iterator[Batch]:
    """Yields batches without end as long as the sources last; the same seed gives the same batches."""
    rng = random.Random(seed)
    with ExitStack() as stack:
        streams = [source.read(seed) for source in phase.sources]
        for stream in streams:
            stack.callback(stream.close)  # type: ignore[attr-defined]
        while True:
            picked = rng.choices(
                range(len(streams)), [source.share for source in phase.sources], k=phase.sequences
            )
            chats = [_next_that_fits(streams[index], phase.length) for index in picked]
            yield _batch(chats, picked, phase)


def _next_that_fits(stream: Iterator[TokenizedChat], length: int) -> TokenizedChat:
    return next(chat for chat in stream if len(chat.token_ids) <= length + 1)


def _batch(chats: list[TokenizedChat], picked: list[int], phase: Phase) -> Batch:
    token_ids = torch.full((len(chats), phase.length + 1), special_token_id(PAD))
    weights = torch.zeros(len(chats), phase.length)
    for row, (chat, index) in enumerate(zip(chats, picked, strict=True)):
        token_ids[row, : len(chat.token_ids)] = torch.tensor(chat.token_ids)
        learned = torch.tensor(chat.learned[1:], dtype=torch.float32)
        weights[row, : len(learned)] = learned * phase.sources[index].loss_weight
    return Batch(token_ids=token_ids, weights=weights, source=torch.tensor(picked))
