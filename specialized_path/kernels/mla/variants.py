"""Variants of the MLA kernels: by cache type, by tile of query rows, and by what is merged."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, partial
from typing import Any, Literal

from specialized_path.kernels.mla.split_plan import MAX_REQUESTS
from specialized_path.kernels.variant import KernelVariant

MAX_ROWS = 512
"""Query rows (requests x tokens) of the query, merge and value kernels."""
ROW_TILE = 16
QUERY_SPLIT_ROWS = 16
"""Up to here the query kernel takes 16 rows at a time, above 32."""

CacheName = Literal["bf16", "fp8"]
Source = Literal["latent", "chunks", "shards"]

# Lengths and page tables are ready before the step's first kernel. The cache has this step's rows from the kernel in
# front, so that all of it is read after the wait.
_CORE_ROLES = {"0": "activation", "1": "state", "2": "settled", "3": "settled", "4": "output", "5": "output"}
_MERGE_ROLES = {"0": "activation", "1": "activation", "2": "settled", "3": "output", "4": "output"}
_QUERY_ROLES = {
    "0": "activation",
    "1": "static",
    "2": "static",
    "3": "static",
    "4": "static",
    "5": "settled",
    "6": "output",
    "7": "state",
}
_VALUE_ROLES = {
    "0": "activation",
    "1": "activation",
    "2": "static",
    "3": "activation",
    "4": "settled",
    "5": "output",
}


Schedule = Literal["lockstep", "roles"]
"""How the attention core's warps share the work."""
SCHEDULES: tuple[Schedule, ...] = ("lockstep", "roles")


@dataclass(frozen=True, slots=True, kw_only=True)
class CoreTile:
    """How the attention core stages cached rows."""

    rows: int
    """Cached rows of a stage, 32 or 64."""
    stages: int
    """Two tiles are worked on at once, the others are on their way."""

    def __post_init__(self) -> None:
        if self.rows not in (32, 64) or self.stages < 3:
            raise ValueError(f"core tile: got {self}, expected 32 or 64 rows and at least 3 stages")


CORE_TILES: dict[tuple[Schedule, CacheName, int], CoreTile] = {
    ("lockstep", "bf16", 1): CoreTile(rows=32, stages=5),
    ("lockstep", "bf16", 2): CoreTile(rows=32, stages=4),
    ("lockstep", "bf16", 3): CoreTile(rows=32, stages=3),
    ("lockstep", "fp8", 1): CoreTile(rows=64, stages=4),
    ("lockstep", "fp8", 2): CoreTile(rows=64, stages=3),
    ("lockstep", "fp8", 3): CoreTile(rows=32, stages=5),
    ("roles", "bf16", 1): CoreTile(rows=32, stages=5),
    ("roles", "bf16", 2): CoreTile(rows=32, stages=4),
    ("roles", "bf16", 3): CoreTile(rows=32, stages=3),
    ("roles", "fp8", 1): CoreTile(rows=64, stages=4),
    ("roles", "fp8", 2): CoreTile(rows=32, stages=6),
    ("roles", "fp8", 3): CoreTile(rows=32, stages=5),
}
"""By schedule, cache type and tiles of 16 query rows."""
_LOCKSTEP_SPILLS: dict[tuple[CacheName, int], int] = {("bf16", 2): 24, ("fp8", 2): 128}
"""Bytes of registers that may spill by cache type and row tile; sm_90a needs 16 of them."""


