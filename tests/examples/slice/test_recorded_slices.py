"""The figures of docs/slice.md are those of the runs that it names."""

import json
from pathlib import Path
from statistics import median
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/slice.md").read_text(encoding="utf-8")
RUNS = sorted((ROOT / "examples/slice").glob("h200-*.json"))
LATEST = "h200-2026-12-01-tp8-contexts.json"
BEFORE = "h200-2026-12-01-down-without-prefetch.json"
SCHEDULES = {"batch 1": "batch 1 (12 places)", "hand-over": "12 requests that join one by one"}
KERNELS = {
    "two attention residuals, each": "AttnResKernelnum_blocks1_updateadd",
    "input projection (KDA)": "ProjectionKernelnum_outputs6288",
    "KDA": "kdakernelKda",
    "output projection, tail and the dense down-projection, on average": "ProjectionKernelnum_outputs7168",
    "front": "FrontKernel",
    "selection": "SelectionKernel",
    "experts, gate and up": "GateUpKernelshapeExpertShape",
    "experts, down": "DownKernelshapeExpertShape",
    "norm": "LatentNormKernel",
    "vLLM's last attention residual, behind the last tail": "_attn_res_kernel",
}
Run = dict[str, Any]


def read(name: str) -> Run:
    return dict(json.loads((ROOT / "examples/slice" / name).read_text(encoding="utf-8")))


def layer_us(row: Run, arm: str) -> float:
    return float(median(row[arm]["layer_us"]))


def duration(row: Run, kernel: str) -> float:
    """Microseconds a launch of the specialised arm's kernels of that name, on average."""
    found = [
        (us, launches) for name, (launches, us, *_) in row["specialised"]["names"].items()
        if name.startswith(kernel) or (kernel in name and kernel[0] != "_")
    ]  # fmt: skip
    return float(sum(us for us, _ in found) / sum(launches for _, launches in found))


def both(run: Run, before: Run) -> list[tuple[Run, Run]]:
    """Cells of a run with those of the one before, where it had them."""
    old = {(row["context"], row["batch"]): row for row in before["layers"]}
    cells = [(row, old.get((row["context"], row["batch"]))) for row in run["layers"]]
    return [(row, then) for row, then in cells if then is not None]


def prefill_rows(run: Run) -> list[str]:
    rows = []
    for row in run["prefill"]:
        stock, specialised = (layer_us(row, arm) for arm in ("stock", "specialised"))
        rows.append(
            f"| {row['tokens']:,} tokens | {stock:,.0f} | {specialised:,.0f} | {specialised / stock:.2f} |"
        )
    return rows


def agreement_rows(run: Run) -> list[str]:
    rows = []
    for name, who in run["agreement"].items():
        cells = []
        for arm in ("specialised", "stock_one_by_one", "stock_again"):
            mean, largest = (who[arm][key] * 1e6 for key in ("mean", "max"))
            cells.append(f"{mean:.1f}, {largest:.{0 if largest >= 10 else 1}f}")
        if name == "batch 1":
            cells[1] = "the same schedule"
        rows.append(f"| {SCHEDULES.get(name, name)} | {' | '.join(cells)} |")
    return rows


def kernel_rows(run: Run, before: Run) -> list[str]:
    rows = []
    for words, kernel in KERNELS.items():
        pairs = both(run, before)
        cells = [f"{duration(then, kernel):.1f}, {duration(now, kernel):.1f}" for now, then in pairs]
        rows.append(f"| {words} | {' | '.join(cells)} |")
    return rows


def quoted(run: Run, before: Run) -> list[str]:
    """Every row of the page's tables but that of layers, as the two runs give it."""
    return prefill_rows(run) + agreement_rows(run) + kernel_rows(run, before)


def missing(run: Run, before: Run) -> list[str]:
    lines = {line.strip() for line in PAGE.splitlines()}
    return [row for row in quoted(run, before) if row not in lines]


def test_every_row_of_the_tables_is_what_the_runs_say():
    assert missing(read(LATEST), read(BEFORE)) == []


def longer(value: Any) -> Any:
    """A run whose every number is larger, launches left out."""
    if isinstance(value, dict):
        return {
            key: {name: [row[0], *longer(row[1:])] for name, row in part.items()}
            if key == "names"
            else longer(part)
            for key, part in value.items()
        }
    if isinstance(value, list):
        return [longer(part) for part in value]
    return value * 1.3 if isinstance(value, float) else value


def test_no_row_stands_where_its_run_has_other_numbers():
    before = read(BEFORE)
    run = read(LATEST)
    again = [row for row in agreement_rows(run) if "0.0, 0.0" not in row]
    assert set(quoted(longer(run), before)).isdisjoint(
        {*prefill_rows(run), *again, *kernel_rows(run, before)}
    )


@pytest.mark.parametrize("path", RUNS, ids=lambda path: path.stem)
def test_a_runs_ratios_are_those_of_its_medians(path):
    for row in json.loads(path.read_text(encoding="utf-8"))["layers"]:
        assert row["ratio"] == pytest.approx(layer_us(row, "specialised") / layer_us(row, "stock"), abs=1e-4)


def test_the_page_of_the_experts_has_the_layers_of_the_same_runs():
    page = (ROOT / "docs/kernels/moe.md").read_text(encoding="utf-8")
    times = [
        f"{layer_us(row, 'specialised'):.1f}" for name in (LATEST, BEFORE) for row in read(name)["layers"][:3]
    ]
    assert [time for time in times if time not in page] == []


def test_every_run_is_named_by_the_page():
    assert [path.name for path in RUNS if path.name not in PAGE] == []


@pytest.mark.parametrize("run", [path.name for path in RUNS if "contexts" in path.name])
def test_the_runs_served_decode_steps_by_the_path_in_every_layer(run):
    about = read(run)["about"]
    for arm in ("specialised 5", "specialised 9"):
        assert about[arm]["stock_mlps"] == {} and about[arm]["decisions"]["pure-decode"] > 0
    assert about["stock 9"]["decisions"] is None
