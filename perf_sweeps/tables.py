"""A sweep's result as tables: one row a cell, the throughput-latency frontier, and the growth of cost."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from perf_sweeps.analysis import CellResult, SweepResult

Row = dict[str, Any]


def cell_rows(result: SweepResult) -> list[Row]:
    """One row a cell: what it is, its levels, its ratio with interval, and its outcome. Missing values are None."""
    return [_row(r) for r in result.cells]


def _row(result: CellResult) -> Row:
    cell, ratio, noise = result.cell, result.ratio, result.noise
    return {
        "cell": cell.name,
        "workload": str(cell.workload),
        "engine": cell.engine.name,
        "batch": cell.batch,
        "input_len": cell.input_len,
        "output_len": cell.output_len,
        "prompts": cell.prompts,
        "is_required": cell.is_required,
        "outcome": str(result.outcome),
        "baseline_ms": result.baseline_ms,
        "candidate_ms": result.candidate_ms,
        "baseline_tok_s": result.baseline_tok_s,
        "candidate_tok_s": result.candidate_tok_s,
        "speedup": 1 / ratio.estimate if ratio else None,
        "speedup_low": 1 / ratio.ci_high if ratio else None,
        "speedup_high": 1 / ratio.ci_low if ratio else None,
        "noise_ratio": noise.estimate if noise else None,
        "num_blocks": ratio.n if ratio else 0,
        "published_tok_s": cell.published.tok_s if cell.published else None,
        "published_speedup": cell.published.speedup if cell.published else None,
        "hardware": result.hardware,
    }


def speedup_rows(result: SweepResult) -> list[Row]:
    """The published table's shape: a row a batch, for each engine the candidate's tokens a second and its speed-up.

    Of decode cells, a step's tokens over its time; cells of one batch and other lengths have rows of their own.
    """
    found: dict[tuple[int, int, int], Row] = {}
    for row in _timed_decode(result):
        place = (row["input_len"], row["output_len"], row["batch"])
        target = found.setdefault(place, {name: row[name] for name in ("input_len", "output_len", "batch")})
        target[f"{row['engine']} tok/s"] = 1000 * row["batch"] / row["candidate_ms"]
        target[f"{row['engine']} speed-up"] = row["speedup"]
    return [found[place] for place in sorted(found)]


def _timed_decode(result: SweepResult) -> list[Row]:
    """Rows of decode cells that have times, the smallest batch first."""
    rows = [r for r in cell_rows(result) if r["workload"] == "decode" and r["baseline_ms"] is not None]
    return sorted(rows, key=lambda r: (int(r["batch"]), int(r["input_len"])))


def frontier_rows(result: SweepResult) -> list[Row]:
    """Each arm's points of tokens a second and rank against tokens a second and user, of decode at one context.

    A point is on the frontier when no other of its arm and context is at least as good in both and better in one.
    """
    ranks = {r.cell.name: r.cell.engine.tensor_parallel for r in result.cells}
    points = []
    for row in _timed_decode(result):
        for arm in ("baseline", "candidate"):
            per_user = 1000 / row[f"{arm}_ms"]
            points.append(
                {
                    "arm": arm,
                    "engine": row["engine"],
                    "input_len": row["input_len"],
                    "output_len": row["output_len"],
                    "batch": row["batch"],
                    "tok_s_per_user": per_user,
                    "tok_s": per_user * row["batch"],
                    "tok_s_per_rank": per_user * row["batch"] / ranks[row["cell"]],
                }
            )
    return [point | {"is_on_frontier": not any(_beats(o, point) for o in points)} for point in points]


def _beats(other: Row, point: Row) -> bool:
    if any(other[k] != point[k] for k in ("arm", "input_len", "output_len")):
        return False
    gains = [float(other[k]) - float(point[k]) for k in ("tok_s_per_user", "tok_s_per_rank")]
    return min(gains) >= 0 and max(gains) > 0


def growth_rows(result: SweepResult, floor_ms: float | None = None) -> list[Row]:
    """A decode step's time over that of the smallest batch of its shape, and of the shortest prompt of its batch.

    `floor_ms` is the time that reading the bytes of one step takes at the hardware's bandwidth, where it is known.
    """
    grown = []
    for along, fixed in (("batch", ("input_len", "output_len")), ("input_len", ("batch", "output_len"))):
        first: dict[tuple[Any, ...], Row] = {}
        for row in sorted(_timed_decode(result), key=lambda r: int(r[along])):
            start = first.setdefault((row["engine"], *(row[name] for name in fixed)), row)
            if along == "input_len" and start is row:
                continue
            names = ("cell", "engine", "input_len", "output_len", "batch")
            grown.append(
                {"along": along}
                | {name: row[name] for name in names}
                | {
                    f"{arm}_growth": row[f"{arm}_ms"] / start[f"{arm}_ms"]
                    for arm in ("baseline", "candidate")
                }
                | {"over_floor": row["candidate_ms"] / floor_ms if floor_ms else None}
            )
    return grown


def write_tables(result: SweepResult, folder: Path, floor_ms: float | None = None) -> tuple[Path, ...]:
    """Writes `cells`, `frontier` and `growth` as parquet; none where pandas or pyarrow is missing."""
    if not (find_spec("pandas") and find_spec("pyarrow")):
        return ()
    tables = {
        "cells": cell_rows(result),
        "frontier": frontier_rows(result),
        "growth": growth_rows(result, floor_ms),
    }
    return tuple(_write(folder / f"{name}.parquet", rows) for name, rows in tables.items() if rows)


def _write(path: Path, rows: Sequence[Row]) -> Path:
    import pandas

    pandas.DataFrame(rows).to_parquet(path, index=False)
    return path
