"""The figures of docs/slice.md are those of the runs that it names."""

import copy
import json
import re
from pathlib import Path
from statistics import median
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/slice.md").read_text(encoding="utf-8")
RUNS = sorted((ROOT / "examples/slice").glob("h200-*.json"))
LATEST = "h200-2026-12-01-down-without-prefetch.json"
BEFORE = "h200-2026-11-30-experts-in-registers.json"
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


def decode_rows(run: Run, before: Run) -> list[str]:
    """Beginnings of the table of decode steps, bars left out."""
    rows = []
    for now, then in both(run, before):
        arms = [f"{layer_us(now, arm):.1f}" for arm in ("stock", "specialised")]
        kernels = [f"{now[arm]['layer_kernels']:g}" for arm in ("stock", "specialised")]
        old = f"{layer_us(then, 'stock'):.1f} | {layer_us(then, 'specialised'):.1f} ({then['ratio']:.2f})"
        rows.append(
            f"| {now['batch']} | {' | '.join(arms)} | {now['ratio']:.2f} | {' | '.join(kernels)} | {old} |"
        )
    return rows


def prefill_rows(run: Run, note: str = "") -> list[str]:
    rows = []
    for row in run["prefill"]:
        stock, specialised = (layer_us(row, arm) for arm in ("stock", "specialised"))
        rows.append(
            f"| {row['tokens']:,} tokens{note} | {stock:,.0f} | {specialised:,.0f} | {specialised / stock:.2f} |"
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
    """Every row of the page's tables, as the two runs give it."""
    prefill = prefill_rows(run) + prefill_rows(before, ", form before")
    # The latest run was stopped before it wrote down its agreement.
    return decode_rows(run, before) + prefill + agreement_rows(before) + kernel_rows(run, before)


def without_bars(page: str) -> set[str]:
    """The page's lines; of the table of decode steps without the column of bars."""
    return {
        re.sub(r"^(\| \d+ (?:\| [\d.]+ ){3})\| [\d.]* (?=\|)", r"\1", line.strip())
        for line in page.splitlines()
    }


def missing(run: Run, before: Run) -> list[str]:
    return [row for row in quoted(run, before) if row not in without_bars(PAGE)]


def test_every_row_of_the_tables_is_what_the_runs_say():
    assert missing(read(LATEST), read(BEFORE)) == []


@pytest.mark.parametrize("batch", [0, 1, 2])
def test_a_layer_that_took_another_time_is_not_quoted(batch):
    run = copy.deepcopy(read(LATEST))
    run["layers"][batch]["specialised"]["layer_us"] = [
        x * 1.01 for x in run["layers"][batch]["specialised"]["layer_us"]
    ]
    assert len(missing(run, read(BEFORE))) == 1


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
    same = set(quoted(longer(read(LATEST)), before)) & set(quoted(read(LATEST), before))
    assert same == set(prefill_rows(before, ", form before") + agreement_rows(before))


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


def test_the_runs_served_decode_steps_by_the_path_in_every_layer():
    about = read(BEFORE)["about"]
    for arm in ("specialised 5", "specialised 9"):
        assert about[arm]["stock_mlps"] == {} and about[arm]["decisions"]["pure-decode"] > 0
    assert about["stock 9"]["decisions"] is None
    for row in read(LATEST)["layers"]:  # ended before it wrote its counts: by the kernels in its steps
        ours = [kernel for kernel in KERNELS.values() if kernel != "_attn_res_kernel"]
        names = {arm: " ".join(row[arm]["names"]) for arm in ("stock", "specialised")}
        assert [kernel for kernel in ours if kernel not in names["specialised"]] == []
        assert [kernel for kernel in ours if kernel in names["stock"]] == []
