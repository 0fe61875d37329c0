"""A GPU's memory is never promised twice, goes to the largest case first, and is not lost with a process."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from harness.app.selftest import gpu_room
from harness.app.selftest.gpu_room import SHARE_BYTES, GpuMemory, GpuRoom
from tests.harness.app.selftest.test_shared_machine import in_process, said, say


def room_in(folder: Path, num_shares: int) -> GpuRoom:
    return GpuRoom(folder, GpuMemory(num_shares=num_shares, share="0.1"))


@pytest.fixture(autouse=True)
def looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_room, "_POLL_S", 0.005)


def case(
    folder: Path, name: str, needs: Mapping[str, int], *, of: int, waits_s: float = 0.0
) -> Callable[[], None]:
    """A process that runs those of a case side by side, and says what they take and give back."""

    def work() -> None:
        with room_in(folder, of).announced(needs) as announced:
            time.sleep(waits_s)

            def run(process: str) -> None:
                with announced.taken(process):
                    say(folder, f"{name} {process} {needs[process]}")
                    time.sleep(0.05)
                    say(folder, f"{name} {process} -{needs[process]}")

            with ThreadPoolExecutor(len(needs)) as pool:
                list(pool.map(run, needs))

    return work


def most_at_once(lines: list[str]) -> int:
    used = [int(line.split()[2]) for line in lines]
    return max(sum(used[: end + 1]) for end in range(len(used)))


def test_no_more_is_taken_at_once_than_there_is_and_as_much_as_fits_is(tmp_path: Path) -> None:
    whole = {"candidate": 2, "twin": 1, "head": 1, "base": 1}
    cases = [case(tmp_path, f"c{n}", whole if n < 2 else {"candidate": 1}, of=4) for n in range(6)]
    lines = said(tmp_path, *cases)
    assert len(lines) == 2 * (2 * 4 + 4)
    assert most_at_once(lines) == 4


def test_the_larger_case_is_served_first_though_it_was_announced_last(tmp_path: Path) -> None:
    small = case(tmp_path, "small", {"a": 1}, of=2, waits_s=0.3)
    large = case(tmp_path, "large", {"a": 1, "b": 1, "c": 1}, of=2, waits_s=0.3)

    def later() -> None:
        time.sleep(0.1)
        large()

    begun = [line.split()[0] for line in said(tmp_path, small, later) if "-" not in line]
    assert begun == ["large", "large", "large", "small"]


def test_what_is_larger_than_all_there_is_runs_alone(tmp_path: Path) -> None:
    lines = said(tmp_path, case(tmp_path, "a", {"x": 3}, of=2), case(tmp_path, "b", {"x": 1}, of=2))
    begun = lines.index("a x 3")
    assert len(lines) == 4 and begun in (0, 2) and lines[begun + 1] == "a x -3"


@pytest.mark.parametrize("has_taken", [True, False], ids=["taken", "waiting"])
def test_what_a_process_held_that_died_goes_to_the_next(tmp_path: Path, has_taken: bool) -> None:
    def dies() -> None:
        with room_in(tmp_path, 1).announced({"a": 1, "b": 1}) as announced:
            if has_taken:
                with announced.taken("a"):
                    os.kill(os.getpid(), signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGKILL)

    os.waitpid(in_process(dies), 0)
    places = [tmp_path / name for name in ("gpu-waiting", "gpu-taken")]
    assert [len(list(place.iterdir())) for place in places] == ([1, 1] if has_taken else [2, 0])
    assert said(tmp_path, case(tmp_path, "next", {"a": 1}, of=1)) == ["next a 1", "next a -1"]


def test_a_process_that_a_case_does_not_run_holds_up_none_of_its_others(tmp_path: Path) -> None:
    room, done = room_in(tmp_path, 4), threading.Event()

    def work() -> None:
        with room.announced({"candidate": 1, "twin": 1}) as announced, announced.taken("twin"):
            done.set()

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    assert done.wait(5)
    thread.join()
    assert not [file for place in tmp_path.iterdir() for file in place.iterdir()]


def test_an_error_gives_back_what_was_taken(tmp_path: Path) -> None:
    room = room_in(tmp_path, 1)
    with pytest.raises(ZeroDivisionError), room.announced({"a": 1}) as announced, announced.taken("a"):
        raise ZeroDivisionError
    assert not [file for place in tmp_path.iterdir() for file in place.iterdir()]


@pytest.mark.parametrize(("free_gib", "num_shares"), [(134, 9), (135, 10), (12, 1), (30, 2)])
def test_as_many_shares_as_are_free(free_gib: int, num_shares: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_room, "find_memory", lambda: (135 * 2**30, free_gib * 2**30))
    found = GpuMemory.measured()
    assert (found.num_shares, found.share) == (num_shares, "0.1000")
    assert found.num_shares * SHARE_BYTES <= max(free_gib * 2**30, SHARE_BYTES)


def test_memory_that_is_not_told_is_taken_for_one_run_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_room, "find_memory", lambda: None)
    assert GpuMemory.measured() == gpu_room.NOT_MEASURED
    assert gpu_room.NOT_MEASURED.share == "" and gpu_room.NOT_MEASURED.num_shares == 5
