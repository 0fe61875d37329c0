"""Levels of a cell's visits: throughput, acceptance, interactivity, time to first token, and the GPUs' state."""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, fsum, log

from harness.model.words import Arm
from harness.stats.order_statistics import min_n_for_upper_bound, sample_quantile
from perf_sweeps.block import Block

QUANTILES = (0.5, 0.9, 0.99)


def geometric_mean(values: Sequence[float]) -> float:
    """Of positive numbers."""
    return exp(fsum(map(log, values)) / len(values))


def throughput(blocks: Sequence[Block], arm: Arm) -> float:
    """Output tokens a second of all requests of the arm, prefill included."""
    visits = [v for b in blocks for v in b.visits if v.arm is arm]
    return sum(sum(v.output_lens) for v in visits) / fsum(v.duration_s for v in visits)


def acceptance(blocks: Sequence[Block]) -> float | None:
    """Mean acceptance length of the visits; None where none recorded one."""
    found = [v.acceptance_length for b in blocks for v in b.visits if v.acceptance_length is not None]
    return fsum(found) / len(found) if found else None


def interactivity(blocks: Sequence[Block]) -> dict[str, float]:
    """Tokens a second and user that a share of the turns reaches, of two arms; what too few turns bear is left out."""
    found = {}
    for arm in (Arm.BASELINE, Arm.CANDIDATE):
        times = [t for b in blocks for v in b.visits if v.arm is arm for t in v.turn_token_ms]
        for q in QUANTILES[:2]:
            if len(times) >= min_n_for_upper_bound(q, alpha=0.05):
                found[f"{arm}_p{100 * q:g}"] = 1000 / sample_quantile(times, q)
    return found


def expert_spread(blocks: Sequence[Block]) -> dict[str, float]:
    """How a cell's tokens are spread over experts, of two arms, as means over the layers; empty where not counted.

    `used` is the share of experts (as many as the largest id that was seen tells) that get a token, `effective` the
    exponential of the entropy (as many equally busy experts would be as spread), `busiest` the share of the tokens that
    the busiest expert gets.
    """
    found = {}
    for arm in (Arm.BASELINE, Arm.CANDIDATE):
        visits = [v.experts for b in blocks for v in b.visits if v.arm is arm and v.experts is not None]
        layers = [layer for experts in visits[:1] for layer in experts.layers if sum(layer)]
        size = max((len(layer) for layer in layers), default=0)
        for name, values in (
            ("used", [sum(count > 0 for count in layer) / size for layer in layers]),
            ("effective", [_effective(layer) for layer in layers]),
            ("busiest", [max(layer) / sum(layer) for layer in layers]),
        ):
            if values:
                found[f"{arm}_{name}"] = fsum(values) / len(values)
    return found


def _effective(counts: Sequence[int]) -> float:
    total = sum(counts)
    return exp(-fsum(n / total * log(n / total) for n in counts if n))


def step_kernels(blocks: Sequence[Block]) -> dict[str, float]:
    """Kernels and busy microseconds of a decode step, of two arms; empty where none was profiled."""
    found: dict[str, float] = {}
    for arm in (Arm.BASELINE, Arm.CANDIDATE):
        for visit in (v for b in blocks for v in b.visits if v.arm is arm and v.kernels is not None):
            for name in ("num_kernels", "busy_us"):
                if (value := getattr(visit.kernels, name)) is not None:
                    found.setdefault(f"{arm}_{name}", value)
    return found


def gpu_means(blocks: Sequence[Block]) -> dict[str, float]:
    """Clock, power and temperature of two arms, where visits sampled them."""
    found = {}
    for arm in (Arm.BASELINE, Arm.CANDIDATE):
        states = [v.machine for b in blocks for v in b.visits if v.arm is arm]
        for name in ("sm_clock_mhz", "power_w", "temperature_c"):
            values = [value for s in states if (value := getattr(s, name)) is not None]
            if values:
                found[f"{arm}_{name}"] = fsum(values) / len(values)
    return found


def ttft_quantiles(blocks: Sequence[Block], arm: Arm) -> tuple[dict[str, float], tuple[str, ...]]:
    """Quantiles, in ms, that the number of requests bears: those with a distribution-free upper bound at .05."""
    values = [t for b in blocks for v in b.visits if v.arm is arm for t in v.ttfts_ms]
    if not values:
        return {}, ()
    bears = {q: len(values) >= min_n_for_upper_bound(q, alpha=0.05) for q in QUANTILES}
    shown = {f"p{100 * q:g}": sample_quantile(values, q) for q in QUANTILES if bears[q]}
    left_out = [f"p{100 * q:g} ({min_n_for_upper_bound(q, alpha=0.05)})" for q in QUANTILES if not bears[q]]
    notes = (f"{len(values)} requests are too few for {', '.join(left_out)}",) if left_out else ()
    return shown, notes
