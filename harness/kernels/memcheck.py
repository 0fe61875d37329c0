"""compute-sanitizer's memcheck around the tests' processes, and the proof that it sees anything here."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from harness.kernels.subject import MachineGapError
from harness.model.kernel_tests import (
    MemoryCheck,
)

ENVIRONMENT = {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
"""Each of PyTorch's tensors in an allocation of its own, so that an access beyond one meets no neighbour."""
_TOOL = "compute-sanitizer"
_ADVICE = "It comes with the CUDA toolkit, and wants a GPU and the rights of a debugger."
_SUMMARY = re.compile(r"ERROR SUMMARY: (\d+) error")
_MOST_FINDINGS = 20
_PLANTED_SECONDS = 120


def wrapped(command: Sequence[str], log: Path) -> list[str]:
    """The command under memcheck, which writes to `log`; its exit status stays the command's.

    What an API call answers is the program's own business (it may ask for what is not there), and no memory access.
    """
    options = ["--tool", "memcheck", "--report-api-errors", "no", "--log-file", str(log)]
    return [_TOOL, *options, *command]


def prove_memcheck(python: Path, environment: Mapping[str, str], folder: Path) -> int:
    """The errors that memcheck finds in a planted write to memory that nothing has allocated; at least one.

    Raises:
        MachineGapError: it is not there, or sees none.
    """
    path = environment.get("PATH")
    if shutil.which(_TOOL, path=path) is None:
        raise MachineGapError("no-memcheck", f"--memcheck needs {_TOOL}, which is not on the PATH.", _ADVICE)
    log = folder / "planted.log"
    command = wrapped([str(python), "-m", "harness.kernels.planted_fault"], log)
    try:
        result = subprocess.run(
            command,
            env=dict(environment),
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=_PLANTED_SECONDS,
        )
        said = result.stderr.strip().splitlines()[-1:]
    except subprocess.TimeoutExpired:
        said = [f"it did not end within {_PLANTED_SECONDS} s"]
    errors = num_errors(read_log(log))
    if not errors:
        message = (
            f"{_TOOL} does not see a planted write outside all memory here: {' '.join(said) or 'no word'}"
        )
        raise MachineGapError("no-memcheck", message, _ADVICE)
    return errors


def read_log(log: Path) -> str:
    """What memcheck wrote; nothing where it wrote no file."""
    return log.read_text(encoding="utf-8", errors="replace") if log.is_file() else ""


def num_errors(text: str) -> int | None:
    """Errors by a log's summaries; None where it has none, since its process was not followed to the end."""
    found = _SUMMARY.findall(text)
    return sum(map(int, found)) if found else None


def memcheck_version(environment: Mapping[str, str]) -> str:
    """What it says of itself."""
    result = subprocess.run(
        [_TOOL, "--version"], env=dict(environment), capture_output=True, text=True, check=False, timeout=60
    )
    found = re.search(r"[Vv]ersion (\S+)", result.stdout)
    return found.group(1) if found else ""


def parse_memcheck(logs: Sequence[str], num_planted_errors: int, version: str) -> MemoryCheck:
    """The result of all processes' logs."""
    counts = [num_errors(text) for text in logs]
    reported = [line for text in logs for line in text.splitlines() if line.startswith("========= ")]
    findings = [
        line[10:].strip() for line in reported if "SUMMARY" not in line and line[10:11] not in (" ", "")
    ]
    return MemoryCheck(
        version=version,
        num_processes=len(logs),
        num_ended=sum(count is not None for count in counts),
        num_errors=sum(count or 0 for count in counts),
        num_planted_errors=num_planted_errors,
        findings=tuple(line[:300] for line in findings if line != "COMPUTE-SANITIZER")[:_MOST_FINDINGS],
    )
