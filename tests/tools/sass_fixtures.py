"""Assembles the PTX fixtures and disassembles them again, as the SASS fixtures that the tests read.

Run `python -m tests.tools.sass_fixtures` where `ptxas` is on the PATH and the extra `audit` is installed.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from pathlib import Path

from harness.audit.toolchain.disassembler import collect_sass

FIXTURES = Path(__file__).parents[1] / "harness" / "audit" / "fixtures"
ARCHES = ("sm_90a", "sm_103a")
_KEPT = (".text.", ".nv.info", ".nv.shared.")


def assemble(ptx: str, arch: str) -> bytes:
    """The cubin of a PTX text, retargeted; raises CalledProcessError when ptxas refuses it."""
    text = re.sub(r"\.target\s+sm_\w+", f".target {arch}", ptx)
    text = re.sub(r"\.version 8\.[0-7]", ".version 8.8", text)
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "a.ptx", Path(folder) / "a.cubin"
        source.write_text(text)
        subprocess.run(["ptxas", "-arch", arch, "-o", str(target), str(source)], check=True)
        return target.read_bytes()


def shorten(sass: str) -> str:
    """The text without the sections that the reader does not look at."""
    kept, keeps = [], True
    for line in sass.splitlines():
        section = re.match(r'\s*\.section\s+([^\s,"]+)', line)
        if section is not None:
            keeps = section.group(1).startswith(_KEPT)
        if keeps and line.strip() and not line.startswith("//-----"):
            kept.append(line.rstrip())
    return "\n".join(kept) + "\n"


def main() -> None:
    """Write every fixture for every architecture."""
    for arch in ARCHES:
        folder = FIXTURES / "sass" / arch
        folder.mkdir(parents=True, exist_ok=True)
        for path in sorted((FIXTURES / "ptx").glob("*.ptx")):
            sass = shorten(collect_sass(assemble(path.read_text(), arch)))
            (folder / f"{path.stem}.sass").write_text(sass)


if __name__ == "__main__":
    main()
