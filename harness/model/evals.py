"""The manifest's `[evals]`: where the questions of each suite come from, and how they are asked."""

from __future__ import annotations

from pydantic import Field

from harness.model.record import Record


class EvalSource(Record):
    """Where rows come from: a data set on the hub, files, or, where neither is named, the suite's generator."""

    hub: str = Field(default="", pattern=r"^([\w.-]+/[\w.-]+)?$")
    """A data set of the Hugging Face hub, "owner/name"."""
    revision: str = Field(default="", pattern=r"^([0-9a-f]{40})?$")
    """The commit of the data set; a branch or tag may move."""
    path: str = ""
    """A file or folder of `.jsonl` or `.parquet`, relative to the repository."""

    @property
    def is_generated(self) -> bool:
        """Whether the suite's own generator makes the rows."""
        return not (self.hub or self.path)

    @property
    def name(self) -> str:
        """Hub id with its commit, or the path; empty where the rows are generated."""
        return f"{self.hub}@{self.revision}" if self.hub else self.path


class MrcrSection(EvalSource):
    """Long-context retrieval: one answer a row, from a conversation of many messages."""

    lengths: tuple[int, ...] = ()
    """Upper bounds of the length bins, in tokens of prompt and answer, ascending. Default: the published bins for a
    data set, an eighth to the whole of `scope.max_context` for generated rows."""
    needles: tuple[int, ...] = Field(min_length=1, default=(2, 4, 8))
    """How many messages of the wanted kind generated conversations hold."""
    temperature: float = Field(ge=0, default=0.0)
    max_tokens: int = Field(ge=0, default=0)
    """Of an answer; 0: twice the reference answer and 16 more."""


class AimeSection(EvalSource):
    """Problems whose answer is an integer from 0 to 999, sampled several times each."""

    samples: int = Field(ge=1, default=64)
    """Answers to each problem; a profile may ask for fewer."""
    temperature: float = Field(gt=0, default=1.0)
    top_p: float = Field(gt=0, le=1, default=1.0)
    max_tokens: int = Field(ge=1, default=32_768)
    """Of an answer. What the context does not hold beyond the prompt is taken off."""
    instruction: str | None = None
    """What follows each problem of a data set; None: a request for the final answer in a box."""
    kinds: tuple[str, ...] = ()
    """Which kinds of problems to generate; default: all."""


class LmEvalTask(Record):
    """A task of lm-eval that every arm is put through."""

    task: str = Field(pattern=r"^[\w.:-]+$")
    include_path: str = ""
    """A folder with task definitions, relative to the repository. They can hold code, so they are read from the merge
    base."""
    chat: bool = False
    """Whether documents are asked as messages, through the chat template. Multiple choice takes plain text."""
    limit: int = Field(ge=0, default=0)
    """Documents, from the first; 0: all."""


class EvalsSection(Record):
    """The evaluation suites."""

    mrcr: MrcrSection = MrcrSection()
    aime: AimeSection = AimeSection()
    lm_eval: tuple[LmEvalTask, ...] = ()
