"""Named sets of cells: the tables that were published about Kimi K3, contributors' matrix, and quick ones."""

from __future__ import annotations

from collections.abc import Callable
from difflib import get_close_matches
from fnmatch import fnmatchcase

from harness.model.errors import ConfigurationError
from harness.model.manifest import ScopeSection
from perf_sweeps.cell import Axes, Cell, Engine, Published, Workload, mark_beyond

_ARTICLE = "vLLM's article on the Kimi K3 specialised path"
_GB300 = "GB300"
OVERHEAD = "overhead"
"""The preset that times the judge's own tracer: on in the candidate's place, off in the baselines'."""
_BATCHES = (1, 2, 4, 8, 16, 32, 64)
_NO_DRAFTS = {
    8: (
        (193.3, 1.58),
        (317.8, 1.50),
        (540.6, 1.55),
        (820.1, 1.45),
        (1274.8, 1.43),
        (1702.6, 1.33),
        (2375.9, 1.31),
    ),
    16: (
        (256.4, 1.88),
        (436.7, 1.92),
        (702.5, 1.81),
        (1157.9, 1.79),
        (1758.3, 1.71),
        (2550.9, 1.64),
        (3606.1, 1.62),
    ),
}
"""By GPUs: (tokens a second, speed-up) at each of `_BATCHES`."""


def article_decode(_scope: ScopeSection | None) -> tuple[Cell, ...]:
    """The table without speculation, a row a cell. The article states no prompt length: 1 is its speculative run's."""
    return tuple(
        Cell(
            workload=Workload.DECODE,
            batch=batch,
            input_len=1,
            output_len=1024,
            engine=Engine(tensor_parallel=gpus),
            published=Published(tok_s=tok_s, speedup=speedup, source=_ARTICLE, hardware=f"{gpus} x {_GB300}"),
        )
        for gpus, row in _NO_DRAFTS.items()
        for batch, (tok_s, speedup) in zip(_BATCHES, row, strict=True)
    )


def article_speculative(_scope: ScopeSection | None) -> tuple[Cell, ...]:
    """Seven drafts at a synthetic acceptance length of 6, batch 1, 16 GPUs."""
    return (
        Cell(
            workload=Workload.SPECULATIVE,
            batch=1,
            input_len=1,
            output_len=1024,
            engine=Engine(tensor_parallel=16, draft_tokens=7, acceptance_length=6),
            published=Published(tok_s=842, speedup=1.73, source=_ARTICLE, hardware=f"16 x {_GB300}"),
        ),
    )


def article_agents(_scope: ScopeSection | None) -> tuple[Cell, ...]:
    """Agent-like replay at concurrency 1. The published ratio compares 16 GPUs with 8, which no paired cell does."""
    return (
        Cell(
            workload=Workload.AGENT,
            batch=1,
            input_len=65536,
            output_len=512,
            engine=Engine(tensor_parallel=16),
            published=Published(tok_s=403.2, source=_ARTICLE, hardware=f"16 x {_GB300}"),
        ),
    )


def contributors(_scope: ScopeSection | None) -> tuple[Cell, ...]:
    """Parallelism x shape: 8 and 16 GPUs, context parallelism 1 and 4, three shapes of 1k and 8k, five loads."""
    engines = tuple(
        Engine(tensor_parallel=tp, decode_context_parallel=dcp) for tp in (8, 16) for dcp in (1, 4)
    )
    return Axes(
        workloads=(Workload.DECODE, Workload.MIXED),
        batches=(1, 4, 8, 16, 64),
        shapes=((1024, 1024), (8192, 1024), (1024, 8192)),
        engines=engines,
        is_required=False,
    ).cells()


