"""Each example bundle is written once a process; no test changes one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.reports.pages import NAMES, write_example


@pytest.fixture(scope="session")
def examples(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Folder of each example bundle by name."""
    root = tmp_path_factory.mktemp("examples")
    for name in NAMES:
        write_example(root / name, name)
    return {name: root / name for name in NAMES}
