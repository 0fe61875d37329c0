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


def find_nvdisasm(python: Path | None = None) -> Path:
    """The disassembler's path: the installed wheel's, the PATH's, then that of the interpreter `python`.

    Raises ToolMissingError when none has one.
    """
    found = _in_distribution() or shutil.which("nvdisasm") or (python and _in_interpreter(python))
    if not found:
        raise ToolMissingError("nvdisasm-missing", "No nvdisasm: machine code was not looked at.", ADVICE)
    return Path(found)


def _in_distribution() -> str | None:
    try:
        files = importlib.metadata.files(DISTRIBUTION) or []
    except importlib.metadata.PackageNotFoundError:
        return None
    places = (Path(str(file.locate())) for file in files if file.name in ("nvdisasm", "nvdisasm.exe"))
    return next((str(place) for place in places if place.is_file()), None)


def _in_interpreter(python: Path) -> str | None:
    """What the same question gives in another interpreter, which need not have the harness."""
    code = (
        "import importlib.metadata as m\n"
        f"for f in m.files({DISTRIBUTION!r}) or []:\n"
        "    if f.name == 'nvdisasm': print(f.locate())"
    )
    try:
        result = subprocess.run(
            [str(python), "-c", code], capture_output=True, text=True, check=False, timeout=60
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    path = Path(result.stdout.strip() or ".")
    return str(path) if path.is_file() else None


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
        said = lines[-1].replace(file.name, "the cubin")
        raise DisassemblyError("nvdisasm", f"nvdisasm exited {result.returncode}: {said}")
    return result.stdout
