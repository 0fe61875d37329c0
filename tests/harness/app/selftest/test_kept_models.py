"""The miniature model is built once of the same files, and anew as soon as one that it is built from is another."""

from __future__ import annotations

import compileall
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.app.cpu_tier import CpuRun
from harness.app.recorder import Progress, Recorder
from harness.app.selftest.kept_models import KeptModels
from tests.harness.app.conftest import ROOT
from tests.harness.app.test_endings import CHANGE, Sink, manifest_with_builder

FILES = {
    "pkg/__init__.py": "",
    "pkg/sizes.py": "WIDTH = 3\n",
    "pkg/unused.py": "WIDTH = 4\n",
    "pkg/child.py": "import pkg.grandchild\n",
    "pkg/grandchild.py": "",
    "pkg/weights.bin": "0123",
    "other/weights.bin": "4567",
    "pkg/build.py": """
import os, pathlib, subprocess, sys
from pkg.sizes import WIDTH
subprocess.run([sys.executable, "-m", "pkg.child"], check=True)
out = pathlib.Path(sys.argv[1])
out.mkdir()
(out / "made").write_bytes(os.urandom(16))
""",
}
BUILD = ("-m", "pkg.build", "{out}")


@pytest.fixture
def build(tmp_path: Path) -> Callable[..., bytes]:
    """Builds a model of these files, some of them edited (None: deleted), and gives what no other build gives."""
    models, trees = KeptModels(tmp_path / "models"), list[Path]()

    def build(
        edits: dict[str, str | None] | None = None,
        command: tuple[str, ...] = BUILD,
        *,
        compiled: bool = False,
    ) -> bytes:
        tree, work = tmp_path / f"tree{len(trees)}", tmp_path / f"work{len(trees)}"
        trees.append(tree)
        work.mkdir()
        for name, text in (FILES | (edits or {})).items():
            if text is not None:
                (tree / name).parent.mkdir(parents=True, exist_ok=True)
                (tree / name).write_text(text)
        if compiled:
            compileall.compile_dir(tree, quiet=1)
        made = models.build(run_of(tree, work, command)) / "made"
        found = made.read_bytes()
        made.write_bytes(b"what a case does to its own copy")
        return found

    return build


def run_of(tree: Path, work: Path, command: tuple[str, ...]) -> CpuRun:
    return CpuRun(
        manifest=manifest_with_builder(*command),
        recorder=Recorder(sink=Sink(), progress=Progress(quiet=True)),
        change=CHANGE,
        import_path=tree,
        base_path=tree,
        workdir=work,
        data_root=tree,
        tasks_root=tree,
    )


@pytest.mark.parametrize("edits", [{}, {"pkg/unused.py": "WIDTH = 5\n"}], ids=["none", "not-read"])
def test_of_the_same_files_every_case_gets_a_copy_of_one_model(
    edits: dict[str, str | None], build: Callable[..., bytes]
) -> None:
    first = build()
    assert build(edits) == first == build()


@pytest.mark.parametrize(
    "edits",
    [
        {"pkg/sizes.py": "WIDTH = 4\n"},
        {"pkg/sizes.py": "WIDTH = 3\n#\n"},
        {"pkg/build.py": FILES["pkg/build.py"] + "#\n"},
        {"pkg/__init__.py": "#\n"},
        {"pkg/grandchild.py": "#\n"},
        {"pkg/sizes/__init__.py": "WIDTH = 4\n"},
        {"sizes.py": ""},
        {"pkg/weights.bin": "9999"},
        {"other/weights.bin": "9999"},
        {"pkg/unused.py": None},
    ],
    ids=lambda edits: "+".join(edits),
)
def test_it_is_built_anew_where_something_that_it_may_be_built_from_is_another(
    edits: dict[str, str | None], build: Callable[..., bytes]
) -> None:
    first, again = build(), build(edits)
    assert again != first
    assert build(edits) == again and build() == first, "both are kept"


def test_a_source_counts_that_was_read_in_its_compiled_form(build: Callable[..., bytes]) -> None:
    assert build(compiled=True) != build({"pkg/sizes.py": "WIDTH = 4\n"}, compiled=True)


def test_another_command_builds_anew(build: Callable[..., bytes]) -> None:
    assert build() != build(command=(*BUILD, "--seed=2"))


def test_a_builder_whose_reading_is_not_seen_builds_each_time(build: Callable[..., bytes]) -> None:
    unseen = ("-S", *BUILD)
    assert build(command=unseen) != build(command=unseen)


def test_of_the_subjects_own_builder_it_is_seen_that_it_needs_nothing_of_the_path(tmp_path: Path) -> None:
    for root in ("specialized_path", "nano_training"):
        shutil.copytree(ROOT / root, tmp_path / root, ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "work").mkdir()
    models = KeptModels(tmp_path / "models")
    models.build(run_of(tmp_path, tmp_path / "work", ("-m", "nano_training.checkpoint", "{out}")))
    read = models._kept[0].read
    assert {"nano_training/trained/model.safetensors", "specialized_path/nano/tokenizer.py"} <= set(read)
    assert not [p for p in read if p.startswith("specialized_path/runtime/") and p.endswith(".py")]
