"""The evaluation suites as one served model can be asked them: measured by its tokenizer, fitted to its context."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from eval_suites import aime_generator, mrcr_generator
from eval_suites.aime import parse_aime_row
from eval_suites.eval_set import EvalSet
from eval_suites.loaded_rows import LoadedRows, choose_rows, collect_rows, numbered
from eval_suites.mrcr import PUBLISHED_LENGTHS, parse_mrcr_row
from harness.graders.aime import AIME_GRADER
from harness.graders.mrcr import MRCR_GRADER
from harness.model.evals import AimeSection, MrcrSection
from harness.model.evaluation import ChatMessage, EvalRow

_SLACK = 0.97
"""Share of a length that generated prompts aim at: conversations differ in tokens a byte."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedModel:
    """What decides whether a row can be asked."""

    count_prompt: Callable[[Sequence[ChatMessage]], int]
    """Tokens of a conversation as the chat endpoint renders it."""
    count_text: Callable[[str], int]
    """Tokens of plain text."""
    max_context: int
    """Tokens of prompt and answer that are both served and declared."""
    max_seeded_prompt: int
    """Tokens of the longest prompt that may be sampled with a seed."""


def build_mrcr_set(
    section: MrcrSection, loaded: LoadedRows | None, model: ServedModel, *, num_rows: int, seed: int
) -> EvalSet:
    """MRCR for one model: rows that fit, `num_rows` of them at most, in bins by tokens of prompt and answer.

    Args:
        section: What the manifest says.
        loaded: The rows of its data set; None generates them.
        model: Measures them.
        num_rows: The profile's limit; bins and needle counts share it evenly.
        seed: Of generated rows, and of sampled answers.
    """
    found = loaded or _generate_mrcr(section, model, num_rows, seed)
    lengths = section.lengths or (default_lengths(model.max_context) if loaded is None else PUBLISHED_LENGTHS)
    fitting: list[EvalRow] = []
    max_tokens: dict[str, int] = {}
    for row in found.rows:
        num_answer = model.count_text(row.answer)
        limit = section.max_tokens or 2 * num_answer + 16
        num_prompt = model.count_prompt(row.messages)
        is_too_long = section.temperature > 0 and num_prompt > model.max_seeded_prompt
        label = bin_of(num_prompt + num_answer, lengths)
        if label and num_prompt + limit <= model.max_context and not is_too_long:
            fitting.append(row.model_copy(update={"bin": label}))
            max_tokens[row.row] = limit
    fitting.sort(key=lambda row: [bin_label(lengths, i) for i in range(len(lengths))].index(row.bin))
    return EvalSet(
        suite="mrcr",
        source=found.source,
        source_sha256=found.sha256,
        grader=MRCR_GRADER,
        rows=choose_rows(fitting, num_rows),
        num_left_out=found.num_left_out + len(found.rows) - len(fitting),
        max_tokens=max_tokens,
        samples=1,
        temperature=section.temperature,
        top_p=1.0,
        seed=seed,
    )


def build_aime_set(
    section: AimeSection,
    loaded: LoadedRows | None,
    model: ServedModel,
    *,
    num_rows: int,
    num_samples: int,
    seed: int,
) -> EvalSet:
    """AIME for one model: rows that fit, each to be sampled `num_samples` times or as often as the manifest says."""
    found = loaded or _generate_aime(section, num_rows, seed)
    fitting: list[EvalRow] = []
    max_tokens: dict[str, int] = {}
    for row in found.rows:
        num_prompt = model.count_prompt(row.messages)
        room = model.max_context - num_prompt
        if num_prompt <= model.max_seeded_prompt and room >= 1:
            fitting.append(row)
            max_tokens[row.row] = min(section.max_tokens, room)
    return EvalSet(
        suite="aime",
        source=found.source,
        source_sha256=found.sha256,
        grader=AIME_GRADER,
        rows=choose_rows(fitting, num_rows),
        num_left_out=found.num_left_out + len(found.rows) - len(fitting),
        max_tokens=max_tokens,
        samples=min(section.samples, num_samples),
        temperature=section.temperature,
        top_p=section.top_p,
        seed=seed,
    )


