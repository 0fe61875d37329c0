"""Mutation testing of parts of the judge with mutmut, in a private copy. Standard library only.

    python tools/mutate.py harness/stats/margins.py=tests/harness/stats/test_margins.py ...

Each argument names a source file and, behind `=`, the tests that are to notice its mutants. mutmut is installed into
`.mutation/venv`, which sees the packages of `.venv`; nothing of the checkout is changed. Mutants that no test noticed
are printed as differences. docs/mutation.md says what was found.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import venv
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PLACE = ROOT / ".mutation"
MUTMUT = "mutmut>=3.2,<4"
_CARRIED = (
    "harness",
    "bundles",
    "reports",
    "eval_suites",
    "perf_sweeps",
    "specialized_path",
    "docs",
    "tests",
)


def main(arguments: Sequence[str]) -> int:
    """Returns mutmut's exit code; 2 where nothing was named."""
    pairs = [argument.split("=", 1) for argument in arguments]
    if not pairs or any(len(pair) != 2 for pair in pairs):
        print(__doc__, file=sys.stderr)
        return 2
    mutmut = install()
    tree = copy_tree([source for source, _ in pairs], [test for _, test in pairs])
    code = subprocess.run([mutmut, "run"], cwd=tree).returncode
    results = subprocess.run([mutmut, "results"], cwd=tree, capture_output=True, text=True)
    for line in results.stdout.splitlines():
        name, _, status = line.strip().partition(": ")
        if status:
            print(f"\n{name}: {status}", flush=True)
            subprocess.run([mutmut, "show", name], cwd=tree)
    return code


def install() -> str:
    """mutmut's command, in an environment of its own that sees the packages of `.venv` behind its own."""
    place = PLACE / "venv"
    command = place / "bin" / "mutmut"
    if not command.exists():
        venv.create(place, with_pip=True, clear=True)
        subprocess.run([str(place / "bin" / "pip"), "install", "--quiet", MUTMUT], check=True)
        packages = f"lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages"
        (place / packages / "fasttrack.pth").write_text(f"{ROOT / '.venv' / packages}\n")
    return str(command)


def copy_tree(sources: Sequence[str], tests: Sequence[str]) -> Path:
    """A fresh copy of what the tests need, set up for mutmut."""
    tree = PLACE / "tree"
    shutil.rmtree(tree, ignore_errors=True)
    for name in _CARRIED:
        shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__"))
    # The options of the whole suite, without its plugins' settings: mutmut runs the tests in its own process.
    (tree / "pytest.ini").write_text(
        "[pytest]\naddopts = -p no:cacheprovider -x -q --import-mode=importlib\n"
    )
    lists = {
        "source_paths": ["."],
        "only_mutate": sources,
        "pytest_add_cli_args_test_selection": tests,
        "also_copy": ["docs", "pytest.ini"],
    }
    lines = [f"{key}=\n" + "\n".join(f"    {value}" for value in values) for key, values in lists.items()]
    (tree / "setup.cfg").write_text("[mutmut]\n" + "\n".join(lines) + "\n")
    return tree


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
