"""A cubin as SASS text, through the `nvdisasm` of the `nvidia-cuda-nvdisasm` wheel or of the PATH."""

from __future__ import annotations

import importlib.metadata
import shutil
import subprocess
import tempfile
from pathlib import Path

from harness.model.errors import FasttrackError

DISTRIBUTION = "nvidia-cuda-nvdisasm"
ADVICE = "Install the tools of the audit: pip install 'fasttrack[audit]'."


class ToolMissingError(FasttrackError):
    """A tool of the extra `audit` is not installed; what needs it is `not_run`, never `pass`."""


class DisassemblyError(FasttrackError):
    """The disassembler did not read a cubin."""


def find_nvdisasm() -> Path:
    """The disassembler's path: the installed wheel's before the PATH's; raises ToolMissingError."""
    try:
        files = importlib.metadata.files(DISTRIBUTION) or []
    except importlib.metadata.PackageNotFoundError:
        files = []
    for file in files:
        if file.name in ("nvdisasm", "nvdisasm.exe"):
            path = Path(str(file.locate()))
            if path.is_file():
                return path
    found = shutil.which("nvdisasm")
    if found is None:
        raise ToolMissingError("nvdisasm-missing", "No nvdisasm: SASS cannot be read from a cubin.", ADVICE)
    return Path(found)


def collect_sass(cubin: bytes, *, nvdisasm: Path | None = None, timeout_s: float = 60.0) -> str:
    """The SASS text of a cubin, with its `.nv.info` sections; about 0.1 s for a kernel of 1,000 instructions.

    Raises ToolMissingError without a disassembler and DisassemblyError when it fails.
    """
    tool = nvdisasm or find_nvdisasm()
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        try:
            result = subprocess.run(
                [str(tool), file.name], capture_output=True, timeout=timeout_s, check=False, text=True
            )
        except subprocess.TimeoutExpired as error:
            raise DisassemblyError("nvdisasm-timeout", f"nvdisasm took more than {timeout_s:g} s.") from error
        except OSError as error:
            raise DisassemblyError("nvdisasm-start", f"nvdisasm did not start: {error}", ADVICE) from error
    if result.returncode != 0:
        lines = result.stderr.strip().splitlines() or ["no message"]
        raise DisassemblyError("nvdisasm", f"nvdisasm exited {result.returncode}: {lines[-1]}")
    return result.stdout
