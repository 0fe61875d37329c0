"""The judge's rates are the same wherever they are told."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[4]
RATES = re.compile(
    r"Of \d+ seeded faults it found .+? undecided: "
    r"counted on \d{4}-\d\d-\d\d at commit [0-9a-f]{7}, tiers .+?, on [^.]+\."
)


def rates(name: str) -> list[str]:
    return RATES.findall(" ".join((ROOT / name).read_text(encoding="utf-8").split()))


def test_readme_report_and_guide_tell_one_count_with_its_date_commit_tiers_and_hardware() -> None:
    told = [rates(f) for f in ("README.md", "docs/selftest.md", "reports/templates/provenance.html.j2")]
    assert [len(found) for found in told] == [1, 1, 1] and told[0] == told[1] == told[2]
