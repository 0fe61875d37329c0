"""Laws of the static collection: it reads what is committed, of owned files, hooks, tests and documents."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.app.reaching import StaticQuestion, collect_outside
from harness.app.recorder import Progress, Recorder
from harness.app.validate import read_question
from harness.model.effects import EffectKind
from harness.model.evidence import AnyEvidence, PythonEffectsEvidence, SurfaceEvidence
from harness.options import ChangeOptions
from tests.harness.app.conftest import git

MANIFEST = """
schema_version = 1
[change]
id = "own"
title = "Own path"
model = "Own"
vllm = "0.33.0"
[paths]
owned = ["vllm/models/own/**"]
hooks = [{file = "vllm/model_executor/models/registry.py", max_added_lines = 9, why = "registers the model"}]
tests = ["tests/own/**"]
docs = ["docs/**"]
import_roots = ["vllm", "trainer"]
[switch]
key = "backend"
on = "fast"
off = "auto"
[scope]
platforms = ["cpu"]
max_batch = 8
max_context = 64
[dispatch]
specialized_code = ["vllm.models.own.code:f"]
baseline_code = ["vllm.models.own.code:plain"]
decisions = [{target = "vllm.models.own.code:g", value = "path", specialized = "yes"}]
[models.nano]
build = ["-m", "vllm.build", "{out}"]
max_model_len = 64
"""
POLICY = 'schema_version = 1\nversion = "1"\n[required]\nstatic = ["ISO005"]\n'
REGISTRY = 'import os\nMODELS = {"OtherForCausalLM": 1}\nos.environ["OLD"] = "1"\n'
CODE = (
    "import os\nfrom vllm import ModelRegistry\nos.environ['NEW'] = '1'\n"
    "ModelRegistry.register_model('OwnForCausalLM', 'x')\nModelRegistry.register_model('OtherForCausalLM', 'x')\n"
    "def f(c):\n    return c.additional_config.get('backend', 'auto')\n"
)


COMMANDS = "```\npython -m vllm.models.own --typo 3\npython -m trainer --steps 3\n```\n"


class Sink:
    """Keeps nothing: the recorder's own list is enough."""

    def add(self, record: AnyEvidence) -> str:
        return record.id


@pytest.fixture
def records(tmp_path: Path) -> tuple[AnyEvidence, ...]:
    """What is collected of a change to a small engine."""
    repo = tmp_path / "repo"
    write(repo, {"fasttrack.toml": MANIFEST, ".github/fasttrack-policy.toml": POLICY})
    write(
        repo, {"vllm/model_executor/models/registry.py": REGISTRY, "vllm/other.py": "import os\nos.fork()\n"}
    )
    git(repo.parent, "init", "--quiet", "--initial-branch=main", str(repo))
    commit(repo)
    git(repo, "checkout", "--quiet", "-b", "change")
    added = "os.environ['ADDED'] = '1'\n"
    write(repo, {"vllm/model_executor/models/registry.py": REGISTRY + added, "vllm/models/own/code.py": CODE})
    write(repo, {"tests/own/test_x.py": "def test(m):\n    m.setenv('TYPO_X', '1')\n"})
    write(repo, {"docs/own.md": "Give `backend`.\n" + COMMANDS, "trainer/loop.py": "STEPS = 3\n"})
    write(repo, {"vllm/models/own/notes.bin": "\x7fELF\x00"})
    commit(repo)
    write(repo, {"vllm/models/own/code.py": "import os\nos.fork()\n"})
    question = read_question(ChangeOptions(repo=repo, base="main"))
    recorder = Recorder(sink=Sink(), progress=Progress(quiet=True))
    collect_outside(
        StaticQuestion(
            repository=question.repository,
            change=question.change,
            changed=question.changed_files,
            manifest=question.manifest,
            policy=question.policy,
        ),
        recorder,
    )
    return recorder.evidence.records


def write(repo: Path, files: dict[str, str]) -> None:
    for name, content in files.items():
        path = repo / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode("latin-1"))


def commit(repo: Path) -> None:
    git(repo, "add", "--all")
    git(repo, "commit", "--quiet", "--message", "x")


def effects(records: tuple[AnyEvidence, ...]) -> PythonEffectsEvidence:
    (record,) = [r for r in records if isinstance(r, PythonEffectsEvidence)]
    return record


def surface(records: tuple[AnyEvidence, ...]) -> SurfaceEvidence:
    (record,) = [r for r in records if isinstance(r, SurfaceEvidence)]
    return record


def test_the_head_counts_and_not_the_working_tree(records: tuple[AnyEvidence, ...]) -> None:
    assert EffectKind.PROCESS not in {e.kind for e in effects(records).effects}


def test_a_file_that_is_neither_owned_nor_a_hook_is_not_read(records: tuple[AnyEvidence, ...]) -> None:
    assert "vllm/other.py" not in {f.path for f in effects(records).files}


def test_of_a_hook_what_the_base_has_is_marked(records: tuple[AnyEvidence, ...]) -> None:
    written = {e.target: e.in_base for e in effects(records).effects if e.kind is EffectKind.ENVIRONMENT}
    assert written == {"OLD": True, "ADDED": False, "NEW": False}


def test_files_that_are_no_python_are_looked_at(records: tuple[AnyEvidence, ...]) -> None:
    binaries = [e.path for e in effects(records).effects if e.kind is EffectKind.BINARY]
    assert binaries == ["vllm/models/own/notes.bin"]


def test_names_are_looked_up_in_the_engine_that_the_repository_holds(
    records: tuple[AnyEvidence, ...],
) -> None:
    record = effects(records)
    found = {search.name: [place.place for place in search.found] for search in record.searches}
    assert record.searched == ("the merge base",)
    assert found["OwnForCausalLM"] == []
    assert found["OtherForCausalLM"] == ["vllm/model_executor/models/registry.py:2"]


def test_settings_of_code_tests_and_documents_are_recorded(records: tuple[AnyEvidence, ...]) -> None:
    record = surface(records)
    assert [(r.when_absent, r.path) for r in record.switch] == [("off", "vllm/models/own/code.py")]
    assert [use.name for use in record.tests] == ["TYPO_X"]
    assert ("backend", "mentions") in {(use.name, use.role) for use in record.documents}


def test_flags_of_a_program_that_is_none_of_the_changes_are_not_its_settings(
    records: tuple[AnyEvidence, ...],
) -> None:
    assert {u.name for u in surface(records).documents if u.name.startswith("--")} == {"--typo"}
