"""A sweep of real engines on a Ray cluster of this machine, whose worker is killed in the middle."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections import Counter
from pathlib import Path

import pytest

from harness.cli import main
from harness.model.words import ExitCode

REPO = Path(__file__).parents[2]
pytestmark = pytest.mark.engine
ASKED = ("--preset", "cpu-quick", "--match", "decode/*/b[12]/*", "--blocks", "2", "--base", "empty")


def records_of(out: Path) -> list[dict[str, object]]:
    path = out / "records.jsonl"
    whole = path.read_text().rpartition("\n")[0] if path.exists() else ""
    return [json.loads(line)["record"] for line in whole.splitlines()]


def descendants(pid: int) -> list[int]:
    children = Path(f"/proc/{pid}/task/{pid}/children")
    found = [int(child) for child in children.read_text().split()] if children.exists() else []
    return [*found, *(grandchild for child in found for grandchild in descendants(child))]


def kill_the_worker(out: Path, killed: list[int]) -> None:
    """Once a block is recorded: the process that holds the servers, as a machine's memory killer would."""
    while not records_of(out):
        time.sleep(0.1)
    for pid in descendants(os.getpid()):
        command = Path(f"/proc/{pid}/cmdline")
        if command.exists() and command.read_bytes().startswith(b"ray::_Worker"):
            os.kill(pid, signal.SIGKILL)
            killed.append(pid)


def test_a_worker_that_is_killed_with_its_engines_loses_no_block_and_none_is_measured_twice(
    tmp_path: Path,
) -> None:
    pytest.importorskip("ray", reason="needs the extra `sweep`")
    out, killed = tmp_path / "out", []
    thread = threading.Thread(target=kill_the_worker, args=(out, killed), daemon=True)
    thread.start()
    code = main(["sweep", "--repo", str(REPO), "--out", str(out), "--address", "local", *ASKED])
    assert code in (ExitCode.UNDECIDED, ExitCode.ADMIT, ExitCode.REJECT) and len(killed) == 1
    found = Counter((r["kind"], r.get("cell"), r.get("index")) for r in records_of(out))
    blocks = {key[1:]: count for key, count in found.items() if key[0] == "block"}
    assert len(blocks) == 4 and set(blocks.values()) == {1}
    assert [r["cause"] for r in records_of(out) if r["kind"] == "failure"] == ["infrastructure"]
