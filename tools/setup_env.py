"""Creates `.venv` with everything `fasttrack` needs on a CPU. Standard library only: `make setup` runs it.

The lock is one resolution, installed with `--no-deps`, so that torchvision, torchaudio and torchcodec (which fail
to import beside the CPU build of torch) never arrive. torch comes from a local wheel folder where pip knows one,
from PyTorch's CPU index otherwise.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
LOCK = ROOT / "requirements" / "cpu.lock"
STAMP = VENV / ".fasttrack-setup"
PYTORCH_CPU_INDEX = "https://download.pytorch.org/whl/cpu"


def main() -> int:
    """Does nothing when the environment already matches the lock; returns the process exit code."""
    if not (3, 11) <= sys.version_info[:2] <= (3, 13):
        return fail(f"Python 3.11 to 3.13 is needed, this is {sys.version.split()[0]}.")
    wanted = hashlib.sha256(LOCK.read_bytes() + (ROOT / "pyproject.toml").read_bytes()).hexdigest()
    if STAMP.is_file() and STAMP.read_text() == wanted:
        return 0
    python = VENV / "bin" / "python"
    if not python.exists():
        print("setup: creating .venv", flush=True)
        try:
            venv.create(VENV, with_pip=True)
        except subprocess.CalledProcessError:
            return fail(
                "python3 cannot create environments with pip; on Debian: apt-get install python3-venv"
            )
    pip = [str(python), "-m", "pip", "--disable-pip-version-check"]
    print("setup: installing the locked packages (about 3 GB; minutes on a first run)", flush=True)
    install = [*pip, "install", "-qq", "--no-deps"]
    if run([*install, *torch_source(pip), *torch_requirement()]) != 0:
        return fail("torch's CPU build could not be installed; see pip's message above.")
    if run([*install, "--progress-bar", "off", "-r", str(LOCK)]) != 0:
        return fail("the locked packages could not be installed; see pip's message above.")
    if run([*install, "--no-build-isolation", "--editable", str(ROOT)]) != 0:
        return fail("fasttrack itself could not be installed; see pip's message above.")
    STAMP.write_text(wanted)
    print("setup: done", flush=True)
    return 0


def torch_requirement() -> list[str]:
    """The lock's line for torch."""
    return [line for line in LOCK.read_text().splitlines() if line.startswith("torch==")]


def torch_source(pip: list[str]) -> list[str]:
    """Extra pip arguments that reach torch's CPU build: none where a configured folder or index has it."""
    probe = [*pip, "install", "--quiet", "--no-deps", "--dry-run", "--ignore-installed", *torch_requirement()]
    found = subprocess.run(probe, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
    return [] if found.returncode == 0 else ["--extra-index-url", PYTORCH_CPU_INDEX]


def run(command: list[str]) -> int:
    """The exit code of `command`, its output shown."""
    return subprocess.run(command, check=False).returncode


def fail(message: str) -> int:
    """Says on stderr what is wrong."""
    print(f"setup: {message}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
