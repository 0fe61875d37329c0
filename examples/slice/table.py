"""`python -m examples.slice.table RECORD...`: the rows of docs/slice.md that records of a slice give."""

import json
import statistics
import sys
from pathlib import Path
from typing import Any

BARS = {1: 0.55, 8: 0.65, 64: 0.8}
"""Largest ratio of specialised to stock, by batch."""
HEAD = (
    "| slice | context | batch | stock | specialised | ratio | of a round | bar | kernels, stock | specialised |",
    "|---|---|---|---|---|---|---|---|---|---|",
)


def cell_rows(run: dict[str, Any]) -> list[str]:
    """A row for every context and batch: microseconds of a layer (medians), least and largest ratio of a round."""
    return [_cell_row(f"TP{run['options']['tp']}", row) for row in run["layers"]]


def _cell_row(name: str, row: dict[str, Any]) -> str:
    stock, specialised = (row[arm]["layer_us"] for arm in ("stock", "specialised"))
    medians = statistics.median(stock), statistics.median(specialised)
    ratio = medians[1] / medians[0]
    rounds = [ours / theirs for ours, theirs in zip(specialised, stock, strict=True)]
    bar = BARS.get(row["batch"])
    cells = (
        *(name, f"{row['context']:,}", str(row["batch"])),
        *(f"{median:.1f}" for median in medians),
        *(f"{ratio:.3f}", f"{min(rounds):.3f} to {max(rounds):.3f}"),
        "" if bar is None else f"{bar:g}, {'met' if ratio <= bar else 'missed'}",
        *(f"{row[arm]['layer_kernels']:g}" for arm in ("stock", "specialised")),
    )
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Prints one table of all records."""
    runs = [json.loads(Path(name).read_text(encoding="utf-8")) for name in sys.argv[1:]]
    print("\n".join((*HEAD, *(row for run in runs for row in cell_rows(run)))))


if __name__ == "__main__":
    main()
