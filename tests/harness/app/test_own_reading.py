"""What git's objects give is read at the gate, whatever a bundle says, and a bundle that says otherwise is named."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from bundles.reader import read_bundle
from harness.app.gate import gate
from harness.app.own_reading import OwnReading, ReadEvidence
from harness.app.selftest.resealing import reseal
from harness.app.validate import validate
from harness.model.effects import FoundName, NameSearch
from harness.model.evidence import AnyEvidence, PythonEffectsEvidence, SurfaceEvidence
from harness.model.words import ExitCode, Tier
from harness.options import ChangeOptions, CommandResult, GateOptions, OutputOptions, ValidateOptions
from tests.harness.checks.test_iso001_changed_paths import MANIFEST
from tests.harness.facts.conftest import ScratchRepository

POLICY = 'schema_version = 1\nversion = "1"\n[required]\nstatic = ["{}"]\n'
SWITCH = 'def plan(config):\n    return config.additional_config.get("k", "off") == "on"\n'
ON_BY_DEFAULT = SWITCH.replace('"off"', '"on"')
PATCHES = SWITCH + "\n\nimport torch\n\ntorch.nn.Linear.forward = None\n"
CUDA = "__global__ void add(float* a) { a[0] += 1; }\n"
Record = Callable[[AnyEvidence], AnyEvidence]


def without(kind: str, **fields: object) -> Record:
    """Empties fields of the records of a kind."""
    return lambda record: record.model_copy(update=fields) if record.kind == kind else record


def switched_off(record: AnyEvidence) -> AnyEvidence:
    if not isinstance(record, SurfaceEvidence):
        return record
    reads = tuple(read.model_copy(update={"when_absent": "off"}) for read in record.switch)
    return record.model_copy(update={"switch": reads})


@pytest.fixture
def scratch(tmp_path: Path) -> ScratchRepository:
    """A main branch with the manifest of a change, for a GPU, and its switch."""
    repository = ScratchRepository(tmp_path / "repository")
    manifest = MANIFEST.replace('platforms = ["cpu"]', 'platforms = ["sm_90a"]')
    repository.commit(
        {
            "fasttrack.toml": manifest,
            "own/a.py": SWITCH,
            "docs/own.md": "`k` of `additional_config` is `off` by default.\n",
        }
    )
    repository.branch()
    return repository


def judged(scratch: ScratchRepository, out: Path, check: str) -> Path:
    """A bundle of the branch under a policy that asks for one check."""
    policy = out.parent / "policy.toml"
    policy.write_text(POLICY.format(check))
    change = ChangeOptions(repo=scratch.folder, base="main", tier=Tier.STATIC, policy=policy)
    validate(ValidateOptions(change=change, out=out, output=OutputOptions(quiet=True)))
    return out


def at_gate(scratch: ScratchRepository, *bundles: Path) -> CommandResult:
    return gate(
        GateOptions(
            bundles=bundles,
            repo=scratch.folder,
            base="main",
            head="feature",
            policy=bundles[0].parent / "policy.toml",
            output=OutputOptions(),
        )
    )


@pytest.mark.parametrize(
    ("check", "file", "text", "forge"),
    [
        ("ISO005", "own/a.py", PATCHES, without("python_effects", effects=())),
        ("ISO006", "own/a.py", ON_BY_DEFAULT, switched_off),
        ("PDL001", "own/add.cu", CUDA, without("kernel_sources", files=())),
    ],
)
def test_a_fault_that_is_taken_out_of_the_evidence_is_found_in_the_commits(
    scratch: ScratchRepository, tmp_path: Path, check: str, file: str, text: str, forge: Record
) -> None:
    scratch.commit({file: text})
    bundle = judged(scratch, tmp_path / "b", check)
    honest = at_gate(scratch, bundle)
    reseal(bundle, lambda records: [forge(record) for record in records])
    forged = at_gate(scratch, bundle)
    assert read_bundle(bundle).judgement.exit_code is ExitCode.ADMIT
    assert forged.exit_code is honest.exit_code is not ExitCode.ADMIT
    assert "b: its " in forged.text and "the gate's own counts" in forged.text
    assert "the gate's own counts" not in honest.text


def test_a_bundle_with_a_second_clean_record_does_not_stand_for_the_failing_one(
    scratch: ScratchRepository, tmp_path: Path
) -> None:
    scratch.commit({"own/a.py": PATCHES})
    failing = judged(scratch, tmp_path / "b", "ISO005")
    fuller = judged(scratch, tmp_path / "fuller", "ISO005")

    def add_a_clean_one(records: object) -> list[AnyEvidence]:
        found = list(records)  # type: ignore[call-overload]
        (record,) = (r for r in found if isinstance(r, PythonEffectsEvidence))
        return [*found, record.model_copy(update={"effects": ()})]

    with pytest.MonkeyPatch.context() as forger:
        forger.setattr("bundles.writer.check_consistency", id)
        reseal(fuller, add_a_clean_one)
    result = at_gate(scratch, failing, fuller)
    assert result.exit_code is ExitCode.HARNESS and "bundle-record-twice" in result.text


def test_of_what_the_gate_reads_no_bundle_is_a_replicate(scratch: ScratchRepository, tmp_path: Path) -> None:
    scratch.commit({"own/a.py": PATCHES})
    first, second = judged(scratch, tmp_path / "b", "ISO005"), tmp_path / "c"
    shutil.copytree(first, second)
    reseal(second, lambda records: [without("python_effects", effects=())(r) for r in records])
    assert "replicates" not in at_gate(scratch, first, second).text


def test_a_gate_without_an_engine_chooses_between_what_bundles_found_in_theirs() -> None:
    mine = (effects(searched="", found=()),)
    assert OwnReading(records=mine, knows_engine=False).known == ()
    assert OwnReading(records=mine, knows_engine=True).known == (PythonEffectsEvidence,)


def effects(*, searched: str, found: tuple[str, ...]) -> PythonEffectsEvidence:
    search = NameSearch(name="own", found=tuple(FoundName(place=p, is_key=True) for p in found))
    return PythonEffectsEvidence(
        tier=Tier.STATIC,
        recorded_at="2026-11-02T10:00:00Z",
        commit="a" * 40,
        files=(),
        effects=(),
        searched=(searched,) if searched else (),
        searches=(search,),
    )


@pytest.mark.parametrize(
    ("knows_engine", "searched", "places"),
    [(False, ("vllm 1",), ["here.py:1", "vllm/x.py:1"]), (True, ("the merge base",), ["here.py:1"])],
)
def test_where_names_are_in_the_engine_a_bundle_says_only_to_a_gate_that_has_none(
    knows_engine: bool, searched: tuple[str, ...], places: list[str]
) -> None:
    mine = effects(searched="the merge base" if knows_engine else "", found=("here.py:1",))
    records: tuple[ReadEvidence, ...] = (mine,)
    reading = OwnReading(records=records, knows_engine=knows_engine)
    (told,) = reading.stands_in([effects(searched="vllm 1", found=("vllm/x.py:1",))])
    assert isinstance(told, PythonEffectsEvidence)
    assert (told.searched, [f.place for f in told.searches[0].found]) == (searched, places)


def test_a_kind_that_a_bundle_leaves_out_is_read_and_its_absence_said() -> None:
    reading = OwnReading(records=(effects(searched="", found=()),), knows_engine=True)
    assert [r.kind for r in reading.stands_in([])] == ["python_effects"]
    assert list(reading.differing_fields([])) == [("python_effects", "no record")]
