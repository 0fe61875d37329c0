"""What `[evals]` of a manifest may say; every wrong field is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.app.suite_plan import SIZES, CpuSizes, load_eval_rows
from harness.config import load_manifest
from harness.model.errors import ConfigurationError
from harness.model.evals import EvalsSection

TEXT = (Path(__file__).parents[2] / "fasttrack.toml").read_text().partition("[evals.mrcr]")[0]


def evals(text: str) -> EvalsSection:
    return load_manifest(TEXT + text).evals


def test_without_the_section_both_suites_are_generated() -> None:
    assert evals("").mrcr.is_generated and evals("").aime.is_generated


def test_a_data_set_is_named_by_hub_and_commit_or_by_path() -> None:
    found = evals(
        f'[evals.mrcr]\nhub = "openai/mrcr"\nrevision = "{"0" * 40}"\n[evals.aime]\npath = "a.jsonl"\n'
    )
    assert not found.mrcr.is_generated and not found.aime.is_generated


BAD = {
    "a branch": ('[evals.mrcr]\nhub = "a/b"\nrevision = "main"\n', "evals.mrcr.revision"),
    "no revision": ('[evals.mrcr]\nhub = "a/b"\n', "evals.mrcr.revision"),
    "a revision of nothing": (f'[evals.aime]\nrevision = "{"0" * 40}"\n', "evals.aime.revision"),
    "hub and path": (
        f'[evals.aime]\nhub = "a/b"\nrevision = "{"0" * 40}"\npath = "x"\n',
        "evals.aime.path: .*either hub or path",
    ),
    "a path upwards": ('[evals.aime]\npath = "data/../../x"\n', "evals.aime.path: .*inside the repository"),
    "an absolute path": ('[evals.mrcr]\npath = "/etc"\n', "evals.mrcr.path: .*inside the repository"),
    "tasks from elsewhere": (
        '[[evals.lm_eval]]\ntask = "t"\ninclude_path = "../t"\n',
        r"evals.lm_eval\[0\].include_path",
    ),
    "lengths that fall": ("[evals.mrcr]\nlengths = [1024, 512]\n", "evals.mrcr.lengths"),
    "a length of none": ("[evals.mrcr]\nlengths = [0, 512]\n", "evals.mrcr.lengths"),
    "a length beyond the scope": ("[evals.mrcr]\nlengths = [512, 1000000000]\n", "evals.mrcr.lengths"),
    "a greedy avg@k": ("[evals.aime]\ntemperature = 0\n", "evals.aime.temperature"),
    "no needles": ("[evals.mrcr]\nneedles = []\n", "evals.mrcr.needles"),
    "an unknown key": ("[evals.mrcr]\nneedle = [2]\n", "evals.mrcr.needle"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_wrong_field_is_named(name: str) -> None:
    text, said = BAD[name]
    with pytest.raises(ConfigurationError, match=said):
        evals(text)


def test_a_kind_of_problem_that_does_not_exist_is_named_before_anything_runs(tmp_path: Path) -> None:
    manifest = load_manifest(TEXT + '[evals.aime]\nkinds = ["sum", "summ"]\n')
    with pytest.raises(ConfigurationError, match="got summ, expected some of look_up"):
        load_eval_rows(manifest, tmp_path)


def test_a_quick_profile_asks_no_more_than_a_full_one() -> None:
    quick, full = SIZES["quick"], SIZES["full"]
    numbers = [name for name in CpuSizes.__dataclass_fields__ if isinstance(getattr(full, name), int | float)]
    assert all(getattr(quick, name) <= getattr(full, name) for name in numbers)
    assert not quick.with_probes and quick.timing_pairs == 0 and quick.num_mrcr_rows > 0
    assert quick.own_tests_s < 60
