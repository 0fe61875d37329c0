"""Laws of driving `vllm bench serve`: one process for many visits, and one that fails says why and is started anew."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from perf_sweeps import bench_driver
from perf_sweeps.bench_driver import BenchDriver
from perf_sweeps.bench_result import BenchResultError

FAKE = """
import json, os, pathlib, sys
print("ready", flush=True)
for line in sys.stdin:
    words = json.loads(line)
    value = lambda name: words[words.index(name) + 1]
    if value("--seed") == "dies": raise ValueError("no such option")
    if value("--seed") == "hangs": sys.stdin.read()
    prompts = [json.loads(l)["prompt"] for l in open(value("--dataset-path"), encoding="utf-8")]
    if value("--seed") != "saves nothing":
        result = {"pid": os.getpid(), "prompts": prompts}
        pathlib.Path(value("--result-dir"), value("--result-filename")).write_text(json.dumps(result))
    print("done", flush=True)
"""


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[BenchDriver]:
    found = BenchDriver(tmp_path, command=(sys.executable, "-S", "-c", FAKE))
    yield found
    found.close()


def test_one_process_serves_every_visit_with_its_own_prompts(driver: BenchDriver) -> None:
    first, second = (driver.run(("--seed", "0"), [text, "b\nc"]) for text in ("ü\u2028", "x"))
    assert first.partition("prompts")[0] == second.partition("prompts")[0]
    assert second.endswith('["x", "b\\nc"]}')


def test_a_generator_that_ends_says_why_and_the_next_visit_finds_another(driver: BenchDriver) -> None:
    with pytest.raises(BenchResultError, match="ValueError: no such option"):
        driver.run(("--seed", "dies"), ["a"])
    assert '"prompts"' in driver.run(("--seed", "0"), ["a"])


def test_an_older_result_never_stands_in_for_one_that_was_not_saved(driver: BenchDriver) -> None:
    driver.run(("--seed", "0"), ["a"])
    with pytest.raises(BenchResultError, match="saved no result"):
        driver.run(("--seed", "saves nothing"), ["a"])


def test_a_generator_that_hangs_is_given_up(driver: BenchDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_driver, "VISIT_S", 0.2)
    with pytest.raises(BenchResultError, match="no answer within"):
        driver.run(("--seed", "hangs"), ["a"])
