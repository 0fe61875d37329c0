"""Laws of what chooses a token: temperature, restrictions, penalties, biases.

The engine reports the model's own log probabilities, before any of these, so that what each must do to them can be
worked out at every position.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from math import exp, inf, log

from harness.checks.scope.feature_answers import (
    TIE,
    ArmAnswers,
    FeatureAnswer,
    FeatureLaw,
    Tried,
    positions,
    sum_of,
)
from harness.stats.goodness_of_fit import Draw

NUM_REPORTED = 20
"""Most likely tokens that are reported at each position; a sampled one beyond them is reported as well."""
_CLASS_ENDS = (1, 2, 4)
"""Draws are counted by the rank of the drawn token: first, second, third and fourth, the rest."""
NO_PENALTY = 1e3
"""A repetition penalty from here on leaves no repeated token a chance."""


def class_of(rank: int) -> int:
    """The class of a token of that rank, 0 for the most likely."""
    return sum(rank >= end for end in _CLASS_ENDS)


_CLASSES = tuple(class_of(rank) for rank in range(NUM_REPORTED))


def draw_of(top: Mapping[int, float], allowed: Set[int], token: int, temperature: float) -> Draw | None:
    """One draw among the allowed tokens; None when the drawn one is none of them.

    What lies beyond the reported tokens is left out of both sides: given that a reported token was drawn, each has its
    share of their sum.
    """
    ranked = [t for t in list(top)[:NUM_REPORTED] if t in allowed]
    if token not in ranked:
        return None
    best = top[ranked[0]]
    weights = [exp((top[t] - best) / temperature) for t in ranked]
    total, sums = sum(weights), [0.0] * (len(_CLASS_ENDS) + 1)
    for place, weight in zip(_CLASSES, weights, strict=False):
        sums[place] += weight / total
    return tuple(sums), _CLASSES[ranked.index(token)]


def _sampling(arm: ArmAnswers) -> Tried:
    """The draws follow the temperature; a seed repeats, and another seed gives something else."""
    first, other_seed = arm.of("t2.0/r0"), arm.of("t2.0/other_seed")
    both = first.keys() & other_seed.keys()
    same = {p for p in both if first[p].item.token_ids == other_seed[p].item.token_ids}
    return sum_of(
        [
            # A repeat is the same draw once more.
            *(_drawn(answer) for answer in arm.answers if not answer.variant.endswith("/r1")),
            _repeats(first, arm.of("t2.0/r1")),
            _repeats(arm.of("t0.5/r0"), arm.of("t0.5/r1")),
            Tried(
                compared=len(both),
                differences={other_seed[p].name: "another seed gives the same tokens" for p in same},
            ),
        ]
    )


def _drawn(answer: FeatureAnswer) -> Tried:
    """An answer's tokens as draws at its temperature, and at 1."""
    asked = answer.item.temperature
    if asked <= 0:
        return Tried()
    draws, others, num = [], [], 0.0
    for token, top in positions(answer):
        draw = draw_of(top, top.keys(), token, asked)
        other = draw_of(top, top.keys(), token, 1.0)
        if draw is not None and other is not None:
            draws.append(draw)
            others.append(other)
        num += 1 - exp(max(top.values()))
    name = f"temperature {asked:g}"
    return Tried(num=num, draws={name: tuple(draws)}, others={name: tuple(others)})


def _repeats(first: Mapping[str, FeatureAnswer], again: Mapping[str, FeatureAnswer]) -> Tried:
    both = sorted(first.keys() & again.keys())
    return Tried(
        compared=len(both),
        differences={
            again[p].name: "the same seed gives other tokens"
            for p in both
            if all_tokens(first[p]) != all_tokens(again[p])
        },
    )


def all_tokens(answer: FeatureAnswer) -> tuple[tuple[int, ...], ...]:
    """The tokens of every choice."""
    return (answer.item.token_ids, *(choice.token_ids for choice in answer.item.choices))


def allowed_tokens(
    options: Mapping[str, object], top: Mapping[int, float], temperature: float
) -> set[int] | None:
    """The reported tokens that may be drawn; None when tokens beyond them may be, or it cannot be told.

    top_k keeps the k most likely; min_p those with at least that share of the most likely one's probability at the
    temperature; top_p the fewest whose sum reaches p, which the reported ones tell at temperature 1 alone.
    """
    ranked = list(top)[:NUM_REPORTED]
    if "top_k" in options:
        k = int(str(options["top_k"]))
        return {t for t in ranked if top[t] >= top[ranked[k - 1]] - TIE} if k < len(ranked) else None
    if "min_p" in options:
        least = top[ranked[0]] + temperature * log(float(str(options["min_p"])))
        return {t for t in ranked if top[t] >= least - TIE} if top[ranked[-1]] < least - TIE else None
    kept: set[int] = set()
    p, before = float(str(options["top_p"])), 0.0
    for token in ranked if temperature == 1 else ():
        if before >= p + TIE:
            return kept
        kept.add(token)
        before += exp(top[token])
    return None


def _restricted(arm: ArmAnswers) -> Tried:
    """No token outside the asked set, and the right shares within it."""
    return sum_of(map(_drawn_within, arm.answers))


def _drawn_within(answer: FeatureAnswer) -> Tried:
    num, breaches, draws = 0.0, [], []
    temperature = answer.item.temperature
    if temperature <= 0:
        return Tried()
    for position, (token, top) in enumerate(positions(answer)):
        allowed = allowed_tokens(answer.options, top, temperature)
        if allowed is None:
            continue
        weights = {t: exp(top[t] / temperature) for t in list(top)[:NUM_REPORTED]}
        num += 1 - sum(weights[t] for t in allowed) / sum(weights.values())
        if token not in allowed:
            breaches.append(f"{answer.name} token {position}: {token} is outside {answer.item.options_text}")
        elif len(allowed) > 1 and (draw := draw_of(top, allowed, token, temperature)) is not None:
            draws.append(draw)
    return Tried(num=num, breaches=tuple(breaches), draws={"shares of what is left": tuple(draws)})


