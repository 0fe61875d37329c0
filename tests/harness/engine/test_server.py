"""An arm's server starts, fails loudly, and leaves nothing behind."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.engine.arm_spec import NO_MULTICAST, ArmSpec
from harness.engine.server import ArmServer, start_together
from harness.model.errors import EngineError

Fake = Callable[..., ArmServer]


def test_an_engine_that_dies_at_start_raises_with_its_last_lines(fake: Fake) -> None:
    started = time.monotonic()
    with pytest.raises(EngineError) as caught:
        fake("dies-at-start").start()
    assert (caught.value.slug, time.monotonic() - started < 10) == ("engine-died-at-start", True)
    assert caught.value.log_tail.endswith("ValueError: no such model")
    assert caught.value.message.endswith("First error in its log: ValueError: no such model")


def test_a_command_that_does_not_exist_raises_and_says_so(spec: ArmSpec) -> None:
    server = ArmServer(spec, command=lambda _port: ["/nonexistent/python"])
    with pytest.raises(EngineError, match="could not be run") as caught:
        server.start()
    assert "/nonexistent/python" in caught.value.log_tail


def test_an_engine_that_is_not_ready_in_time_is_killed(fake: Fake) -> None:
    server = fake("never-ready", ready_timeout_s=0.5)
    with pytest.raises(EngineError) as caught:
        server.start()
    assert (caught.value.slug, server.is_running) == ("engine-not-ready", False)


def test_a_log_tail_holds_neither_secrets_nor_paths_of_this_machine(
    fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ENGINE_TOKEN", "correct horse battery")
    with pytest.raises(EngineError) as caught:
        fake("dies-at-start").start()
    assert caught.value.log_tail.splitlines()[0] == "secret absent in {tmp}, key hf_***"


def test_only_listed_variables_reach_the_change(spec: ArmSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_TOKEN", "ghs_x")
    monkeypatch.setenv("HTTPS_PROXY", "http://user:password@proxy")
    environment = spec.environment(Path("/tmp/x"))
    assert not {"GITHUB_TOKEN", "HTTPS_PROXY"} & environment.keys() and environment["HOME"] == "/tmp/x"


@pytest.mark.parametrize("name", NO_MULTICAST)
def test_a_host_that_bears_no_multicast_is_known_to_every_engine(
    spec: ArmSpec, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv(name, "as the host says")
    assert spec.environment(Path("/tmp/x"))[name] == "as the host says"


def test_stopping_ends_every_process_and_removes_the_temporary_folder(
    fake: Fake,
    spec: ArmSpec,
    temp_root: Path,
    processes_of: Callable[..., list[int]],
    all_gone: Callable[..., bool],
) -> None:
    with fake() as server:
        pids = processes_of(spec)
        assert len(list(temp_root.iterdir())) == 1 and not all_gone(pids, 0)
    assert all_gone(pids) and not list(temp_root.iterdir())
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", server.port), timeout=1)


def test_a_server_that_ignores_sigterm_is_killed_after_the_grace_period(
    fake: Fake, spec: ArmSpec, processes_of: Callable[..., list[int]], all_gone: Callable[..., bool]
) -> None:
    server = fake("ignores-sigterm", stop_timeout_s=0.3)
    server.start()
    server.stop()
    assert all_gone(processes_of(spec))


def test_killing_the_supervisor_itself_is_noticed_and_leaves_no_server(
    fake: Fake, spec: ArmSpec, processes_of: Callable[..., list[int]], all_gone: Callable[..., bool]
) -> None:
    server = fake()
    server.start()
    server_pid = processes_of(spec)[0]
    supervisor_pid = int(Path(f"/proc/{server_pid}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(supervisor_pid, signal.SIGKILL)
    assert all_gone([server_pid])
    with pytest.raises(EngineError, match="died"):
        server.check()
    for pid in processes_of(spec)[1:]:
        os.kill(pid, signal.SIGKILL)


def run_harness(spec: ArmSpec, tmp_path: Path) -> subprocess.Popen[bytes]:
    """A process that starts the fake server as the harness does, and then waits."""
    fake_server = Path(__file__).with_name("fake_server.py")
    script = tmp_path / "harness_process.py"
    script.write_text(
        textwrap.dedent(
            f"""
            import sys, time
            from pathlib import Path
            from harness.engine.arm_spec import ArmSpec
            from harness.engine.server import ArmServer, start_together
            from harness.model.manifest import DispatchSection
            from harness.model.words import Arm
            dispatch = DispatchSection.model_validate_json({spec.dispatch.model_dump_json()!r})
            spec = ArmSpec(arm=Arm.CANDIDATE, model_dir=Path("m"), import_path=Path({str(spec.import_path)!r}),
                           import_roots=("toy_subject",), dispatch=dispatch, nonce="n0", max_model_len=512,
                           ledger_dir=Path({str(spec.ledger_dir)!r}))
            command = lambda port: (sys.executable, "-S", {str(fake_server)!r}, "serves", str(port), "candidate-n0")
            with ArmServer(spec, command=command) as server:
                print(server.port, flush=True)
                time.sleep(1000)
            """
        )
    )
    return subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, stderr=subprocess.PIPE)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL], ids=["ctrl-c", "kill -9"])
def test_the_end_of_the_harness_ends_every_process_of_the_server(
    number: int,
    spec: ArmSpec,
    tmp_path: Path,
    temp_root: Path,
    processes_of: Callable[..., list[int]],
    all_gone: Callable[..., bool],
) -> None:
    harness = run_harness(spec, tmp_path)
    assert harness.stdout is not None
    port = int(harness.stdout.readline())
    pids = processes_of(spec)
    harness.send_signal(number)
    harness.communicate(timeout=20)
    assert all_gone(pids)
    deadline = time.monotonic() + 5
    while list(temp_root.iterdir()) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not list(temp_root.iterdir())
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=1)


def test_a_paused_server_uses_no_time_and_goes_on_when_resumed(
    fake: Fake, spec: ArmSpec, processes_of: Callable[..., list[int]]
) -> None:
    def states() -> set[str]:
        stats = [Path(f"/proc/{pid}/stat").read_text() for pid in processes_of(spec)]
        return {s.rpartition(")")[2].split()[0] for s in stats}

    with fake() as server:
        server.pause()
        paused = states()
        server.resume()
        server.check()
    assert paused == {"T"}


def test_a_paused_server_can_be_stopped_in_good_order(
    fake: Fake, spec: ArmSpec, processes_of: Callable[..., list[int]], all_gone: Callable[..., bool]
) -> None:
    server = fake(stop_timeout_s=60)
    server.start()
    server.pause()
    started = time.monotonic()
    server.stop()
    assert all_gone(processes_of(spec)) and time.monotonic() - started < 30


def test_a_stopped_server_cannot_be_paused(fake: Fake) -> None:
    server = fake()
    server.start()
    server.stop()
    with pytest.raises(EngineError):
        server.pause()


def test_another_server_on_the_port_is_not_taken_for_the_arm(spec: ArmSpec) -> None:
    fake_server = Path(__file__).with_name("fake_server.py")
    server = ArmServer(
        spec,
        command=lambda port: (sys.executable, "-S", str(fake_server), "serves", str(port), "baseline-n0"),
    )
    with pytest.raises(EngineError, match="Another server") as caught:
        server.start()
    assert caught.value.slug == "engine-wrong-server"


def test_a_server_that_is_alive_but_does_not_answer_is_unreachable(fake: Fake) -> None:
    with fake() as server:
        server.port = 1
        with pytest.raises(EngineError) as caught:
            server.check()
    assert caught.value.slug == "engine-unreachable"


def test_servers_started_together_tell_each_why_it_did_not_start(fake: Fake) -> None:
    good, bad = fake("serves"), fake("dies-at-start")
    first, second = start_together([good, bad])
    assert (first, good.is_running, bad.is_running) == (None, True, False)
    assert second is not None and second.slug == "engine-died-at-start"


def test_a_server_killed_while_it_starts_does_not_go_on_starting(fake: Fake) -> None:
    server = fake("never-ready", ready_timeout_s=60)
    threading.Timer(0.5, server.kill).start()
    started = time.monotonic()
    (error,) = start_together([server])
    assert error is not None and time.monotonic() - started < 20 and not server.is_running


def test_a_remote_call_reaches_the_workers(fake: Fake) -> None:
    with fake() as server:
        answers = server.rpc("fasttrack_suite", "greedy")
    assert answers == ({"method": "fasttrack_suite", "args": ["greedy"]},)


def test_the_public_command_names_no_path_of_this_machine(spec: ArmSpec) -> None:
    command = json.dumps(spec.public_command)
    assert "OMP_NUM_THREADS=1" in spec.public_command and spec.nonce not in command
    assert str(spec.model_dir) not in command and sys.executable not in command
