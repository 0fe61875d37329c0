"""Times of the arms by batch, over all processes, and the batch from which two-shot is the faster form. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median, quantiles

from examples.peers.facts import Answer, TimingFacts
from harness.model.record import Record


class Spread(Record):
    """Microseconds over the rounds."""

    q1: float
    median: float
    q3: float


class BatchTimes(Record):
    """One batch; of each round the slowest process counts."""

    batch: int
    arms: dict[str, Spread]
    against_nccl: dict[str, float]
    """Ratio of medians, of the arms that are not NCCL's."""
    faster_form: str | None
    """None where the quartiles of the two forms overlap."""


class Fit(Record):
    """The refit of the choice between one-shot and two-shot."""

    by_batch: tuple[BatchTimes, ...]
    two_shot_from_batch: int | None
    """The smallest measured batch from which on two-shot is faster at every measured one; None where there is none."""


def fit_times(answers: Sequence[Answer]) -> Fit:
    """The times of a part in which every process answered for every batch."""
    cells = [[facts for facts in answer.facts if isinstance(facts, TimingFacts)] for answer in answers]
    by_batch = [_batch_times(seen) for seen in zip(*cells, strict=True)]
    start = None
    for row in sorted(by_batch, key=lambda row: -row.batch):
        if row.faster_form != "two-shot":
            break
        start = row.batch
    return Fit(by_batch=tuple(by_batch), two_shot_from_batch=start)


def _batch_times(seen: Sequence[TimingFacts]) -> BatchTimes:
    arms = {}
    for arm in seen[0].samples_us:
        slowest = [max(values) for values in zip(*(facts.samples_us[arm] for facts in seen), strict=True)]
        q1, _, q3 = quantiles(slowest, n=4, method="inclusive")
        arms[arm] = Spread(q1=q1, median=median(slowest), q3=q3)
    one, two = arms["one-shot"], arms["two-shot"]
    form = "one-shot" if one.q3 < two.q1 else "two-shot" if two.q3 < one.q1 else None
    ratios = {arm: s.median / arms["nccl"].median for arm, s in arms.items() if arm != "nccl"}
    return BatchTimes(batch=seen[0].batch, arms=arms, against_nccl=ratios, faster_form=form)