def _penalised(penalty: Callable[[Mapping[str, object], int], float]) -> Callable[[ArmAnswers], Tried]:
    """Greedy answers whose every token is the best once those that occurred are penalised."""

    def holds(arm: ArmAnswers) -> Tried:
        tried = Tried()
        for answer in arm.answers:
            counts: dict[int, int] = {}
            for position, (token, top) in enumerate(positions(answer)):
                score = {t: lp - penalty(answer.options, counts.get(t, 0)) for t, lp in top.items()}
                best = max(score, key=score.__getitem__)
                if score.get(token, -inf) < score[best] - TIE:
                    line = f"{answer.name} token {position}: {token} though {best} is better once penalised"
                    tried += Tried(breaches=(line,))
                free = max(top, key=top.__getitem__)
                tried += Tried(num=float(score[free] < score[best] - TIE))
                counts[token] = counts.get(token, 0) + 1
        return tried

    return holds


def _not_repeated(arm: ArmAnswers) -> Tried:
    """With a penalty beyond reason, no token occurs twice; the same without it shows how many would have."""
    tried = Tried()
    is_tried = False
    for answer in arm.answers:
        penalised = float(answer.options.get("repetition_penalty", 0)) >= NO_PENALTY
        is_tried |= penalised and bool(answer.item.token_ids)
        seen: set[int] = set()
        for position, token in enumerate(answer.item.token_ids):
            if token in seen and penalised:
                line = f"{answer.name} token {position}: {token} is repeated in spite of the penalty"
                tried += Tried(breaches=(line,))
            elif token in seen:
                tried += Tried(num=1.0)
            seen.add(token)
    return tried if is_tried else Tried()


def _biased(arm: ArmAnswers) -> Tried:
    """A bias of -100 bans a token, one of 100 forces it."""
    tried = Tried()
    for answer in arm.answers:
        bias = {int(t): float(value) for t, value in answer.options.get("logit_bias", {}).items()}
        banned = {t for t, value in bias.items() if value <= -100}
        forced = {t for t, value in bias.items() if value >= 100}
        for position, (token, top) in enumerate(positions(answer)):
            free = max(top, key=top.__getitem__)
            tried += Tried(num=float(free in banned or bool(forced and free not in forced)))
            if token in banned or (forced and token not in forced):
                line = f"{answer.name} token {position}: {token} in spite of its bias"
                tried += Tried(breaches=(line,))
    return tried


def _several(arm: ArmAnswers) -> Tried:
    """As many choices as asked, not all the same, and the same ones again for the same seed."""
    tried = _repeats(arm.of("r0"), arm.of("r1"))
    for answer in arm.answers:
        tokens = all_tokens(answer)
        asked = answer.options.get("n")
        if len(tokens) != asked or not all(tokens):
            tried += Tried(breaches=(f"{answer.name}: {len(tokens)} choices, {asked} were asked for",))
        same = {f"{answer.name} choices": "every choice is the same"} if len(set(tokens)) == 1 else {}
        tried += Tried(num=1, compared=1, differences=same)
    return tried


SAMPLING_LAWS: tuple[FeatureLaw, ...] = (
    FeatureLaw(
        feature="temperature_sampling",
        claim="tokens are drawn at the asked temperature, and a seed repeats its draws",
        holds=_sampling,
        variants=("t0.5/r0", "t0.5/r1", "t2.0/r0", "t2.0/r1", "t2.0/other_seed", "t2.0/unseeded"),
        seeded=("t0.5/r0", "t0.5/r1", "t2.0/r0", "t2.0/r1", "t2.0/other_seed"),
    ),
    FeatureLaw(
        feature="top_k",
        claim="only the k most likely tokens are drawn",
        holds=_restricted,
        variants=("1/s0", "3/s0"),
    ),
    FeatureLaw(
        feature="top_p",
        claim="only the most likely tokens that together reach p are drawn",
        holds=_restricted,
        variants=("0.3/s0",),
    ),
    FeatureLaw(
        feature="min_p",
        claim="only tokens with that share of the most likely one's probability are drawn",
        holds=_restricted,
        variants=("1/s0", "0.3/s0"),
    ),
    FeatureLaw(
        feature="presence_penalty",
        claim="a token that occurred loses the penalty once",
        holds=_penalised(lambda options, count: float(str(options["presence_penalty"])) * (count > 0)),
        variants=("2", "-2"),
    ),
    FeatureLaw(
        feature="frequency_penalty",
        claim="a token that occurred loses the penalty as often as it did",
        holds=_penalised(lambda options, count: float(str(options["frequency_penalty"])) * count),
        variants=("2", "-1"),
    ),
    FeatureLaw(
        feature="repetition_penalty",
        claim="a large penalty leaves no token repeated",
        holds=_not_repeated,
        variants=("1e+06",),
    ),
    FeatureLaw(
        feature="logit_bias",
        claim="a bias of -100 bans a token, one of 100 forces it",
        holds=_biased,
        variants=("banned", "forced"),
    ),
    FeatureLaw(
        feature="several_choices",
        claim="n choices come back, and the same ones for the same seed",
        holds=_several,
        variants=("r0", "r1"),
        seeded=("r0", "r1"),
    ),
)
