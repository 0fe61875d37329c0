"""A bundle that is to be rejected, and a copy of it to do harm to."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bundles.examples import evidence_to_reject, plain_report, write_bundle
from tests.bundles.folders import copy_of


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bundle") / "b"
    write_bundle(folder, evidence_to_reject(), plain_report)
    return folder


@pytest.fixture
def folder(original: Path, tmp_path: Path) -> Path:
    return copy_of(original, tmp_path)
