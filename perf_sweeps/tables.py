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


def frontier_rows(result: SweepResult) -> list[Row]:
    """Each arm's points of tokens a second against tokens a second a user, of decode at one context.

    A point is on the frontier when no other of its arm and context is at least as good in both and better in one.
    """
    points = []
    for row in cell_rows(result):
        if row["workload"] != "decode" or row["baseline_ms"] is None:
            continue
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
                }
            )
    return [point | {"is_on_frontier": not any(_beats(o, point) for o in points)} for point in points]


def _beats(other: Row, point: Row) -> bool:
    if any(other[k] != point[k] for k in ("arm", "input_len", "output_len")):
        return False
    gains = [float(other[k]) - float(point[k]) for k in ("tok_s_per_user", "tok_s")]
    return min(gains) >= 0 and max(gains) > 0


def growth_rows(result: SweepResult, floor_ms: float | None = None) -> list[Row]:
    """A decode step's time over that of the smallest batch of the same engine and shape.

    `floor_ms` is the time that reading the weights of one step takes at the hardware's bandwidth, where it is known.
    """
    first: dict[tuple[Any, ...], Row] = {}
    rows = sorted((r for r in cell_rows(result) if r["workload"] == "decode"), key=lambda r: int(r["batch"]))
    grown = []
    for row in rows:
        if row["baseline_ms"] is None:
            continue
        start = first.setdefault((row["engine"], row["input_len"], row["output_len"]), row)
        names = ("cell", "engine", "input_len", "output_len", "batch")
        grown.append(
            {name: row[name] for name in names}
            | {f"{arm}_growth": row[f"{arm}_ms"] / start[f"{arm}_ms"] for arm in ("baseline", "candidate")}
            | {"over_floor": row["candidate_ms"] / floor_ms if floor_ms else None}
        )
    return grown


def write_tables(result: SweepResult, folder: Path) -> tuple[Path, ...]:
    """Writes `cells`, `frontier` and `growth` as parquet; none where pandas or pyarrow is missing."""
    if not (find_spec("pandas") and find_spec("pyarrow")):
        return ()
    tables = {"cells": cell_rows(result), "frontier": frontier_rows(result), "growth": growth_rows(result)}
    return tuple(_write(folder / f"{name}.parquet", rows) for name, rows in tables.items() if rows)


def _write(path: Path, rows: Sequence[Row]) -> Path:
    import pandas

    pandas.DataFrame(rows).to_parquet(path, index=False)
    return path
