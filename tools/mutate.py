"""Mutation testing of parts of the judge with mutmut, in a private copy. Standard library only.

    python tools/mutate.py harness/stats/margins.py=tests/harness/stats/test_margins.py ...
    python tools/mutate.py --sample 200 --seed 1 'harness/stats/*=tests/harness/stats' ...

Each argument names source files by a glob and, behind `=`, the tests that are to notice their mutants. With `--sample`
so many mutants are drawn of all, each as likely as another; the runs of the tests that it needs are kept for the next
draw, unless `--fresh` asks for a new copy. mutmut is installed into `.mutation/venv`, which sees the packages of
`.venv`; nothing of the checkout is changed. Mutants that no test noticed are printed as differences. docs/mutation.md
says what was found.
"""

from __future__ import annotations

import argparse
import random
import shutil
import subprocess
import sys
import venv
from collections import Counter
from collections.abc import Iterator, Sequence
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
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("pairs", nargs="+", metavar="SOURCES=TESTS")
    parser.add_argument("--sample", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--fresh", action="store_true")
    given = parser.parse_args(arguments)
    pairs = [pair.partition("=") for pair in given.pairs]
    if not all(tests for _, _, tests in pairs):
        parser.error("each pair is SOURCES=TESTS")
    mutmut, tree = install(), PLACE / "tree"
    if given.fresh or given.sample is None or not tree.is_dir():
        copy_tree(tree, [source for source, _, _ in pairs], [tests for _, _, tests in pairs])
    names: list[str] = []
    if given.sample is not None:
        # Makes the mutants and runs the tests once; that nothing has this name ends it before the first mutant.
        subprocess.run([mutmut, "run", "no-such-mutant"], cwd=tree, capture_output=True)
        known = [name for name, _ in results(mutmut, tree)]
        names = random.Random(given.seed).sample(sorted(known), min(given.sample, len(known)))
        print(f"{len(names)} of {len(known)} mutants", flush=True)
    code = subprocess.run([mutmut, "run", *names], cwd=tree).returncode
    tried = [(name, status) for name, status in results(mutmut, tree) if not names or name in set(names)]
    for name, status in tried:
        if status != "killed":
            print(f"\n{name}: {status}", flush=True)
            subprocess.run([mutmut, "show", name], cwd=tree)
    print(dict(Counter(status for _, status in tried)))
    return code


def results(mutmut: str, tree: Path) -> Iterator[tuple[str, str]]:
    """Name and status of every mutant."""
    command = [mutmut, "results", "--all", "true"]
    shown = subprocess.run(command, cwd=tree, capture_output=True, text=True, check=True).stdout
    return (
        (name, status) for line in shown.splitlines() for name, _, status in [line.strip().partition(": ")]
    )


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


def copy_tree(tree: Path, sources: Sequence[str], tests: Sequence[str]) -> None:
    """Writes a fresh copy of what the tests need, set up for mutmut."""
    shutil.rmtree(tree, ignore_errors=True)
    for name in _CARRIED:
        shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__"))
    # The options of the whole suite, without its plugins' settings: mutmut runs the tests in its own process.
    (tree / "pytest.ini").write_text(
        "[pytest]\naddopts = -p no:cacheprovider -x -q --import-mode=importlib\n"
    )
    lists: dict[str, Sequence[str]] = {
        "source_paths": _CARRIED,
        "only_mutate": sources,
        "pytest_add_cli_args_test_selection": tests,
        "also_copy": ["docs", "pytest.ini"],
    }
    lines = [f"{key}=\n" + "\n".join(f"    {value}" for value in values) for key, values in lists.items()]
    (tree / "setup.cfg").write_text("[mutmut]\n" + "\n".join(lines) + "\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
