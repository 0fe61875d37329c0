"""Laws of the registry: every check is found, has its page, and a broken one from elsewhere is named."""

from __future__ import annotations

import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from harness.checks.registry import GROUP, all_checks, load_checks
from harness.config import load_policy
from harness.model.errors import ConfigurationError
from harness.model.words import ExitCode, Principle
from harness.runner import order_checks, require_pages

ROOT = Path(__file__).parents[3]
HEADINGS = ("Claim", "Why", "How it decides", "What it cannot see", "How to fix", "Example")


def point(value: str) -> EntryPoint:
    return EntryPoint(name="theirs", value=value, group=GROUP)


def test_every_principle_has_a_check() -> None:
    assert {check.principle for check in all_checks()} == set(Principle)


def test_every_check_file_is_registered() -> None:
    files = [
        *(ROOT / "harness/checks").glob("*/*[0-9]_*.py"),
        *(ROOT / "harness/audit/rules").glob("*[0-9]_*.py"),
    ]
    assert {check.id for check in all_checks()} == {path.name.split("_")[0].upper() for path in files}


def test_the_checks_fit_together_and_have_their_pages() -> None:
    require_pages(order_checks(all_checks()), ROOT / "docs/checks")


@pytest.mark.parametrize("check", [check.id for check in all_checks()])
def test_a_page_has_every_section(check: str) -> None:
    lines = (ROOT / f"docs/checks/{check}.md").read_text(encoding="utf-8").splitlines()
    headings = [line.lstrip("# ").strip() for line in lines if line.startswith("## ")]
    assert [heading for heading in HEADINGS if heading not in headings] == []


def test_this_repositorys_policy_requires_checks_that_exist() -> None:
    known = {check.id: check.tier for check in all_checks()}
    assert load_policy((ROOT / ".github/fasttrack-policy.toml").read_bytes(), known_checks=known)


def test_a_check_of_another_distribution_is_loaded() -> None:
    (check,) = load_checks([point("harness.checks.isolation.iso001_changed_paths:ChangedPaths")])
    assert check.id == "ISO001"


@pytest.mark.parametrize(
    "source",
    [
        "import nowhere",
        "x = (",
        "raise RuntimeError('at import')",
        "class Other: pass",
        "Theirs = 3",
        "class Theirs:\n    def __init__(self, needed): pass",
        "class Theirs: pass",
        "class Theirs:\n    id = 'X'",
        "from harness.checks.isolation.iso001_changed_paths import ChangedPaths\n"
        "class Theirs(ChangedPaths):\n    tier = 'static'",
    ],
)
def test_a_broken_check_of_another_distribution_is_named(
    source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "theirs_module.py").write_text(source)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "theirs_module", raising=False)
    with pytest.raises(ConfigurationError) as caught:
        load_checks([point("theirs_module:Theirs")])
    assert caught.value.exit_code is ExitCode.USAGE
    assert "theirs (theirs_module:Theirs)" in caught.value.message
