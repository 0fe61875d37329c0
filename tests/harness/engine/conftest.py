"""A toy subject, specs of arms that serve it, and a fake server."""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from harness.engine.arm_spec import CPU_ENV, ArmSpec
from harness.engine.server import ArmServer
from harness.model.manifest import DecisionPoint, DispatchSection
from harness.model.words import Arm

FAKE_SERVER = Path(__file__).with_name("fake_server.py")
TOY = {
    "__init__.py": "",
    "planner.py": """
        from dataclasses import dataclass

        @dataclass
        class Plan:
            path: str
            reason: str

        class Planner:
            def plan(self, num_reqs):
                return Plan("fast", "") if num_reqs <= 4 else Plan("slow", f"{num_reqs} requests")
    """,
    "paths.py": """
        def fast(logits):
            return logits

        def slow(logits):
            return logits
    """,
    "unused.py": """
        def never():
            return 1
    """,
    "processor.py": """
        from toy_subject.paths import fast, slow
        from toy_subject.planner import Planner
        from vllm.v1.sample.logits_processor import LogitsProcessor

        class Toy(LogitsProcessor):
            def __init__(self, vllm_config, device, is_pin_memory):
                self.planner = Planner()

            def is_argmax_invariant(self):
                return False

            def update_state(self, batch_update):
                return None

            def apply(self, logits):
                plan = self.planner.plan(logits.shape[0])
                return fast(logits) if plan.path == "fast" else slow(logits)
    """,
}
DISPATCH = DispatchSection(
    decisions=(
        DecisionPoint(
            target="toy_subject.planner:Planner.plan", value="path", specialized="fast", reason="reason"
        ),
    ),
    specialized_code=("toy_subject.paths:fast",),
    baseline_code=("toy_subject.paths:slow",),
    never_imported_when_off=("toy_subject.unused",),
)


def _write_toy(folder: Path) -> Path:
    package = folder / "toy_subject"
    package.mkdir(parents=True)
    for name, text in TOY.items():
        (package / name).write_text(textwrap.dedent(text).lstrip("\n"))
    return folder


@pytest.fixture(scope="session")
def write_toy() -> Callable[[Path], Path]:
    """Writes the toy subject as package `toy_subject` below a folder, and gives the folder."""
    return _write_toy


@pytest.fixture
def toy_head(tmp_path: Path) -> Path:
    """A folder that holds the toy subject, as a checkout of the head commit would."""
    return _write_toy(tmp_path / "head")


@pytest.fixture(scope="session")
def toy_dispatch() -> DispatchSection:
    """The `[dispatch]` section of the toy subject."""
    return DISPATCH


@pytest.fixture
def temp_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of the test's own in place of /tmp, for this process and those that it starts."""
    root = tmp_path / "tmp"
    root.mkdir()
    monkeypatch.setenv("TMPDIR", str(root))
    monkeypatch.setattr("tempfile.tempdir", None)
    return root


@pytest.fixture
def spec(tmp_path: Path, toy_head: Path) -> ArmSpec:
    """A candidate arm of the toy subject."""
    return ArmSpec(
        arm=Arm.CANDIDATE,
        model_dir=tmp_path / "model",
        import_path=toy_head,
        import_roots=("toy_subject",),
        dispatch=DISPATCH,
        ledger_dir=tmp_path / "ledger",
        nonce="n0",
        max_model_len=512,
    )


@pytest.fixture(scope="session")
def write_driven() -> Callable[[Path], ArmSpec]:
    """Writes a tiny Llama and the toy subject below a folder; gives the arm that a driven engine serves from there."""

    def write(folder: Path) -> ArmSpec:
        llama = Path(__file__).with_name("tiny_llama.py")
        subprocess.run([sys.executable, str(llama), folder / "model"], check=True)
        return ArmSpec(
            arm=Arm.CANDIDATE,
            model_dir=folder / "model",
            import_path=_write_toy(folder / "head"),
            import_roots=("toy_subject",),
            dispatch=DISPATCH,
            ledger_dir=folder / "ledger",
            nonce="nonce-of-this-test",
            max_model_len=512,
            env=CPU_ENV,
        )

    return write


@pytest.fixture
def fake(spec: ArmSpec) -> Iterator[Callable[..., ArmServer]]:
    """Makes servers that run the fake script in a given mode; all are stopped at the end."""
    servers: list[ArmServer] = []

    def make(mode: str = "serves", **options: float) -> ArmServer:
        def command(port: int) -> tuple[str, ...]:
            return (sys.executable, "-S", str(FAKE_SERVER), mode, str(port), spec.served_model_name)

        servers.append(ArmServer(spec, command=command, **options))
        return servers[-1]

    yield make
    for server in servers:
        server.kill()


@pytest.fixture
def processes_of() -> Callable[[ArmSpec], list[int]]:
    """Tells the process ids that a fake server wrote to its log: itself, a worker, an orphan."""

    def read(spec: ArmSpec) -> list[int]:
        found = re.findall(r"^pids (.*)$", spec.log_path.read_text(), re.MULTILINE)
        return [int(pid) for pid in found[-1].split()]

    return read


@pytest.fixture(scope="session")
def all_gone() -> Callable[..., bool]:
    """Whether processes end within some seconds."""

    def wait(pids: list[int], seconds: float = 10) -> bool:
        deadline = time.monotonic() + seconds
        while any(Path("/proc", str(pid)).exists() for pid in pids):
            if time.monotonic() > deadline:
                return False
            time.sleep(0.02)
        return True

    return wait
