"""Prompts of a sweep: seeded real text, a file of the user's, or, only when asked, random tokens.

Which experts a mixture model chooses depends on the text, so random tokens measure another load.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path

from harness.model.errors import ConfigurationError, EvidenceError
from perf_sweeps.cell import Cell

Tokenize = Callable[[str], tuple[int, ...]]
_SEPARATOR = "\n%\n"
MAX_TEXT_ATTEMPTS = 40


@cache
def shipped_passages() -> tuple[str, ...]:
    """Prose in seven languages, code, dialogue, tables and tool calls; all written for this project."""
    text = files("perf_sweeps").joinpath("texts/passages.txt").read_text("utf-8")
    return tuple(passage.strip("\n") for passage in text.split(_SEPARATOR))


def read_prompt_file(path: Path) -> tuple[str, ...]:
    """The prompts of a file: JSON lines with `prompt` (or `text`), or else passages between lines of a single %.

    Raises:
        ConfigurationError: The file cannot be read, is not UTF-8, or holds no text.
    """
    advice = 'Give JSON lines such as {"prompt": "..."}, or text with a line % between prompts.'
    try:
        text = path.read_text("utf-8").replace("\r\n", "\n")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError("prompt-file", f"{path}: {error}", advice) from error
    if text.lstrip().startswith("{"):
        found = [
            _prompt_of(line, f"{path}, line {n}", advice)
            for n, line in enumerate(text.split("\n"), 1)
            if line
        ]
    else:
        found = text.split(_SEPARATOR)
    prompts = tuple(prompt for prompt in found if prompt.strip())
    if not prompts:
        raise ConfigurationError("prompt-file", f"{path}: it holds no prompt.", advice)
    return prompts


def _prompt_of(line: str, where: str, advice: str) -> str:
    try:
        row = json.loads(line)
        prompt = row.get("prompt", row.get("text"))
    except (ValueError, AttributeError) as error:
        raise ConfigurationError("prompt-file", f"{where}: not a JSON object.", advice) from error
    if not isinstance(prompt, str):
        raise ConfigurationError(
            "prompt-file", f"{where}: there is no text under `prompt` or `text`.", advice
        )
    return prompt


class PromptSource:
    """Token ids of prompts; the same seed, passages and tokenizer give the same prompts on every machine."""

    def __init__(
        self,
        tokenize: Tokenize,
        passages: Sequence[str],
        *,
        seed: int,
        vocabulary: int | None = None,
        detokenize: Callable[[Sequence[int]], str] | None = None,
    ) -> None:
        """`vocabulary` is how many token ids there are, for random prompts; None refuses them, and None texts."""
        self._tokenize, self._detokenize = tokenize, detokenize
        self._passages = [tokenize(text) for text in passages]
        self._seed, self._vocabulary = seed, vocabulary

    def of(self, cell: Cell, block: int, round_: int = 0) -> tuple[tuple[int, ...], ...]:
        """One prompt a request of a visit, each of the cell's length.

        All visits of a block ask the same; other blocks, rounds and cells ask others. A prompt starts inside a passage
        of its own and goes on with passages in a seeded order.
        """
        return tuple(
            self._prompt(random.Random(f"{self._seed}/{cell.name}/{block}/{round_}/{index}"), cell)
            for index in range(cell.batch)
        )

    def texts(self, cell: Cell, block: int, round_: int = 0) -> tuple[str, ...]:
        """Such prompts as text, for a load generator that sends no token ids: each has the cell's length when read.

        Raises:
            EvidenceError: Tokens and text do not give each other back at this length, whichever stretch is tried.
        """
        return tuple(
            self._reversible(f"{self._seed}/{cell.name}/{block}/{round_}/{index}", cell)
            for index in range(cell.batch)
        )

    def _reversible(self, name: str, cell: Cell) -> str:
        assert self._detokenize is not None
        for attempt in range(MAX_TEXT_ATTEMPTS):
            text = self._detokenize(self._prompt(random.Random(f"{name}/text{attempt}"), cell))
            if len(self._tokenize(text)) == cell.input_len:
                return text
        raise EvidenceError(
            "prompt-text",
            f"{cell.name}: of {MAX_TEXT_ATTEMPTS} prompts none has {cell.input_len} tokens again once it is text.",
        )

    def stretch(self, name: str, count: int) -> tuple[int, ...]:
        """`count` tokens of text; the same for one name, whatever is asked between."""
        return self._text(random.Random(f"{self._seed}/{name}"), count)

    def _prompt(self, rng: random.Random, cell: Cell) -> tuple[int, ...]:
        if cell.prompts == "random":
            if self._vocabulary is None:
                raise ConfigurationError("random-prompts", "How many token ids there are is not known here.")
            return tuple(rng.randrange(self._vocabulary) for _ in range(cell.input_len))
        return self._text(rng, cell.input_len)

    def _text(self, rng: random.Random, count: int) -> tuple[int, ...]:
        first = self._passages[rng.randrange(len(self._passages))]
        tokens = list(first[rng.randrange(max(1, len(first))) :])
        while len(tokens) < count:
            tokens.extend(self._passages[rng.randrange(len(self._passages))])
        return tuple(tokens[:count])
