"""Made clean changes of the subject: nobody's fault, so that whatever is said against one is the judge's."""

from __future__ import annotations

from difflib import unified_diff
from pathlib import Path
from random import Random

from harness.app.selftest.catalogue import Case
from harness.app.selftest.innocent import edit_innocently, repeat_a_test
from harness.config import DEFAULT_MANIFEST, load_manifest
from harness.model.errors import ConfigurationError
from harness.model.selftest import FaultDescription, Stage
from harness.model.words import Principle, Tier

NUM_EDITS = 3
EVERY_TEST = 4
"""One change of so many is of a file that has a file of tests, and brings one more."""


def make_clean_cases(root: Path, folder: Path, number: int, first_seed: int) -> tuple[Case, ...]:
    """As many changes, each of one file that the cpu tier executes; the patches are written to `folder`.

    A seed gives the same change on the same tree.

    Raises:
        ConfigurationError: the manifest names no file under [coverage] cpu that can be edited.
    """
    manifest = load_manifest((root / DEFAULT_MANIFEST).read_text(encoding="utf-8"))
    found = {path for glob in manifest.coverage.cpu for path in root.glob(glob) if path.suffix == ".py"}
    files = sorted(
        path for path in found if edit_innocently(path.read_text(encoding="utf-8"), Random(0), 1)[1]
    )
    if not files:
        raise ConfigurationError(
            "nothing-to-edit", "[coverage] cpu names no file with a function.", "See docs/selftest.md."
        )
    return tuple(_make(root, folder, files, seed) for seed in range(first_seed, first_seed + number))


def _make(root: Path, folder: Path, files: list[Path], seed: int) -> Case:
    draw = Random(seed)
    with_tests = [file for file in files if _tests_of(root, file).is_file()] if seed % EVERY_TEST == 0 else []
    file = draw.choice(with_tests or files)
    before = file.read_text(encoding="utf-8")
    after, kinds = edit_innocently(before, draw, NUM_EDITS)
    patch = _difference(file.relative_to(root), before, after)
    if with_tests:
        tests = _tests_of(root, file)
        before = tests.read_text(encoding="utf-8")
        if with_one_more := repeat_a_test(before):
            patch += _difference(tests.relative_to(root), before, with_one_more)
            kinds = (*kinds, "test")
    path = folder / f"{seed}.patch"
    path.write_text(patch, encoding="utf-8")
    return Case(
        id=f"{seed}-{file.stem}-{'-'.join(kinds)}",
        fault=FaultDescription(
            title=f"none: {', '.join(kinds)} in {file.name}",
            kind="clean change",
            principle=Principle.CORRECTNESS,
            tier=Tier.CPU,
            stage=Stage.MADE,
            expected=(),
            twin="what it computes is as it was",
        ),
        is_twin=True,
        edit=path,
    )


def _tests_of(root: Path, file: Path) -> Path:
    """Where the tests of a file are, if it has any: below `tests`, as the tree is."""
    return root / "tests" / file.relative_to(root).with_name(f"test_{file.name}")


def _difference(path: Path, before: str, after: str) -> str:
    old, new = (text.splitlines(keepends=True) for text in (before, after))
    return "".join(unified_diff(old, new, f"a/{path.as_posix()}", f"b/{path.as_posix()}"))
