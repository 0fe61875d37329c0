"""A performance cell: one workload at one batch, context, parallelism and draft length."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum
from itertools import product
from typing import Literal, Self

from pydantic import Field, model_validator

from harness.model.errors import ConfigurationError
from harness.model.manifest import ScopeSection
from harness.model.record import Record

PromptKind = Literal["text", "random", "file"]


class Workload(StrEnum):
    """What the engine's steps of a cell hold."""

    DECODE = "decode"
    """Steady-state decode: only steps that hold the whole batch and no prompt token are timed."""
    PREFILL = "prefill"
    """Prompts with one output token each: the time to first token."""
    MIXED = "mixed"
    """Prefill in chunks beside decode: the time of all requests together."""
    SPECULATIVE = "speculative"
    """Decode with drafts: the time of one emitted token at the stated acceptance length."""
    OVERHEAD = "overhead"
    """Decode of one batch, a few steps with the tracer and a few as if it were not there: the time of a token."""
    AGENT = "agent"
    """Replayed conversations with tool pauses and shared prefixes: the time of one token of one user."""


class Engine(Record):
    """What decides how a server of the cell is started; cells that agree in it share one server an arm."""

    tensor_parallel: int = Field(ge=1, default=1)
    decode_context_parallel: int = Field(ge=1, default=1)
    draft_tokens: int = Field(ge=0, default=0)
    acceptance_length: float | None = Field(ge=1, default=None)
    """Mean tokens an engine step emits a request, drawn by the engine in place of real verification; None: real."""

    @model_validator(mode="after")
    def _holds_together(self) -> Self:
        if self.acceptance_length is not None and self.acceptance_length > self.draft_tokens + 1:
            raise ValueError("a step emits a token a draft at most, and one more")
        if self.tensor_parallel % self.decode_context_parallel:
            raise ValueError("contexts are shared out among the ranks of tensor parallelism")
        return self

    @property
    def name(self) -> str:
        """Such as `tp8`, `tp16-dcp4`, `tp16-k7-al6`."""
        parts = [f"tp{self.tensor_parallel}"]
        if self.decode_context_parallel > 1:
            parts.append(f"dcp{self.decode_context_parallel}")
        if self.draft_tokens:
            parts.append(f"k{self.draft_tokens}")
        if self.acceptance_length is not None:
            parts.append(f"al{self.acceptance_length:g}")
        return "-".join(parts)


class Published(Record):
    """What was said of a cell elsewhere; never measured by this project."""

    tok_s: float | None = None
    """Tokens a second of the candidate, all requests together."""
    speedup: float | None = None
    source: str
    hardware: str


class Cell(Record):
    """One cell. Two cells of one sweep never have the same name."""

    workload: Workload
    batch: int = Field(ge=1)
    """Requests in flight."""
    input_len: int = Field(ge=1)
    """Prompt tokens of a request."""
    output_len: int = Field(ge=1)
    engine: Engine = Engine()
    prompts: PromptKind = "text"
    """`random` changes which experts are chosen, and is said wherever the cell is shown."""
    is_required: bool = True
    """Whether the sweep passes only when this cell does."""
    is_beyond_scope: bool = False
    """Asked outside the declared scope on purpose, one request more or with more drafts: the candidate is expected to
    fall back, not slower. A deployment with drafts it may refuse as well."""
    published: Published | None = None

    @model_validator(mode="after")
    def _holds_together(self) -> Self:
        if self.workload is Workload.PREFILL and self.output_len != 1:
            raise ValueError("a prefill cell asks for one output token")
        if (self.workload is Workload.SPECULATIVE) != (self.engine.draft_tokens > 0):
            raise ValueError("drafts and the speculative workload go together")
        return self

    @property
    def name(self) -> str:
        """Such as `decode/tp8/b4/in1/out1024`; random prompts are part of it."""
        tail = "" if self.prompts == "text" else f"/{self.prompts}"
        shape = f"b{self.batch}/in{self.input_len}/out{self.output_len}"
        return f"{self.workload}/{self.engine.name}/{shape}{tail}"

    @property
    def context(self) -> int:
        """The longest sequence, in tokens."""
        return self.input_len + self.output_len


class Axes(Record):
    """The values of each dimension; their product is a set of cells."""

    workloads: tuple[Workload, ...] = Field(min_length=1)
    batches: tuple[int, ...] = Field(min_length=1)
    shapes: tuple[tuple[int, int], ...] = Field(min_length=1)
    """(prompt tokens, output tokens)."""
    engines: tuple[Engine, ...] = Field(min_length=1, default=(Engine(),))
    prompts: PromptKind = "text"
    is_required: bool = True

    def cells(self) -> tuple[Cell, ...]:
        """Every combination that makes sense: one output token in prefill, drafts with the speculative workload."""
        found: dict[str, Cell] = {}
        for engine, workload, batch, (input_len, output_len) in product(
            self.engines, self.workloads, self.batches, self.shapes
        ):
            if (workload is Workload.SPECULATIVE) != (engine.draft_tokens > 0):
                continue
            cell = Cell(
                workload=workload,
                batch=batch,
                input_len=input_len,
                output_len=1 if workload is Workload.PREFILL else output_len,
                engine=engine,
                prompts=self.prompts,
                is_required=self.is_required,
            )
            found.setdefault(cell.name, cell)
        return tuple(found.values())


def mark_beyond(cells: Iterable[Cell], scope: ScopeSection) -> tuple[Cell, ...]:
    """The cells, those of batch limit + 1 or of more drafts than declared marked as beyond the scope on purpose."""

    def is_beyond(cell: Cell) -> bool:
        return cell.batch == scope.max_batch + 1 or cell.engine.draft_tokens > scope.max_draft_tokens

    return tuple(
        cell.model_copy(update={"is_beyond_scope": True}) if is_beyond(cell) else cell for cell in cells
    )


def find_misfits(cells: Iterable[Cell], scope: ScopeSection) -> tuple[str, ...]:
    """Why cells lie outside the declared scope, one line a cell; a marked one may exceed the batch by one, and have
    more drafts."""
    lines = []
    for cell in cells:
        reasons = []
        if cell.batch > scope.max_batch + cell.is_beyond_scope:
            reasons.append(f"batch {cell.batch} (at most {scope.max_batch})")
        if cell.context > scope.max_context:
            reasons.append(f"{cell.context} tokens of context (at most {scope.max_context})")
        if cell.engine.tensor_parallel not in scope.tensor_parallel:
            known = ", ".join(map(str, scope.tensor_parallel))
            reasons.append(f"tensor parallel {cell.engine.tensor_parallel} (declared: {known})")
        if cell.engine.draft_tokens > scope.max_draft_tokens and not cell.is_beyond_scope:
            reasons.append(f"{cell.engine.draft_tokens} drafts (at most {scope.max_draft_tokens})")
        if reasons:
            lines.append(f"{cell.name}: {'; '.join(reasons)}")
    return tuple(lines)


def require_in_scope(cells: Sequence[Cell], scope: ScopeSection) -> None:
    """Raises `ConfigurationError` that names every cell outside the scope."""
    misfits = find_misfits(cells, scope)
    if misfits:
        raise ConfigurationError(
            "cells-outside-scope",
            f"{len(misfits)} of {len(cells)} cells lie outside the manifest's scope:\n  "
            + "\n  ".join(misfits),
            "Choose cells with --match, or declare the scope that the sweep is about.",
        )
