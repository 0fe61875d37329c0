"""The inventory as a whole: what every variant says of itself, against the manifest."""

import tomllib
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from specialized_path.kernels.inventory import FAMILIES, benchmarks, family_variants, variants

MANIFEST = tomllib.loads((Path(__file__).parents[3] / "kernels.toml").read_text(encoding="utf-8"))
ENTRIES = MANIFEST["kernels"]["entries"]
ALL = [pytest.param(variant, id=variant.name) for variant in variants()]


def declared(family: str, name: str) -> list[dict]:
    """The manifest's entries for a variant; later ones override."""
    wanted = f"specialized_path.kernels.inventory:{family}"
    return [e for e in ENTRIES if e["entry"] == wanted and fnmatchcase(name, e.get("variants", "*"))]


def test_no_two_variants_have_the_same_name():
    names = [variant.name for variant in variants()]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_lists_its_own_variants(family):
    assert {variant.family for variant in family_variants(family)} == {family}


@pytest.mark.parametrize("variant", ALL)
def test_the_manifest_declares_the_roles_that_a_variant_has(variant):
    roles = {}
    for entry in declared(variant.family, variant.name):
        roles.update(entry["roles"])
    assert roles == dict(variant.roles)


@pytest.mark.parametrize("variant", ALL)
def test_the_manifest_declares_how_a_variant_is_launched(variant):
    *_, last = declared(variant.family, variant.name)
    assert (last["launch"], last["dependents"]) == (variant.launch, variant.dependents)


@pytest.mark.parametrize("variant", ALL)
def test_a_variant_serves_at_least_one_batch(variant):
    low, high = variant.batches
    assert 1 <= low <= high


def test_no_two_benchmark_cells_have_the_same_name():
    names = [cell.name for cell in benchmarks()]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("cell", [pytest.param(cell, id=cell.name) for cell in benchmarks()])
def test_a_benchmark_cell_lies_within_the_batches_of_a_variant_of_its_family(cell):
    batches = [v.batches for v in family_variants(cell.family) if v.rank_shape in (cell.rank_shape, "any")]
    assert any(low <= cell.batch <= high for low, high in batches)
