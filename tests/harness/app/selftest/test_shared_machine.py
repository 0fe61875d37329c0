"""Whoever wants the machine for itself gets it, and nobody waits for ever."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

from harness.app.selftest.shared_machine import SharedMachine


def in_process(work: Callable[[], None]) -> int:
    pid = os.fork()
    if not pid:
        try:
            work()
        finally:
            os._exit(0)
    return pid


def worker(folder: Path, name: str, *, times: int, is_timed: bool) -> Callable[[], None]:
    """Works `times` times beside others, and says when; the timed part of each time is alone."""

    def work() -> None:
        machine = SharedMachine(folder)
        for _ in range(times):
            with machine.beside_others():
                say(folder, f"{name} in")
                time.sleep(0.01)
                if is_timed:
                    say(folder, f"{name} out")
                    with machine.alone():
                        say(folder, f"{name} alone")
                        time.sleep(0.03)
                        say(folder, f"{name} shared")
                    say(folder, f"{name} in")
                say(folder, f"{name} out")

    return work


def say(folder: Path, text: str) -> None:
    with (folder / "said").open("a") as file:
        file.write(f"{text}\n")


def said(folder: Path, *workers: Callable[[], None]) -> list[str]:
    for pid in [in_process(work) for work in workers]:
        assert os.waitpid(pid, 0)[1] == 0
    return (folder / "said").read_text().splitlines()


def test_while_one_is_alone_nobody_else_works(tmp_path: Path) -> None:
    lines = said(
        tmp_path,
        worker(tmp_path, "a", times=8, is_timed=True),
        worker(tmp_path, "b", times=8, is_timed=True),
        worker(tmp_path, "c", times=60, is_timed=False),
    )
    inside: set[str] = set()
    alone = ""
    beside = 0
    for line in lines:
        name, what = line.split()
        assert not alone or name == alone, lines
        if what == "in":
            inside.add(name)
            beside += len(inside) > 1
        elif what == "out":
            inside.remove(name)
        elif what == "alone":
            assert not inside, lines
        alone = name if what == "alone" else ""
    assert lines.count("a alone") == lines.count("b alone") == 8
    assert beside, "nobody ever worked beside another: the locks keep everything apart"


def test_who_waits_to_be_alone_goes_before_who_comes_later(tmp_path: Path) -> None:
    lines = said(
        tmp_path,
        worker(tmp_path, "a", times=1, is_timed=True),
        worker(tmp_path, "b", times=100, is_timed=False),
        worker(tmp_path, "c", times=100, is_timed=False),
    )
    waited = lines[lines.index("a out") : lines.index("a alone")]
    assert sum(line.endswith(" in") for line in waited) <= 6, lines


def test_a_process_that_dies_alone_lets_the_others_go_on(tmp_path: Path) -> None:
    def die() -> None:
        machine = SharedMachine(tmp_path)
        with machine.beside_others(), machine.alone():
            os._exit(0)

    assert said(tmp_path, die, worker(tmp_path, "b", times=3, is_timed=True)).count("b alone") == 3
