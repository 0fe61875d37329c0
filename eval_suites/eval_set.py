"""An evaluation suite's questions with how they are asked, and the requests that they become."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from eval_suites.suite import Suite, SuitePart
from harness.model.completion import CompletionRequest
from harness.model.evaluation import EvalRow

_SEED_STEP = 1009
"""Between the seeds of two rows: more than the samples of one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalSet:
    """The questions of one suite, the same for every arm."""

    suite: str
    source: str
    source_sha256: str
    grader: str
    rows: tuple[EvalRow, ...]
    num_left_out: int
    max_tokens: Mapping[str, int]
    """Of an answer, by row."""
    samples: int
    temperature: float
    top_p: float
    seed: int


def scope_concurrencies(max_batch: int) -> tuple[int, ...]:
    """The powers of two up to a scope's largest batch, that batch, and one request more."""
    powers = [1 << power for power in range(max_batch.bit_length()) if 1 << power <= max_batch]
    return tuple(sorted({*powers, max_batch, max_batch + 1}))


def build_suite(eval_set: EvalSet, concurrencies: Sequence[int]) -> Suite:
    """Every row at one concurrency, all its samples there; shorter rows first."""
    parts = []
    for concurrency, rows in spread_rows(eval_set.rows, concurrencies, eval_set.samples).items():
        in_flight = min(concurrency, len(rows) * eval_set.samples)
        requests = tuple(
            _request(eval_set, eval_set.rows[index], index, sample, in_flight)
            for sample in range(eval_set.samples)
            for index in rows
        )
        parts.append(SuitePart(concurrency=in_flight, requests=requests))
    return Suite(name=eval_set.suite, parts=tuple(parts), seed=eval_set.seed)


def control_of(suite: Suite, *, max_batch: int, num_requests: int) -> Suite:
    """A slice of a suite for its negative control: about `num_requests`, spread evenly over what the scope serves.

    Each part keeps as many as the suite has in flight there: fewer would be asked at another concurrency.
    """
    inside = [part for part in suite.parts if part.concurrency <= max_batch]
    step = max(1, sum(len(part.requests) for part in inside) // num_requests)
    parts = tuple(
        SuitePart(
            concurrency=part.concurrency,
            requests=part.requests[:: min(step, max(1, len(part.requests) // part.concurrency))],
        )
        for part in inside
    )
    return Suite(name=f"{suite.name}_control", parts=parts, seed=suite.seed)


def spread_rows(
    rows: Sequence[EvalRow], concurrencies: Sequence[int], samples: int = 1
) -> dict[int, tuple[int, ...]]:
    """Deals rows out to concurrencies; the indexes of each one's rows, in their order.

    Each bin has rows at every concurrency as far as it has enough of them, and each concurrency has as many requests
    as it keeps in flight, as far as there are enough of them in all.
    """
    wanted = _shares(len(rows), concurrencies, samples)
    by_bin: dict[str, list[int]] = {}
    for index, row in enumerate(rows):
        by_bin.setdefault(row.bin, []).append(index)
    dealt: dict[int, list[int]] = {concurrency: [] for concurrency in wanted}
    order = list(wanted)
    for turn, indexes in enumerate(by_bin.values()):
        in_bin: Counter[int] = Counter()
        for index in indexes:
            # Ties go to another concurrency in each bin, so that needles and concurrencies do not go hand in hand.
            chosen = min(
                wanted,
                key=lambda c: (
                    (in_bin[c] + 0.5 * bool(in_bin[c])) / wanted[c],
                    (order.index(c) + turn) % len(order),
                ),
            )
            in_bin[chosen] += 1
            dealt[chosen].append(index)
    return {concurrency: tuple(indexes) for concurrency, indexes in dealt.items() if indexes}


def _shares(num_rows: int, concurrencies: Sequence[int], samples: int) -> dict[int, int]:
    """How many rows each concurrency is to get: enough to fill it, and the rest in equal parts."""
    shares = {concurrency: -(-concurrency // samples) for concurrency in sorted(concurrencies)}
    for _ in range(num_rows - sum(shares.values())):
        fewest = min(shares, key=lambda c: (shares[c], c))
        shares[fewest] += 1
    return shares


def _request(eval_set: EvalSet, row: EvalRow, index: int, sample: int, concurrency: int) -> CompletionRequest:
    is_sampled = eval_set.temperature > 0
    return CompletionRequest(
        item=f"{row.row}/k{sample}@c{concurrency}",
        row=row.row,
        sample=sample,
        messages=row.messages,
        max_tokens=eval_set.max_tokens[row.row],
        temperature=eval_set.temperature,
        seed=eval_set.seed + _SEED_STEP * index + sample if is_sampled else None,
        # One logprob a token shows what is no number.
        logprobs=1,
        options_text=json.dumps({"top_p": eval_set.top_p}) if eval_set.top_p < 1 else "",
    )
