"""One run of tests under the watch: `python -P session.py SETTINGS`, where SETTINGS is a JSON file.

It has `checkout` (a folder), `subject` and `tests` (files below it), `falsified`, `only` (node ids, or null) and `out`
(the file to be written).
"""

from __future__ import annotations

import importlib.util
import json
import os
import resource
import sys
from pathlib import Path
from typing import Any

_NAME = "_fasttrack_own_tests"
_MAX_FILE_BYTES = 1 << 30
"""What a test may write into one file: a flood of output ends the test and not the machine."""
NO_PYTEST, DEAD = 90, 91
"""Exit statuses: there is no pytest; the watch did not see its own sample."""
_SAMPLE = "def give(number):\n    return number\n"


def _load(name: str) -> Any:
    """A module of this folder, as part of a package under a name that no checkout has."""
    if _NAME not in sys.modules:
        folder = Path(__file__).resolve().parent
        spec = importlib.util.spec_from_file_location(
            _NAME, folder / "__init__.py", submodule_search_locations=[str(folder)]
        )
        assert spec is not None and spec.loader is not None
        sys.modules[_NAME] = importlib.util.module_from_spec(spec)
    return importlib.import_module(f"{_NAME}.{name}")


def main(settings: dict[str, Any]) -> int:
    """Runs the tests; pytest's exit status, or one of the above."""
    if importlib.util.find_spec("pytest") is None:
        return NO_PYTEST
    import pytest

    top, out = Path(settings["checkout"]), Path(settings["out"])
    sample = out.with_name("sample.py")
    sample.write_text(_SAMPLE, encoding="utf-8")
    subject = [str(top / name) for name in settings["subject"]]
    boundary = _load("boundary").Boundary([*subject, str(sample)], settings["falsified"])
    sys.meta_path.insert(0, boundary.watch)
    if not _sees_sample(boundary, sample.parent, settings["falsified"]):
        return DEAD
    only = None if settings["only"] is None else frozenset(settings["only"])
    recorder = _load("recorder").Recorder(out, top, boundary, only)
    os.chdir(top)
    resource.setrlimit(resource.RLIMIT_FSIZE, (_MAX_FILE_BYTES, _MAX_FILE_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    arguments = [f"--rootdir={top}", "-q", "-p", "no:cacheprovider", "--color=no", "--maxfail=0"]
    if importlib.util.find_spec("xdist") is not None:
        arguments.append("-n0")
    status = pytest.main([*arguments, *settings["tests"]], plugins=[recorder])
    modules = sorted(boundary.watch.modules - {"sample"})
    recorder.write(
        "finished", status=int(status), modules=modules, foreign=_foreign(top, settings["subject"])
    )
    return int(status)


def _foreign(top: Path, subject: list[str]) -> list[str]:
    """Modules of the subject that were imported from elsewhere than the checkout: their calls are not seen."""
    names = {
        name.removesuffix(".py").removesuffix("/__init__").replace("/", "."): top / name for name in subject
    }
    found = {name: getattr(sys.modules[name], "__file__", None) for name in names if name in sys.modules}
    return sorted(name for name, file in found.items() if file is None or Path(file) != names[name])


def _sees_sample(boundary: Any, folder: Path, falsified: str) -> bool:
    """Whether a call of a sample is noted, and its result falsified in a run that falsifies values."""
    sys.path.insert(0, str(folder))
    try:
        sample = importlib.import_module("sample")
        with boundary.scope("sample") as scope:
            given = sample.give(1)
    finally:
        sys.path.remove(str(folder))
        sys.modules.pop("sample", None)
    return scope.calls == {"sample:give": {"values"}} and (given != 1) is (falsified == "values")


if __name__ == "__main__":
    sys.exit(main(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))))
