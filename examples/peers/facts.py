"""What a process saw of one case: plain numbers, from which verdicts are made elsewhere."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from harness.model.record import Record


class ExchangeFacts(Record):
    """Exchanges in one form, compared with the sum in the order of the ranks."""

    kind: Literal["exchange"] = "exchange"
    case: str
    asked: int = Field(ge=1)
    """Exchanges that were to run."""
    ran: int = Field(ge=0)
    """Exchanges that did."""
    wrong_elements: int = Field(ge=0)
    """Elements of output and new prefix, over all exchanges, whose bits are not those of the sum."""
    digest: str
    """Of outputs (payloads), or of the expected ones that every exchange was compared with."""
    full_words: int = Field(ge=0)
    """Words of this process's boxes that were not empty afterwards."""
    error_words: tuple[int, ...]
    """Of this process's ranks: 0, or 1 + the rank that it gave up on."""
    seconds: float = Field(ge=0)
    late_process: int | None = None
    """The process that was held up."""
    elapsed_ms: float | None = None
    """GPU time of the exchanges where a process was held up."""


class AbsenceFacts(Record):
    """An exchange that one rank takes no part in, and one after the boxes were emptied."""

    kind: Literal["absence"] = "absence"
    case: str
    absent_rank: int = Field(ge=0)
    error_words: tuple[int, ...]
    rows_are_nan: bool
    """Whether every output of the failed exchange is NaN."""
    seconds: float = Field(ge=0)
    wrong_elements_after: int = Field(ge=0)
    """Of the exchange after the boxes were emptied."""
    full_words_after: int = Field(ge=0)


class LossFacts(Record):
    """How a process stopped after another was killed or held in the middle of exchanges."""

    kind: Literal["loss"] = "loss"
    case: str
    exchanges: int = Field(ge=0)
    """Before the one that failed, a few more or less."""
    error_words: tuple[int, ...]
    rows_are_nan: bool
    """Whether the last output is all NaN."""
    stopped_s: float
    """From the signal to the moment at which this process knew that it had to stop."""
    message: str
    """What it said."""


class TimingFacts(Record):
    """Microseconds of an output projection, its all-reduce and the attention residual behind it, at one batch."""

    kind: Literal["timing"] = "timing"
    case: str
    batch: int = Field(ge=1)
    samples_us: dict[str, tuple[float, ...]]
    """By arm, one value a round: a graph's GPU time over its number of exchanges."""
    full_words: int = Field(ge=0)
    error_words: tuple[int, ...]
    wrong_elements: int = Field(ge=0)
    """Of the last outputs of both forms, whose bits are not the sum's."""
    baseline_error: float = Field(ge=0)
    """Relative L2 error of NCCL's last outputs, against the sum in the order of the ranks."""


Facts = Annotated[ExchangeFacts | AbsenceFacts | LossFacts | TimingFacts, Field(discriminator="kind")]


class Answer(Record):
    """What one process of a part answered."""

    process: int = Field(ge=0)
    facts: tuple[Facts, ...]
    """By case, as they came."""
    trouble: str | None
    """Why there are no more: what it raised, the signal that ended it, or that it did not answer in time."""
