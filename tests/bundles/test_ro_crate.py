"""Laws of the RO-Crate description: what the specification asks for, of the files that are there, made anew alike."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bundles.files import list_files
from bundles.layout import RO_CRATE
from bundles.reader import read_bundle
from bundles.ro_crate import render_ro_crate
from tests.bundles.examples import evidence_to_reject, plain_report, write_bundle


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bundle") / "b"
    write_bundle(folder, evidence_to_reject(), plain_report)
    return folder


@pytest.fixture(scope="module")
def crate(folder: Path) -> dict[str, Any]:
    return json.loads((folder / RO_CRATE).read_bytes())  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def entities(crate: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {entity["@id"]: entity for entity in crate["@graph"]}


def test_the_document_is_of_the_context_of_the_specification(crate: dict[str, Any]) -> None:
    assert crate["@context"] == "https://w3id.org/ro/crate/1.2/context"
    assert set(crate) == {"@context", "@graph"}


def test_every_entity_has_an_id_of_its_own_and_a_type(
    crate: dict[str, Any], entities: dict[str, Any]
) -> None:
    assert len(entities) == len(crate["@graph"])
    assert all(entity["@type"] for entity in crate["@graph"])


def test_the_descriptor_points_at_the_root(entities: dict[str, Any]) -> None:
    descriptor = entities[RO_CRATE]
    assert descriptor["@type"] == "CreativeWork" and descriptor["about"] == {"@id": "./"}
    assert descriptor["conformsTo"] == {"@id": "https://w3id.org/ro/crate/1.2"}


def test_the_root_is_a_dataset_with_what_the_specification_demands(entities: dict[str, Any]) -> None:
    root = entities["./"]
    assert root["@type"] == "Dataset"
    assert all(root[name] for name in ("name", "description", "datePublished", "license"))


def test_the_root_has_every_file_but_its_own_description_as_a_part(
    folder: Path, entities: dict[str, Any]
) -> None:
    parts = {part["@id"] for part in entities["./"]["hasPart"]}
    assert parts == set(list_files(folder)) - {RO_CRATE}
    assert all(entities[part]["@type"] == "File" for part in parts)


def test_no_entity_is_of_a_type_whose_demands_it_does_not_meet(crate: dict[str, Any]) -> None:
    """Of scripts the specification wants files, of software an address."""
    types = {entity["@type"] for entity in crate["@graph"]}
    assert types == {"CreativeWork", "Dataset", "CreateAction", "File"}


def test_every_reference_leads_to_an_entity_or_to_the_specification(
    crate: dict[str, Any], entities: dict[str, Any]
) -> None:
    def references(value: Any) -> list[str]:
        if isinstance(value, dict):
            own = [value["@id"]] if set(value) == {"@id"} else []
            return own + [r for inner in value.values() for r in references(inner)]
        return [r for inner in value for r in references(inner)] if isinstance(value, list) else []

    dangling = set(references(crate["@graph"])) - set(entities)
    assert dangling == {"https://w3id.org/ro/crate/1.2"}


def test_sizes_and_digests_are_those_of_the_files(folder: Path, entities: dict[str, Any]) -> None:
    contents = read_bundle(folder).contents
    said = {path: (entities[path]["contentSize"], entities[path]["sha256"]) for path in contents}
    assert said == {path: (str(digest.size), digest.sha256) for path, digest in contents.items()}


def test_it_is_a_function_of_the_bundle(folder: Path) -> None:
    assert render_ro_crate(read_bundle(folder)) == (folder / RO_CRATE).read_bytes()
