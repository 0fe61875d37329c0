"""What is learned in which order: phases of growing length, each fed by commands that write chats."""

import itertools
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
class Group:
    """Sequences of one length; a step takes them from one group."""

    share: float
    """Relative number of steps."""
    length: int
    """Tokens of a sequence; longer chats are left out, shorter ones padded."""
    sequences: int
    """Sequences of a step and worker."""
    sources: tuple[Source, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """So many steps on the same groups; in a run of so many seconds, its relative share of them."""

    steps: int
    groups: tuple[Group, ...]

    @property
    def source_names(self) -> list[str]:
        """The names of all sources, in the order that a batch numbers them."""
        return [source.name for group in self.groups for source in group.sources]


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """One step of one worker."""

    token_ids: Tensor
    """[B, T + 1]"""
    weights: Tensor
    """[B, T], of the prediction of each following token."""
    source: Tensor
    """[B], index of the source among all of the phase."""


def load_curriculum(path: Path) -> tuple[Phase, ...]:
    """Reads the phases; an unknown or missing key is a TypeError."""
    phases: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["phases"]
    return tuple(Phase(**p | {"groups": tuple(_group(group) for group in p["groups"])}) for p in phases)


def _group(row: dict[str, Any]) -> Group:
    return Group(**row | {"sources": tuple(Source(**source) for source in row["sources"])})


def batches(phase: Phase, seed: int) -> Iterator[Batch]:
    """Yields batches without end as long as the sources last; the same seed gives the same batches."""
    rng = random.Random(seed)
    with ExitStack() as stack:
        streams = [source.read(seed) for group in phase.groups for source in group.sources]
        for stream in streams:
            stack.callback(stream.close)  # type: ignore[attr-defined]
        firsts = [0, *itertools.accumulate(len(group.sources) for group in phase.groups)]
        while True:
            number = 0
            if len(phase.groups) > 1:
                number = rng.choices(range(len(phase.groups)), [group.share for group in phase.groups])[0]
            group, first = phase.groups[number], firsts[number]
            shares = [source.share for source in group.sources]
            picked = rng.choices(range(len(shares)), shares, k=group.sequences)
            chats = [_next_that_fits(streams[first + index], group.length) for index in picked]
            yield _batch(chats, picked, group, first)


def _next_that_fits(stream: Iterator[TokenizedChat], length: int) -> TokenizedChat:
    return next(chat for chat in stream if len(chat.token_ids) <= length + 1)


def _batch(chats: list[TokenizedChat], picked: list[int], group: Group, first: int) -> Batch:
    token_ids = torch.full((len(chats), group.length + 1), special_token_id(PAD))
    weights = torch.zeros(len(chats), group.length)
    for row, (chat, index) in enumerate(zip(chats, picked, strict=True)):
        token_ids[row, : len(chat.token_ids)] = torch.tensor(chat.token_ids)
        learned = torch.tensor(chat.learned[1:], dtype=torch.float32)
        weights[row, : len(learned)] = learned * group.sources[index].loss_weight
    return Batch(token_ids=token_ids, weights=weights, source=torch.tensor(picked) + first)
