"""Reads the result JSON of `vllm bench serve`, of the versions whose key names are known."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any

from harness.model.errors import EvidenceError
from harness.model.words import Arm
from perf_sweeps.block import MachineState, Visit

ANSWERED_KEYS = ("completed", "successful", "num_successful_requests")
FAILED_KEYS = ("failed", "num_failed_requests", "num_failed")


class BenchResultError(EvidenceError):
    """The result is not one of `vllm bench serve`, or holds numbers that are none."""

    def __init__(self, message: str, advice: str = "") -> None:
        super().__init__("bench-result", message, advice)

    def __reduce__(self) -> tuple[object, ...]:
        """As it was made, when it crosses processes."""
        return type(self), (self.message, self.advice)


def parse_bench_result(
    text: str,
    *,
    arm: Arm,
    position: int,
    num_asked: int,
    wall_s: float | None = None,
    counted_tokens: int | None = None,
    machine: MachineState | None = None,
) -> Visit:
    """One visit from a result that was saved with `--save-detailed`.

    Args:
        text: The file's content.
        arm: Which arm answered.
        position: Of the visit in its block.
        num_asked: Requests that the command asked for: the file's own count is not trusted.
        wall_s: The harness's clock around the command's work.
        counted_tokens: Output tokens by the engine's ledger.
        machine: What was sampled meanwhile.

    Raises:
        BenchResultError: No JSON object, NaN or infinity, a missing or contradictory key.
    """
    result = _parse(text)
    output_lens = _integers(result, "output_lens")
    input_lens = _integers(result, "input_lens")
    errors = [str(e).splitlines()[0] for e in result.get("errors") or () if e]
    if len(input_lens) != len(output_lens):
        raise BenchResultError(f"{len(input_lens)} input_lens and {len(output_lens)} output_lens.")
    answered = [i for i, n in enumerate(output_lens) if n > 0]
    stated = _first_integer(result, ANSWERED_KEYS)
    if stated is not None and stated != len(answered):
        raise BenchResultError(f"It says that {stated} requests were answered and lists {len(answered)}.")
    failed = _first_integer(result, FAILED_KEYS)
    total = _first_integer(result, ("total_output_tokens", "total_output"))
    if total is not None and total != sum(output_lens):
        raise BenchResultError(f"It says {total} output tokens and lists {sum(output_lens)}.")
    ttfts = _numbers(result, "ttfts")
    duration = _number(result, "duration")
    if duration <= 0:
        raise BenchResultError(f"duration: got {duration:g} s, expected more than 0.")
    return Visit(
        arm=arm,
        position=position,
        duration_s=duration,
        num_asked=num_asked,
        num_answered=len(answered),
        num_failed=num_asked - len(answered) if failed is None else failed,
        input_lens=tuple(input_lens[i] for i in answered),
        output_lens=tuple(output_lens[i] for i in answered),
        ttfts_ms=tuple(1000 * ttfts[i] for i in answered) if len(ttfts) == len(output_lens) else (),
        wall_s=wall_s,
        counted_tokens=counted_tokens,
        errors=tuple(dict.fromkeys(errors))[:5],
        machine=machine or MachineState(),
    )


def bench_arguments(
    *,
    base_url: str,
    model: str,
    tokenizer: str,
    num_prompts: int,
    concurrency: int,
    output_len: int,
    seed: int,
    request_ids: str,
) -> tuple[str, ...]:
    """Arguments of `vllm bench serve` for one visit; the driver adds where prompts come from and the result goes.

    Prompts come from a JSONL file (`custom` data set), so that both arms read the same. `--ignore-eos` and the
    fixed length make token counts equal; no request is sent before the first that counts. Requests are called
    `request_ids` and their number, as the ledger has them.
    """
    pairs = {
        "--backend": "openai",
        "--base-url": base_url,
        "--endpoint": "/v1/completions",
        "--model": model,
        "--tokenizer": tokenizer,
        "--dataset-name": "custom",
        "--num-prompts": str(num_prompts),
        "--max-concurrency": str(concurrency),
        "--custom-output-len": str(output_len),
        "--seed": str(seed),
        "--temperature": "0",
        "--request-id-prefix": request_ids,
        "--ready-check-timeout-sec": "0",
    }
    words = tuple(word for pair in pairs.items() for word in pair)
    switches = (
        "--ignore-eos",
        "--disable-shuffle",
        "--skip-chat-template",
        "--save-detailed",
        "--disable-tqdm",
    )
    return (*words, *switches)


def _parse(text: str) -> Mapping[str, Any]:
    def refuse(constant: str) -> float:
        raise BenchResultError(
            f"It holds {constant}.", "A benchmark that divides by nothing measured nothing."
        )

    try:
        result = json.loads(text, parse_constant=refuse)
    except ValueError as error:
        raise BenchResultError(f"It is not JSON: {error}.") from error
    if not isinstance(result, dict):
        raise BenchResultError(f"It holds a {type(result).__name__}, not an object.")
    return result


def _numbers(result: Mapping[str, Any], key: str) -> Sequence[float]:
    values = result.get(key) or []
    if not isinstance(values, list) or not all(_is_number(v) for v in values):
        raise BenchResultError(f"{key}: expected a list of numbers.")
    return values


def _integers(result: Mapping[str, Any], key: str) -> Sequence[int]:
    values = _numbers(result, key)
    if not values:
        raise BenchResultError(
            f"{key}: it is missing.", "Save the result with --save-detailed: totals alone show no early stop."
        )
    return [int(v) for v in values]


def _number(result: Mapping[str, Any], key: str) -> float:
    value = result.get(key)
    if not _is_number(value):
        raise BenchResultError(f"{key}: got {value!r}, expected a number.")
    return float(value)  # type: ignore[arg-type]


def _first_integer(result: Mapping[str, Any], keys: Sequence[str]) -> int | None:
    return next((int(result[k]) for k in keys if _is_number(result.get(k))), None)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)
