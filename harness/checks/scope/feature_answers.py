"""Answers of the features suite as a law reads them, and what trying a law on them came to."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from harness.model.evaluation import SuiteItem
from harness.model.features import Feature
from harness.model.ledger import StepRequest
from harness.stats.goodness_of_fit import Draw

PLAIN = "plain"
"""What the greedy answers to the same prompts, without any feature, are filed under."""
TIE = 1e-3
"""Nats by which the engine's own single-precision rounding may move a log probability."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureAnswer:
    """One answer and what its name and options say of it."""

    item: SuiteItem
    feature: str
    variant: str
    prompt: str
    options: Mapping[str, Any]

    @property
    def is_alone(self) -> bool:
        """Whether it was the only request in flight."""
        return self.item.concurrency == 1

    @property
    def name(self) -> str:
        """What messages call it."""
        return self.item.item


def read_answer(item: SuiteItem) -> FeatureAnswer:
    """An item named `feature/variant/prompt@cN`; options that are no JSON object count as none."""
    feature, _, rest = item.item.partition("/")
    variant, _, prompt = rest.partition("@")[0].rpartition("/")
    try:
        options = json.loads(item.options_text or "{}")
    except ValueError:
        options = {}
    return FeatureAnswer(
        item=item,
        feature=feature,
        variant=variant,
        prompt=prompt,
        options=options if isinstance(options, dict) else {},
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmAnswers:
    """One arm's answers to one feature's requests, alone or together."""

    answers: tuple[FeatureAnswer, ...]
    plain: Mapping[str, FeatureAnswer]
    """What the answers are held against, by prompt: those of the law's `reference`."""
    parts: Mapping[str, Sequence[StepRequest]]
    """By request id, in the order of the steps: what each engine step computed of the request."""

    def of(self, variant: str) -> dict[str, FeatureAnswer]:
        """The answers of one variant, by prompt."""
        return {a.prompt: a for a in self.answers if a.variant == variant}


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """What a law came to on one arm's answers."""

    num: float = 0.0
    """How often a feature that is not there would have broken the law, as expected from the answers themselves."""
    breaches: tuple[str, ...] = ()
    """Where the law is broken: once is enough."""
    compared: int = 0
    differences: Mapping[str, str] = field(default_factory=dict)
    """Of `compared` pairs, those that differ though they should not; rounding may tip one over now and then."""
    draws: Mapping[str, tuple[Draw, ...]] = field(default_factory=dict)
    """Draws with the probabilities that were asked for."""
    others: Mapping[str, tuple[Draw, ...]] = field(default_factory=dict)
    """The same draws with the probabilities of a path without the feature, by the same names."""

    def __add__(self, other: Tried) -> Tried:
        return Tried(
            num=self.num + other.num,
            breaches=(*self.breaches, *other.breaches),
            compared=self.compared + other.compared,
            differences={**self.differences, **other.differences},
            draws=_joined(self.draws, other.draws),
            others=_joined(self.others, other.others),
        )


def _joined(
    one: Mapping[str, tuple[Draw, ...]], other: Mapping[str, tuple[Draw, ...]]
) -> dict[str, tuple[Draw, ...]]:
    return {name: (*one.get(name, ()), *other.get(name, ())) for name in {**one, **other}}


def sum_of(tries: Iterable[Tried]) -> Tried:
    """All tries as one."""
    total = Tried()
    for tried in tries:
        total += tried
    return total


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureLaw:
    """What a user relies on, and how answers show it."""

    feature: Feature
    claim: str
    """What a user relies on, as a sentence."""
    holds: Callable[[ArmAnswers], Tried]
    variants: tuple[str, ...]
    """Variants without which the feature was not tried."""
    seeded: tuple[str, ...] = ()
    """Variants whose claim is about the request's seed."""
    reference: str = PLAIN
    """The feature whose answers to the same prompts must be the same; by default none, the free greedy answers."""
    together_only: bool = False
    """Whether the feature needs several requests."""
    same_on_every_arm: Callable[[FeatureAnswer], object] | None = None
    """What must be equal on the baseline and the candidate, to the last token."""


def positions(answer: FeatureAnswer) -> Iterator[tuple[int, Mapping[int, float]]]:
    """Each emitted token with the reported log probabilities at its position, most likely first."""
    item = answer.item
    for token, top in zip(item.token_ids, item.top_logprobs, strict=False):
        if top.token_ids and not top.num_not_finite:
            yield token, dict(zip(top.token_ids, top.logprobs, strict=True))
