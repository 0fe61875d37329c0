"""Laws of the inward reading over a real repository: hooks of any kind, odd files, owners of the merge base."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from harness.app.inward import InwardEvidence, collect_inward_evidence
from harness.app.validate import read_question, static_question
from harness.model.errors import ConfigurationError, EngineError
from harness.model.evidence import HooksEvidence, ImportsEvidence, OwnersEvidence
from harness.model.reach import GuardState
from harness.options import ChangeOptions
from tests.harness.checks.test_iso001_changed_paths import MANIFEST, POLICY
from tests.harness.facts.conftest import ScratchRepository

HOOKS = """hooks = [
    {file = "shared/registry.py", max_added_lines = 9, why = "reads the switch"},
    {file = "shared/build.cfg", max_added_lines = 3, why = "names the path"},
    {file = "shared/gone.py", max_added_lines = 3, why = "never there"},
]"""


@pytest.fixture
def scratch(tmp_path: Path) -> ScratchRepository:
    """A repository whose main branch has shared code, a manifest, a policy and owners."""
    repository = ScratchRepository(tmp_path / "repository")
    lines = [HOOKS if line.startswith("hooks") else line for line in MANIFEST.splitlines()]
    repository.commit(
        {
            "fasttrack.toml": "\n".join(lines),
            ".github/fasttrack-policy.toml": POLICY,
            ".github/CODEOWNERS": "* @maintainers\n",
            "shared/registry.py": "def serve(config, x):\n    return x\n",
            "shared/build.cfg": "a = 1\n",
            "shared/odd.py": b"# caf\xe9\r\nx = '\xff'\r\n",
            "shared/python2.py": "print 'own'\nfrom own import a\n",
        }
    )
    repository.branch()
    return repository


def collect(scratch: ScratchRepository, base: str = "main") -> tuple[InwardEvidence, ...]:
    """What is recorded for the branch."""
    question = read_question(ChangeOptions(repo=scratch.folder, base=base))
    return collect_inward_evidence(static_question(question))


def test_each_hook_is_read_as_far_as_it_can_be(scratch: ScratchRepository) -> None:
    scratch.commit(
        {
            "own/a.py": "def f(x):\n    return x\n",
            "shared/registry.py": (
                "def serve(config, x):\n"
                '    if config.additional_config.get("k", "off") == "on":\n'
                "        from own.a import f\n\n"
                "        return f(x)\n"
                "    return x\n"
            ),
            "shared/build.cfg": "a = 1\nb = 2\n",
        }
    )
    (hooks,) = (r for r in collect(scratch) if isinstance(r, HooksEvidence))
    assert [(f.path, f.status, [h.state for h in f.hunks]) for f in hooks.files] == [
        ("shared/registry.py", "changed", [GuardState.GUARDED]),
        ("shared/build.cfg", "changed", [GuardState.UNDECIDED]),
        ("shared/gone.py", "missing", []),
    ]


def test_a_guarded_import_tells_its_guard(scratch: ScratchRepository) -> None:
    condition = '    if config.additional_config.get("k", "off") == "on":\n        import own.a\n'
    text = f"def serve(config, x):\n{condition}    return x\n"
    scratch.commit({"own/a.py": "x = 1\n", "shared/registry.py": text})
    (imports,) = (r for r in collect(scratch) if isinstance(r, ImportsEvidence))
    assert [(f.line, f.guards) for f in imports.inward] == [
        (3, ("line 2: config.additional_config.get('k', 'off') == 'on'",))
    ]


def test_a_file_that_speaks_of_the_subject_and_does_not_parse_is_named(scratch: ScratchRepository) -> None:
    scratch.commit({"own/a.py": "x = 1\n"})
    (imports,) = (r for r in collect(scratch) if isinstance(r, ImportsEvidence))
    assert [text.partition(":")[0] for text in imports.unreadable] == ["shared/python2.py"]


def test_a_change_does_not_choose_its_owners(scratch: ScratchRepository) -> None:
    scratch.commit({"own/a.py": "x = 1\n", ".github/CODEOWNERS": "* @me\n"})
    (owners,) = (r for r in collect(scratch) if isinstance(r, OwnersEvidence))
    assert (owners.path, owners.text) == (".github/CODEOWNERS", "* @maintainers\n")


def test_reading_twice_gives_the_same(scratch: ScratchRepository) -> None:
    scratch.commit({"own/a.py": "x = 1\n", "shared/registry.py": "def serve(config, x):\n    return -x\n"})
    first, second = ([r.model_copy(update={"recorded_at": ""}) for r in collect(scratch)] for _ in range(2))
    assert first == second


@pytest.mark.parametrize("error", [ConfigurationError("a", "b", "c"), EngineError("a", "b", "c", "log")])
def test_an_error_of_another_process_says_all_that_it_said(error: ConfigurationError | EngineError) -> None:
    assert pickle.loads(pickle.dumps(error)).__dict__ == error.__dict__
