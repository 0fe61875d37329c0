"""Laws of a program that is forked from a warm parent: it is what it would be if it had been run anew."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from harness.engine import warm_start
from harness.engine.arm_spec import BOOTSTRAP, ArmSpec
from harness.engine.forked_program import MODULE
from harness.engine.trace_settings import write_settings
from harness.engine.warm_start import WarmParent, WarmProcess, fork_supervisor
from harness.model.errors import EngineError

PROGRAMS = {
    "heavy": "import os\nPID = os.getpid()\nos.environ['SET_AT_IMPORT'] = 'yes'\n",
    "threaded": "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()\n",
    "tells": """
        import json, os, sys, tempfile
        from harness.engine.tracer import active
        def tell(**more):
            tracer = active()
            print(json.dumps({"pid": os.getpid(), "env": dict(os.environ), "argv": sys.argv[1:], "cwd": os.getcwd(),
                "name": __name__, "temp": tempfile.gettempdir(), "modules": list(sys.modules), **more,
                "fds": len(os.listdir("/proc/self/fd")), "nonce": tracer and tracer.settings.nonce}), flush=True)
        if __name__ == "__main__":
            import heavy
            tell(heavy=heavy.PID)
    """,
    "spawns": """
        import multiprocessing, sys
        def run(queue):
            import os, tells, heavy
            tells.tell(heavy=heavy.PID, parent=os.getppid(), private="colorsys" in sys.modules)
            queue.put("answer")
            sys.exit(5)
        if __name__ == "__main__":
            import colorsys, tells, heavy
            tells.tell(heavy=heavy.PID)
            context = multiprocessing.get_context("spawn")
            for _ in range(2):
                queue = context.Queue()
                child = context.Process(target=run, args=(queue,))
                child.start()
                assert queue.get(timeout=30) == "answer"
                child.join()
                assert child.exitcode == 5
    """,
    "fails": "raise ValueError('of the program')\n",
    "leaves": "import sys\nsys.exit(7)\n",
    "lingers": """
        import os, subprocess, sys, time
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
        print(os.getpid(), child.pid, flush=True)
        time.sleep(600)
    """,
}


@dataclass(frozen=True)
class Place:
    """A warm parent for the programs above, and how one of them is begun."""

    parent: WarmParent
    folder: Path
    env: dict[str, str]

    def begin(self, spec: ArmSpec, name: str, *arguments: str) -> WarmProcess:
        spec.ledger_dir.mkdir(exist_ok=True)
        write_settings(spec.trace_settings, spec.settings_path)
        temp_dir = spec.ledger_dir / "temporary"
        temp_dir.mkdir()
        env = self.env | {
            "FASTTRACK_TRACE": str(spec.settings_path),
            "TMPDIR": str(temp_dir),
            "HOME": "/its own",
        }
        return self.parent.fork(temp_dir, spec.log_path, (*MODULE, name, *arguments), env)

    def run(self, spec: ArmSpec, name: str, *arguments: str) -> list[dict[str, Any]]:
        assert self.begin(spec, name, *arguments).wait(60) == 0, spec.log_path.read_text()
        return [json.loads(line) for line in spec.log_path.read_text().splitlines()]


def write_programs(folder: Path) -> dict[str, str]:
    """Writes the programs, and gives the environment that finds them."""
    for name, text in PROGRAMS.items():
        (folder / f"{name}.py").write_text(textwrap.dedent(text))
    return {"PATH": os.environ["PATH"], "PYTHONPATH": f"{BOOTSTRAP}:{folder}", "HOME": "/nobody's"}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("programs")
    env = write_programs(folder)
    parent = WarmParent(env | {"OF_THE_PARENT": "1"}, ["heavy"])
    assert parent.is_ready
    yield Place(parent, folder, env)
    parent.close()


def test_what_the_parent_imported_is_there_and_was_not_run_again(place: Place, spec: ArmSpec) -> None:
    told = place.run(spec, "tells")[0]
    assert told["heavy"] not in (told["pid"], os.getpid())


def test_a_program_has_the_environment_that_it_was_given_and_what_the_imports_set(
    place: Place, spec: ArmSpec
) -> None:
    told = place.run(spec, "tells")[0]["env"]
    expected = {"FASTTRACK_TRACE": str(spec.settings_path), "HOME": "/its own", "SET_AT_IMPORT": "yes"}
    assert expected.items() <= told.items() and set(told) <= {*place.env, *expected, "TMPDIR", "LC_CTYPE"}


def test_a_program_is_the_main_module_with_its_arguments_in_its_own_folder(
    place: Place, spec: ArmSpec
) -> None:
    told = place.run(spec, "tells", "--one", "2")[0]
    folder = str(spec.ledger_dir / "temporary")
    assert [told[key] for key in ("name", "argv", "cwd", "temp")] == [
        "__main__",
        ["--one", "2"],
        folder,
        folder,
    ]


def test_a_program_is_traced_with_its_own_settings(place: Place, spec: ArmSpec) -> None:
    assert place.run(spec, "tells")[0]["nonce"] == spec.nonce


def test_a_parent_is_not_traced_by_the_engine_that_it_was_begun_for(tmp_path: Path, spec: ArmSpec) -> None:
    first = replace(spec, nonce="of the first", ledger_dir=tmp_path)
    write_settings(first.trace_settings, first.settings_path)
    env = write_programs(tmp_path)
    parent = WarmParent(env | {"FASTTRACK_TRACE": str(first.settings_path)}, ["heavy"])
    try:
        told = Place(parent, tmp_path, env).run(spec, "tells")[0]
    finally:
        parent.close()
    assert told["nonce"] == spec.nonce


def test_a_program_holds_no_file_of_its_parents(place: Place, spec: ArmSpec) -> None:
    # Standard input, output and error; the folder that is listed; and the line to the child that waits.
    assert place.run(spec, "tells")[0]["fds"] == 5


def test_the_first_child_that_is_spawned_is_warm_and_each_is_as_if_it_had_been_started_anew(
    place: Place, spec: ArmSpec
) -> None:
    program, first, second = place.run(spec, "spawns")
    assert first["heavy"] == program["heavy"] != second["heavy"]
    for child in (first, second):
        assert (child["parent"], child["private"], child["nonce"]) == (program["pid"], False, spec.nonce)
        assert child["name"] == "tells" and child["env"]["HOME"] == "/its own"


def test_a_programs_exit_status_is_told(place: Place, spec: ArmSpec) -> None:
    assert place.begin(spec, "leaves").wait(30) == 7


def test_a_program_that_fails_ends_with_its_exception_in_the_log(place: Place, spec: ArmSpec) -> None:
    status = place.begin(spec, "fails").wait(30)
    assert (status, spec.log_path.read_text().splitlines()[-1]) == (1, "ValueError: of the program")


def test_the_end_of_the_harness_ends_every_process_and_removes_the_folder(
    place: Place, spec: ArmSpec, all_gone: Callable[..., bool]
) -> None:
    process = place.begin(spec, "lingers")
    while not (words := spec.log_path.read_text().split()):
        assert process.poll() is None
    process.stdin.close()
    assert process.wait(30) == 1 and all_gone([int(w) for w in words])
    assert not (spec.ledger_dir / "temporary").exists()


def test_a_supervisor_that_is_killed_is_seen_to_be_gone(place: Place, spec: ArmSpec) -> None:
    process = place.begin(spec, "lingers")
    process.kill()
    assert process.wait(30) == -9


def test_a_subject_that_the_parent_has_imported_is_started_anew(tmp_path: Path, spec: ArmSpec) -> None:
    env = write_programs(tmp_path)
    (tmp_path / "toy_subject.py").write_text("")
    parent = WarmParent(env, ["heavy", "toy_subject"])
    try:
        told = Place(parent, tmp_path, env).run(spec, "tells")[0]
    finally:
        parent.close()
    assert told["heavy"] == told["pid"] and "toy_subject" not in told["modules"]


def test_a_command_that_runs_no_module_begins_no_parent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(warm_start, "WarmParent", None)
    assert fork_supervisor(tmp_path, tmp_path / "log", (sys.executable, "-c", "pass"), {}) is None


@pytest.mark.parametrize("module", ["threaded", "no_such_module"])
def test_a_parent_with_a_second_thread_or_without_its_imports_forks_nothing(
    module: str, tmp_path: Path
) -> None:
    assert not WarmParent(write_programs(tmp_path), [module]).is_ready


def test_an_engine_is_not_started_another_way_when_the_parent_is_gone(tmp_path: Path, spec: ArmSpec) -> None:
    env = write_programs(tmp_path)
    parent = WarmParent(env, ["heavy"])
    parent.close()
    with pytest.raises(EngineError, match="is gone"):
        Place(parent, tmp_path, env).begin(spec, "leaves")


def test_a_parent_leaves_with_the_harness(tmp_path: Path, all_gone: Callable[..., bool]) -> None:
    env = write_programs(tmp_path)
    script = (
        "import sys; from harness.engine.warm_start import WarmParent\n"
        f"parent = WarmParent({env!r}, ['heavy']); assert parent.is_ready\n"
        "print(parent._process.pid, flush=True); import os; os.kill(os.getpid(), 9)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert all_gone([int(done.stdout)])