def core_row_tiles(num_query_rows: int) -> tuple[int, int]:
    """Units of 16 rows of an item (1 to 3), and items that cover a request's rows: the fewest items, then rows."""
    units = -(-num_query_rows // ROW_TILE)
    items = -(-units // 3)
    return -(-units // items), items


def _build_core(schedule: Schedule, cache_name: CacheName, m_tiles: int) -> Any:
    from cutlass import Float32, Int32, Int64, cute

    from specialized_path.kernels.common.host import fake_pointer, fake_stream
    from specialized_path.kernels.mla.attention_lockstep import LockstepCore
    from specialized_path.kernels.mla.attention_roles import RolesCore

    core = LockstepCore if schedule == "lockstep" else RolesCore
    kernel = core(fp8=cache_name == "fp8", m_tiles=m_tiles, tile=CORE_TILES[schedule, cache_name, m_tiles])
    return cute.compile(
        kernel,
        *(fake_pointer() for _ in _CORE_ROLES),
        *(Int32(1) for _ in range(4)),
        *(Int64(1) for _ in range(3)),
        Float32(1.0),
        *(Int32(1) for _ in range(8)),
        fake_stream(),
    )


def _build_merge(shards: bool) -> Any:
    from cutlass import Float32, Int32, cute

    from specialized_path.kernels.common.host import fake_pointer, fake_stream
    from specialized_path.kernels.mla.merge import Cut, MergeKernel, MergeScales, MergeSizes

    return cute.compile(
        MergeKernel(shards=shards),
        *(fake_pointer() for _ in _MERGE_ROLES),
        MergeSizes(*(Int32(1) for _ in range(4))),
        MergeScales(Float32(1.0), Float32(1.0)),
        Float32(1.0),
        Cut(*(Int32(1) for _ in range(6))),
        Int32(1),
        fake_stream(),
    )


def _build_query(cache_name: CacheName, m_tiles: int) -> Any:
    from cutlass import Float32, Int32, Int64, cute

    from specialized_path.kernels.common.host import fake_pointer, fake_stream
    from specialized_path.kernels.mla.query import QueryKernel

    return cute.compile(
        QueryKernel(fp8=cache_name == "fp8", m_tiles=m_tiles),
        *(fake_pointer() for _ in _QUERY_ROLES),
        *(Int64(1) for _ in range(4)),
        *(Int32(1) for _ in range(4)),
        *(Float32(1.0) for _ in range(3)),
        Int32(1),
        fake_stream(),
    )


def _build_value(source: Source) -> Any:
    from cutlass import Float32, Int32, Int64, cute

    from specialized_path.kernels.common.host import fake_pointer, fake_stream
    from specialized_path.kernels.mla.merge import Cut, MergeScales, MergeSizes
    from specialized_path.kernels.mla.value import ValueKernel

    return cute.compile(
        ValueKernel(source=source),
        *(fake_pointer() for _ in _VALUE_ROLES),
        *(Int64(1) for _ in range(2)),
        MergeSizes(*(Int32(1) for _ in range(4))),
        MergeScales(Float32(1.0), Float32(1.0)),
        Cut(*(Int32(1) for _ in range(6))),
        Int32(1),
        fake_stream(),
    )


@cache
def core_variant(cache_name: CacheName, m_tiles: int, schedule: Schedule = "lockstep") -> KernelVariant:
    """The attention core for `16 * m_tiles` query rows at a time."""
    return KernelVariant(
        name=f"mla attention {cache_name} rows={ROW_TILE * m_tiles} {schedule}",
        operator="OC-9",
        family="mla",
        rank_shape="any",
        batches=(1, MAX_REQUESTS),
        roles=_CORE_ROLES,
        build=partial(_build_core, schedule, cache_name, m_tiles),
        allowed_spill_bytes=0 if schedule == "roles" else _LOCKSTEP_SPILLS.get((cache_name, m_tiles), 0),
    )


@cache
def merge_variant(source: Literal["chunks", "shards"]) -> KernelVariant:
    """The merge of partial attentions to latents and LSE."""
    return KernelVariant(
        name=f"mla merge {source}",
        operator="OC-9" if source == "chunks" else "OC-11",
        family="mla",
        rank_shape="any",
        batches=(1, MAX_ROWS),
        roles=_MERGE_ROLES,
        build=partial(_build_merge, source == "shards"),
    )


@cache
def query_variant(cache_name: CacheName, m_tiles: int) -> KernelVariant:
    """The query side for `16 * m_tiles` rows at a time."""
    return KernelVariant(
        name=f"mla query {cache_name} rows={ROW_TILE * m_tiles}",
        operator="OC-8",
        family="mla",
        rank_shape="any",
        batches=(1, QUERY_SPLIT_ROWS) if m_tiles == 1 else (QUERY_SPLIT_ROWS + 1, MAX_ROWS),
        roles=_QUERY_ROLES,
        build=partial(_build_query, cache_name, m_tiles),
    )


@cache
def value_variant(source: Source) -> KernelVariant:
    """The value side, with what it merges first."""
    merged = {"latent": "OC-10", "chunks": "OC-9, OC-10", "shards": "OC-10, OC-11"}
    return KernelVariant(
        name=f"mla value from {source}",
        operator=merged[source],
        family="mla",
        rank_shape="any",
        batches=(1, MAX_ROWS),
        roles=_VALUE_ROLES,
        build=partial(_build_value, source),
    )


def variants() -> tuple[KernelVariant, ...]:
    """All variants of the family."""
    caches: tuple[CacheName, ...] = ("bf16", "fp8")
    sources: tuple[Source, ...] = ("latent", "chunks", "shards")
    return (
        *(query_variant(name, m_tiles) for name in caches for m_tiles in (1, 2)),
        *(core_variant(name, m_tiles, how) for how in SCHEDULES for name in caches for m_tiles in (1, 2, 3)),
        merge_variant("chunks"),
        merge_variant("shards"),
        *(value_variant(source) for source in sources),
    )