def default_lengths(max_context: int) -> tuple[int, ...]:
    """An eighth, a quarter, a half and the whole of a context."""
    return tuple(max_context >> power for power in (3, 2, 1, 0))


def bin_of(num_tokens: int, lengths: Sequence[int]) -> str:
    """The label of the bin that holds a length; empty for one beyond the last."""
    return next((bin_label(lengths, i) for i, most in enumerate(lengths) if num_tokens <= most), "")


def bin_label(lengths: Sequence[int], index: int) -> str:
    """A bin as "4k-8k": beyond the first, up to and with the second number of tokens."""
    least, most = (0, *lengths)[index : index + 2]
    return f"{_short(least)}-{_short(most)}"


def _short(num_tokens: int) -> str:
    return f"{num_tokens // 1024}k" if num_tokens and num_tokens % 1024 == 0 else str(num_tokens)


def _generate_mrcr(section: MrcrSection, model: ServedModel, num_rows: int, seed: int) -> LoadedRows:
    """Rows at every length and needle count of the section whose conversation is long enough for its needles."""
    lengths = section.lengths or default_lengths(model.max_context)
    # Lengths beyond the served context come to the same conversations, which are asked once.
    cells = list(
        dict.fromkeys(
            (num_bytes, needles)
            for length in lengths
            for needles in section.needles
            if (num_bytes := _num_bytes(section, model, length, needles, seed))
        )
    )
    count = -(-num_rows // max(1, len(cells)))
    calls: list[dict[str, Any]] = [
        {"seed": seed + index, "count": count, "num_bytes": num_bytes, "needles": needles}
        for index, (num_bytes, needles) in enumerate(cells)
    ]
    raw = chain.from_iterable(
        numbered(mrcr_generator.generate_rows(**call), f"{call['num_bytes']}b.{call['needles']}n")
        for call in calls
    )
    return collect_rows(raw, _source("mrcr_generator", calls), parse_mrcr_row, model.max_context)


def _num_bytes(section: MrcrSection, model: ServedModel, length: int, needles: int, seed: int) -> int:
    """Bytes of conversation that fill `length` tokens together with the answer; 0 where the needles do not fit."""
    try:
        (values,) = mrcr_generator.generate_rows(seed=seed, count=1, num_bytes=length, needles=needles)
    except ValueError:
        return 0
    row = parse_mrcr_row(values, "sample")
    num_answer = model.count_text(row.answer)
    limit = section.max_tokens or 2 * num_answer + 16
    room = min(length - num_answer, model.max_context - limit - limit // 4)
    num_bytes = int(_SLACK * room * values["n_chars"] / model.count_prompt(row.messages))
    try:
        list(mrcr_generator.generate_rows(seed=seed, count=1, num_bytes=num_bytes, needles=needles))
    except ValueError:
        return 0
    return num_bytes


def _generate_aime(section: AimeSection, num_rows: int, seed: int) -> LoadedRows:
    call: dict[str, Any] = {"seed": seed, "count": num_rows}
    if section.kinds:
        call["kinds"] = section.kinds
    raw = numbered(aime_generator.generate_rows(**call), "p")
    return collect_rows(
        raw, _source("aime_generator", [call]), lambda v, n: parse_aime_row(v, n, instruction=""), 1 << 40
    )


def _source(generator: str, calls: Sequence[dict[str, Any]]) -> str:
    """The generator's calls as its command line has them."""

    def words(call: dict[str, Any]) -> Iterator[str]:
        for name, value in call.items():
            yield f"--{name.replace('_', '-')}"
            yield " ".join(value) if isinstance(value, tuple) else str(value)

    return "; ".join(f"python -m eval_suites.{generator} {' '.join(words(call))}" for call in calls)
