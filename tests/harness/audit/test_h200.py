"""The audit against a GPU: what it says of a binary is what an H200 showed when it ran that binary.

`fixtures/h200/stale_read.json` holds the stale reads that `gpu/stale_read.cu` counted on one NVIDIA H200 (nvcc 13.0,
1,000 iterations behind a producer that lets its dependents start and then sleeps 100 us); the PTX and the machine code
beside it are those of that build.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness.cli import main

FOLDER = Path(__file__).parent / "fixtures/h200"
ROLES = Path(__file__).parent / "gpu/roles.toml"
CASES = {case["kernel"]: case for case in json.loads((FOLDER / "stale_read.json").read_text())["cases"]}


def kernels_with_early_reads(name: str, capsys: pytest.CaptureFixture[str]) -> set[str]:
    main(["audit", str(FOLDER / name), "--roles", str(ROLES), "--format", "json", "--quiet"])
    findings = json.loads(capsys.readouterr().out)["findings"]
    decided = [f for f in findings if f["check"] == "PDL001" and "consumer" in f["subject"]]
    assert len(decided) == len(CASES)
    assert {f["outcome"] for f in decided} == {"pass", "fail"}
    return {f["subject"].split()[0] for f in decided if f["outcome"] == "fail"}


def test_the_machine_code_has_an_early_read_exactly_where_the_gpu_read_stale_data(
    capsys: pytest.CaptureFixture[str],
) -> None:
    stale = {kernel for kernel, case in CASES.items() if case["stale_iterations"]}
    assert kernels_with_early_reads("stale_read.sass", capsys) == stale


def test_the_hoisted_read_is_in_order_in_ptx_and_early_in_machine_code(
    capsys: pytest.CaptureFixture[str],
) -> None:
    in_ptx = kernels_with_early_reads("stale_read.ptx", capsys)
    in_sass = kernels_with_early_reads("stale_read.sass", capsys)
    assert in_sass - in_ptx == {"consumer_read_only_path"}