def scope_edges(scope: ScopeSection | None) -> tuple[Cell, ...]:
    """Decode at every power of two in the manifest's scope, its limit and one more; short and half-full context."""
    if scope is None:
        raise ConfigurationError(
            "preset-needs-manifest", "The preset `scope` is made of a manifest's scope.", "Give --manifest."
        )
    output_len = max(1, min(128, scope.max_context // 4))
    engines = tuple(Engine(tensor_parallel=tp) for tp in scope.tensor_parallel)
    cells = Axes(
        workloads=(Workload.DECODE,),
        batches=scope.edge_batches,
        shapes=((32, output_len), (max(1, scope.max_context // 2), output_len)),
        engines=engines,
    ).cells()
    return mark_beyond(cells, scope)


def draft_lengths(scope: ScopeSection | None) -> tuple[Cell, ...]:
    """Decode with 1, 3 and 7 drafts and as many as the scope takes, of which five of seven are accepted, rounded.

    The share is that of the published run. At batch 1, 8 and the scope's limit.
    """
    limit = scope.max_batch if scope is not None else 64
    output_len = max(1, min(128, scope.max_context // 4)) if scope is not None else 128
    lengths = {1, 3, 7, scope.max_draft_tokens if scope is not None else 7} - {0}
    cells = Axes(
        workloads=(Workload.SPECULATIVE,),
        batches=tuple(sorted({1, min(8, limit), limit})),
        shapes=((32, output_len),),
        engines=tuple(
            Engine(draft_tokens=count, acceptance_length=1 + round(count * 5 / 7))
            for count in sorted(lengths)
        ),
    ).cells()
    marked = mark_beyond(cells, scope) if scope is not None else cells
    # Nothing is promised of drafts beyond the scope.
    return tuple(cell.model_copy(update={"is_required": not cell.is_beyond_scope}) for cell in marked)


def cpu_quick(_scope: ScopeSection | None) -> tuple[Cell, ...]:
    """Six cells that a laptop times within minutes on a miniature model; they claim nothing about a GPU."""
    decode = Axes(workloads=(Workload.DECODE,), batches=(1, 2, 4, 8), shapes=((24, 24),)).cells()
    rest = Axes(workloads=(Workload.PREFILL, Workload.MIXED), batches=(4,), shapes=((48, 16),)).cells()
    return (*decode, *rest)


def tracer_overhead(scope: ScopeSection | None) -> tuple[Cell, ...]:
    """The tracer on against off in decode steps: one request, and the full batch."""
    batches = tuple(sorted({1, scope.max_batch if scope is not None else 8}))
    return Axes(workloads=(Workload.OVERHEAD,), batches=batches, shapes=((32, 32),)).cells()


def cpu_agents(_scope: ScopeSection | None) -> tuple[Cell, ...]:
    """Replay of short conversations with tool pauses and a shared prefix, one and three at a time, on a miniature."""
    return tuple(Cell(workload=Workload.AGENT, batch=batch, input_len=320, output_len=24) for batch in (1, 3))


def cpu_speculative(_scope: ScopeSection | None) -> tuple[Cell, ...]:
    """Decode with three drafts that are verified for real, one and two requests at a time, on a miniature."""
    engine = Engine(draft_tokens=3)
    return Axes(
        workloads=(Workload.SPECULATIVE,), batches=(1, 2), shapes=((48, 160),), engines=(engine,)
    ).cells()


PRESETS: dict[str, Callable[[ScopeSection | None], tuple[Cell, ...]]] = {
    "cpu-quick": cpu_quick,
    "cpu-agents": cpu_agents,
    "cpu-speculative": cpu_speculative,
    OVERHEAD: tracer_overhead,
    "scope": scope_edges,
    "drafts": draft_lengths,
    "k3-article": article_decode,
    "k3-article-speculative": article_speculative,
    "k3-article-agents": article_agents,
    "contributors": contributors,
}


def preset_cells(name: str, scope: ScopeSection | None, match: str = "*") -> tuple[Cell, ...]:
    """The cells of a preset whose name the glob takes.

    Raises:
        ConfigurationError: No such preset, or no cell is left.
    """
    if name not in PRESETS:
        close = get_close_matches(name, PRESETS, n=1)
        advice = f"Did you mean {close[0]!r}?" if close else f"There are: {', '.join(PRESETS)}."
        raise ConfigurationError("unknown-preset", f"There is no preset {name!r}.", advice)
    cells = PRESETS[name](scope)
    chosen = tuple(cell for cell in cells if fnmatchcase(cell.name, match))
    if not chosen:
        raise ConfigurationError(
            "no-cells",
            f"No cell of {name!r} matches {match!r}.",
            f"Its first cell is {cells[0].name}; --plan lists them.",
        )
    return chosen
