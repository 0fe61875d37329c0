"""The catalogue as it is in the tree, and catalogues that cannot be used."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from harness.app.judging import known_checks
from harness.app.selftest.catalogue import CATALOGUE, Case, load_catalogue
from harness.app.selftest.workplace import Workplace, changed_paths, head_of
from harness.model.errors import ConfigurationError, FasttrackError
from harness.model.words import Principle, Tier

ROOT = Path(__file__).resolve().parents[4]
CASES = load_catalogue(ROOT / CATALOGUE)
FAULTS = [case for case in CASES if not case.is_twin]
TEXT = """
title = "A fault"
kind = "a kind"
principle = "scope"
tier = "static"
stage = "static"
expected = ["ISO001"]
twin = "nothing"
"""


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Workplace:
    place = Workplace(root=ROOT, folder=tmp_path_factory.mktemp("selftest"))
    place.copy_tree()
    return place


def test_there_are_forty_faults_over_all_principles() -> None:
    principles = Counter(case.fault.principle for case in FAULTS)
    assert len(FAULTS) >= 40 and set(principles) == set(Principle)


@pytest.mark.parametrize("case", FAULTS, ids=lambda case: case.name)
def test_every_expected_check_exists_and_belongs_to_a_tier_that_is_run(case: Case) -> None:
    if not case.fault.stage.is_tampering:
        ranks = {check: tier.rank for check, tier in known_checks().items()}
        assert all(ranks[check] <= case.fault.tier.rank for check in case.fault.expected)


PATCHED = [case for case in CASES if not case.fault.stage.is_tampering]


@pytest.mark.parametrize("case", [c for c in PATCHED if not c.base], ids=lambda case: case.name)
def test_every_patch_fits_the_tree(case: Case, workplace: Workplace) -> None:
    done = subprocess.run(
        ["git", "apply", "--check", str(case.edit)], cwd=workplace.clean, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("case", [c for c in PATCHED if c.base], ids=lambda case: case.name)
def test_every_patch_fits_the_tree_that_it_brings(case: Case, workplace: Workplace) -> None:
    assert changed_paths(workplace.commit_on_top(case.name, [case.edit], case.base))


def test_the_guide_says_of_the_faults_of_a_served_model_what_the_catalogue_expects() -> None:
    text = (ROOT / "docs/selftest.md").read_text(encoding="utf-8")
    section = text.partition("## Ten faults of a served model")[2].partition("\n## ")[0]
    told = dict(re.findall(r"^\| [^|]+ \| `([^`|]+)` \| ([A-Z0-9, ]+) \|", section, re.MULTILINE))
    expected = {case.id: ", ".join(case.fault.expected) for case in FAULTS}
    assert len(told) >= 10 and told == {name: expected.get(name) for name in told}


def test_a_change_is_one_commit_on_the_clean_tree(workplace: Workplace) -> None:
    case = next(c for c in CASES if c.id == "expert-swapped")
    repo = workplace.commit_on_top(case.name, [case.edit])
    assert changed_paths(repo) == {"specialized_path/runtime/reference_provider.py"}


def test_what_a_change_is_made_on_is_no_part_of_it(workplace: Workplace, tmp_path: Path) -> None:
    base = tmp_path / "base.patch"
    base.write_text("--- /dev/null\n+++ b/before.txt\n@@ -0,0 +1 @@\n+before\n")
    patch = tmp_path / "fault.patch"
    patch.write_text("--- a/before.txt\n+++ b/before.txt\n@@ -1 +1,2 @@\n before\n+after\n")
    repo = workplace.commit_on_top("on-a-base", [patch], base)
    assert changed_paths(repo) == {"before.txt"} and (repo / "before.txt").read_text() == "before\nafter\n"


def test_patches_of_neighbouring_lines_go_together_and_one_that_is_in_the_way_does_not(
    tmp_path: Path,
) -> None:
    root = tmp_path / "root"
    root.mkdir()
    lines = [f"line {number}\n" for number in range(5)]
    file = root / "a.txt"
    file.write_text("".join(lines))
    subprocess.run(["git", "init", "--quiet"], cwd=root, check=True)
    subprocess.run(["git", "add", "."], cwd=root, check=True)
    patches = [tmp_path / name for name in ("first", "third", "also third")]
    for patch, number in zip(patches, (0, 2, 2), strict=True):
        file.write_text("".join([*lines[:number], f"of {patch.name}\n", *lines[number + 1 :]]))
        patch.write_bytes(subprocess.run(["git", "diff"], cwd=root, capture_output=True, check=True).stdout)
    file.write_text("".join(lines))
    place = Workplace(root=root, folder=tmp_path / "selftest")
    place.copy_tree()
    assert place.group("together", patches) == [patches[:2], patches[2:]]
    merged = (place.commit_on_top("merged", patches[:2]) / "a.txt").read_text().splitlines()
    assert merged == ["of first", "line 1", "of third", "line 3", "line 4"]


def test_the_same_files_make_the_same_commit_at_any_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    subprocess.run(["git", "init", "--quiet"], cwd=tmp_path, check=True)
    (tmp_path / "a.txt").write_text("a\n")
    heads = []
    for year in (2001, 2002):
        monkeypatch.setenv("GIT_COMMITTER_DATE", f"{year}-01-01T00:00:00Z")
        place = Workplace(root=tmp_path, folder=tmp_path.parent / f"{tmp_path.name}-{year}")
        place.copy_tree()
        heads.append(head_of(place.clean))
    assert heads[0] == heads[1]


def test_no_fault_is_its_own_twin() -> None:
    by_id = {case.id: case.edit.read_bytes() for case in CASES if case.is_twin}
    assert all(case.edit.read_bytes() != by_id[case.id] for case in FAULTS)


def test_a_patch_that_no_longer_fits_breaks_the_case(workplace: Workplace, tmp_path: Path) -> None:
    patch = tmp_path / "fault.patch"
    patch.write_text("--- a/README.md\n+++ b/README.md\n@@ -1 +1 @@\n-never a line of it\n+another\n")
    with pytest.raises(FasttrackError, match="no longer fits"):
        workplace.commit_on_top("odd", [patch])


def test_the_catalogue_is_not_in_the_tree_that_is_judged(workplace: Workplace) -> None:
    assert not (workplace.clean / CATALOGUE).exists() and (workplace.clean / "fasttrack.toml").exists()


def one_fault(folder: Path, text: str = TEXT, *files: str) -> Path:
    place = folder / "a-fault"
    place.mkdir()
    (place / "fault.toml").write_text(text)
    for name in files:
        (place / name).write_text("")
    return folder


def test_only_the_named_faults_are_taken_with_their_twins() -> None:
    chosen = load_catalogue(ROOT / CATALOGUE, [FAULTS[0].id])
    assert [(c.id, c.is_twin) for c in chosen] == [(FAULTS[0].id, False), (FAULTS[0].id, True)]


def test_an_unknown_fault_is_said_with_those_that_there_are(tmp_path: Path) -> None:
    one_fault(tmp_path, TEXT, "fault.patch", "twin.patch")
    with pytest.raises(ConfigurationError) as caught:
        load_catalogue(tmp_path, ["b-fault"])
    assert "b-fault" in caught.value.message and "a-fault" in caught.value.advice


def test_a_fault_without_a_twin_is_refused(tmp_path: Path) -> None:
    one_fault(tmp_path, TEXT, "fault.patch")
    with pytest.raises(ConfigurationError, match=r"no twin\.patch"):
        load_catalogue(tmp_path)


def test_a_misspelt_key_is_named(tmp_path: Path) -> None:
    one_fault(tmp_path, TEXT.replace("expected", "expect"), "fault.patch", "twin.patch")
    with pytest.raises(ConfigurationError, match="expect"):
        load_catalogue(tmp_path)


def test_a_fault_that_nothing_is_expected_to_find_is_refused(tmp_path: Path) -> None:
    one_fault(tmp_path, TEXT.replace('["ISO001"]', "[]"), "fault.patch", "twin.patch")
    with pytest.raises(ConfigurationError, match="expected checks under `expected`, or `escapes`"):
        load_catalogue(tmp_path)


def test_a_fault_that_no_check_could_find_says_so(tmp_path: Path) -> None:
    text = TEXT.replace('["ISO001"]', "[]") + 'escapes = "issue 10"\n'
    one_fault(tmp_path, text, "fault.patch", "twin.patch")
    assert load_catalogue(tmp_path)[0].fault.escapes == "issue 10"


def test_a_base_beside_the_patches_belongs_to_both(tmp_path: Path) -> None:
    one_fault(tmp_path, TEXT, "fault.patch", "twin.patch", "base.patch")
    assert [case.base for case in load_catalogue(tmp_path)] == [tmp_path / "a-fault" / "base.patch"] * 2


def test_a_folder_without_faults_is_no_catalogue(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="no faults"):
        load_catalogue(tmp_path)


def test_a_tree_outside_git_is_refused(tmp_path: Path) -> None:
    shutil.copyfile(ROOT / "README.md", tmp_path / "README.md")
    place = Workplace(root=tmp_path, folder=tmp_path / "work")
    with pytest.raises(FasttrackError):
        place.copy_tree()


def test_tiers_beyond_this_version_are_not_in_the_catalogue() -> None:
    assert {case.fault.tier for case in CASES} <= {Tier.STATIC, Tier.CPU, Tier.GPU}
