"""Compiles the CuTe DSL fixture kernels and writes their PTX and machine code beside their source.

Run `python -m tests.tools.cute_fixtures PYTHON`, where PYTHON is an interpreter that has CuTe DSL and nvdisasm.
"""

from __future__ import annotations

import sys
from pathlib import Path

from harness.audit.toolchain.compiler import Compiler, CompileRequest
from harness.audit.toolchain.disassembler import collect_sass, find_nvdisasm
from tests.tools.sass_fixtures import FIXTURES, shorten

FOLDER = FIXTURES / "cute"
ARCHES = ("sm_90a", "sm_100a", "sm_103a")


def main() -> None:
    """Write every kernel for every architecture; raises RuntimeError when one does not compile."""
    python = Path(sys.argv[1])
    requests = [
        CompileRequest(entry="cute_kernels:every", arch=arch, import_roots=(FOLDER,)) for arch in ARCHES
    ]
    for outcome in Compiler(python=python, jobs=1).run(requests):
        if outcome.failure is not None:
            raise RuntimeError(f"{outcome.request.arch}: {outcome.stderr_tail}")
        folder = FOLDER / outcome.request.arch
        folder.mkdir(exist_ok=True)
        for module in outcome.modules:
            sass = collect_sass(module.cubin or b"", nvdisasm=find_nvdisasm(python))
            (folder / f"{module.variant}.sass").write_text(shorten(sass))
            (folder / f"{module.variant}.ptx").write_text((module.ptx or "").rstrip("\x00"))


if __name__ == "__main__":
    main()
