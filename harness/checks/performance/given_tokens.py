"""What a cell whose tokens were given shows of what its arms computed: how likely each held the tokens.

Given tokens come back whatever an arm computes, so that answers alone show nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import nan, sqrt
from statistics import fmean, pstdev

from harness.checks.joins.ruling import Ruling
from harness.model.evaluation import SuiteItem
from harness.model.evidence import TimingEvidence
from harness.model.words import Outcome, Tier

MAX_DEVIATION = 0.5
"""Of the spread of the reference's logprobs over the given tokens, how far a request's may be from them (root mean
square). Logprobs that have nothing to do with the reference's are 1 (all alike) or 1.4 (as spread as they) apart."""


def find_given_fault(cell: TimingEvidence) -> Ruling | None:
    """Given tokens that did not come back alike, or an arm that does not show that it computed what the other did."""
    if not cell.tokens_given:
        return None
    if others := _num_unlike(cell):
        return _void(
            f"{cell.cell}: the arms were given the same tokens, and {others} answers differ: they were not followed.",
            "vLLM's trace replay must be on in both engines.",
        )
    shown = [[i for s in cell.shown if s.arm is arm for i in s.items] for arm in cell.compares]
    told = [{place_of(item): told_logprobs(item) for item in items} for items in shown]
    places = {place_of(item) for block in cell.blocks for item in block.items}
    if any(found.keys() != places or not all(found.values()) for found in told):
        return _void(
            f"{cell.cell}: tokens were given, and not both arms tell how likely they held each of them: nothing shows "
            "that the timed steps computed anything.",
            "Collect the timings again.",
        )
    tokens = [{place_of(item): item.token_ids for item in items} for items in shown]
    worst = worst_deviation(cell)
    if tokens[0] == tokens[1] and worst <= MAX_DEVIATION:
        return None
    return _void(
        f"{cell.cell}: the arms were given the same tokens and held them likely by {worst:.2f} of the reference's own "
        f"spread apart (at most {MAX_DEVIATION:g}): nothing shows that the timed steps computed the same thing.",
        f"Correct the answers first ({'COR012' if cell.tier is Tier.GPU else 'COR001'}), then time them.",
    )


def _num_unlike(cell: TimingEvidence) -> int:
    """Requests of a pair that the two arms answered with other tokens."""
    ours, theirs = (
        {(b.pair, place_of(i)): i.token_ids for b in cell.blocks if b.arm is arm for i in b.items}
        for arm in cell.compares
    )
    return sum(ours.get(key) != theirs.get(key) for key in ours | theirs)


def worst_deviation(cell: TimingEvidence) -> float:
    """How far the other arm's logprobs are from the reference's in the request where they are furthest apart.

    A share of the spread of all that the reference told; NaN where either told nothing, or the same of every token.
    """
    by_arm = {s.arm: {place_of(i): told_logprobs(i) for i in s.items} for s in cell.shown}
    reference, other = (by_arm.get(arm, {}) for arm in cell.compares)
    values = [value for told in reference.values() for value in told]
    spread = pstdev(values) if values else 0.0
    if not spread or reference.keys() != other.keys():
        return nan
    return max(_distance(reference[place], other[place]) for place in reference) / spread


def given_lines(cell: TimingEvidence) -> tuple[str, ...]:
    """What to read beside a cell's times; nothing where no tokens were given."""
    words = f"tokens were given, and held likely by at most {worst_deviation(cell):.4f} of their spread apart"
    return (words,) if cell.tokens_given else ()


def _distance(ours: Sequence[float], theirs: Sequence[float]) -> float:
    if not ours or len(ours) != len(theirs):
        return nan
    return sqrt(fmean((a - b) ** 2 for a, b in zip(ours, theirs, strict=True)))


def told_logprobs(item: SuiteItem) -> tuple[float, ...]:
    """The logprob of each token of an answer; nothing where one of them is not told."""
    if len(item.top_logprobs) != len(item.token_ids):
        return ()
    told = [
        dict(zip(top.token_ids, top.logprobs, strict=True)).get(token)
        for token, top in zip(item.token_ids, item.top_logprobs, strict=True)
    ]
    found = tuple(value for value in told if value is not None)
    return found if len(found) == len(told) else ()


def place_of(item: SuiteItem) -> str:
    """The request's place in its block, the same in every block."""
    return item.item.rpartition("/")[2]


def _void(message: str, advice: str) -> Ruling:
    return Ruling(outcome=Outcome.INCONCLUSIVE, message=message, advice=advice)
