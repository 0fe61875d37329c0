"""The static tier's kernels: compiled as committed, audited, recorded, and judged from the record alone."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from bundles.reader import read_bundle
from harness.app.judging import decide
from harness.app.validate import validate
from harness.model.evidence import KernelAuditEvidence, KernelCompilationEvidence, WaitSourceEvidence
from harness.model.words import ExitCode, Outcome, Tier
from harness.options import ChangeOptions, OutputOptions, ValidateOptions
from tests.harness.app.conftest import ROOT, git

FIXTURES = ROOT / "tests" / "harness" / "audit" / "fixtures" / "ptx"
ENTRIES = """
import os, pathlib
import specialized_path.shapes

class Compiled:
    def __init__(self, name):
        text = pathlib.Path(__file__).with_name(name).read_text()
        self.asm = {"ptx": text, "cubin": b"not a cubin"}

def project():
    yield "batch=1", Compiled("kernel.ptx")

def tells_secrets():
    raise ValueError(os.environ.get("MADE_SECRET", "nothing is told"))
"""
KERNELS = """
[kernels]
import_roots = ["kernel_tools"]

[[kernels.entries]]
entry = "made_entries:{entry}"
arches = ["sm_90a"]
roles = {{ w = "static", out = "output" }}
"""


def repository(folder: Path, kernel: str, entry: str = "project") -> Path:
    """A change with one kernel, its entry point, the manifest and a policy that requires PDL001."""
    files = {
        "fasttrack.toml": (ROOT / "fasttrack.toml").read_text().split("\n[kernels]")[0]
        + KERNELS.format(entry=entry),
        ".github/fasttrack-policy.toml": 'schema_version = 1\nversion = "made"\n[required]\nstatic = ["PDL001"]\n',
        "kernel_tools/made_entries.py": ENTRIES,
        "kernel_tools/kernel.ptx": (FIXTURES / f"{kernel}.ptx").read_text(),
        "specialized_path/__init__.py": "",
        "specialized_path/shapes.py": "TILE = 128\n",
    }
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    git(folder, "init", "--quiet")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "a kernel")
    return folder


def judged(repo: Path, out: Path) -> tuple[object, dict[str, list[Outcome]], list[str]]:
    """The bundle, outcomes by check, and all messages of PDL001."""
    change = ChangeOptions(repo=repo, base="empty", tier=Tier.STATIC)
    validate(ValidateOptions(change=change, out=out, output=OutputOptions(quiet=True)))
    bundle = read_bundle(out)
    outcomes: dict[str, list[Outcome]] = {}
    for finding in bundle.judgement.findings:
        outcomes.setdefault(finding.check, []).append(finding.outcome)
    lines = [
        line for f in bundle.judgement.findings if f.check == "PDL001" for line in (f.message, *f.details)
    ]
    return bundle, outcomes, lines


def test_a_committed_kernel_that_reads_above_the_wait_is_rejected(tmp_path: Path) -> None:
    repo = repository(tmp_path / "repo", "hoisted_load_fault")
    bundle, outcomes, _ = judged(repo, tmp_path / "out")
    assert Outcome.FAIL in outcomes["PDL001"] and bundle.judgement.verdict == "reject"


def test_what_lies_uncommitted_in_the_working_tree_is_not_what_is_compiled(tmp_path: Path) -> None:
    repo = repository(tmp_path / "repo", "hoisted_load_fault")
    clean = (FIXTURES / "hoisted_load_clean.ptx").read_text()
    (repo / "kernel_tools" / "kernel.ptx").write_text(clean)
    assert Outcome.FAIL in judged(repo, tmp_path / "out")[1]["PDL001"]


def test_a_kernel_in_order_whose_machine_code_could_not_be_read_stays_undecided(tmp_path: Path) -> None:
    repo = repository(tmp_path / "repo", "hoisted_load_clean")
    bundle, outcomes, _ = judged(repo, tmp_path / "out")
    assert Outcome.FAIL not in outcomes["PDL001"] and bundle.judgement.verdict == "undecided"


def test_the_judgement_comes_out_the_same_from_the_record(tmp_path: Path) -> None:
    repo = repository(tmp_path / "repo", "hoisted_load_fault")
    bundle, _, _ = judged(repo, tmp_path / "out")
    again = decide(bundle.manifest_text, bundle.policy_text, bundle.judgement.change, bundle.records)
    assert again == bundle.judgement


def test_evidence_names_the_committed_files_and_no_folder_of_the_machine(tmp_path: Path) -> None:
    repo = repository(tmp_path / "repo", "hoisted_load_clean")
    bundle, _, _ = judged(repo, tmp_path / "out")
    (compiled,) = [r for r in bundle.records if isinstance(r, KernelCompilationEvidence)]
    rest = [r for r in bundle.records if isinstance(r, (KernelAuditEvidence, WaitSourceEvidence))]
    text = json.dumps([r.model_dump(mode="json") for r in (compiled, *rest)])
    assert set(compiled.subject_files) >= {"kernel_tools/made_entries.py", "specialized_path/shapes.py"}
    assert len(rest) == 2 and "/tmp/" not in text and str(tmp_path) not in text


def test_an_entry_point_sees_nothing_of_the_harness_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(os.environ, "MADE_SECRET", "the token")
    repo = repository(tmp_path / "repo", "hoisted_load_clean", entry="tells_secrets")
    lines = judged(repo, tmp_path / "out")[2]
    assert any("nothing is told" in line for line in lines) and not any("the token" in line for line in lines)


def test_an_interrupt_while_kernels_compile_leaves_a_judged_bundle_that_passes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("harness.app.kernels.audit_entries", interrupted)
    repo = repository(tmp_path / "repo", "hoisted_load_clean")
    change = ChangeOptions(repo=repo, base="empty", tier=Tier.STATIC)
    options = ValidateOptions(change=change, out=tmp_path / "out", output=OutputOptions(quiet=True))
    result = validate(options)
    found = [f for f in read_bundle(tmp_path / "out").judgement.findings if f.check == "PDL001"]
    # The other finding is about files that make kernels and belong to no entry that compiled.
    assert result.exit_code is ExitCode.INTERRUPTED
    assert {f.outcome for f in found} == {Outcome.NOT_RUN, Outcome.INCONCLUSIVE}


def test_a_run_killed_between_its_kernels_and_their_lint_is_taken_up_and_tells_each_kernel_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: object) -> None:
        raise SystemExit

    repo = repository(tmp_path / "repo", "hoisted_load_clean")
    with monkeypatch.context() as patched, pytest.raises(SystemExit):
        patched.setattr("harness.app.kernels.lint_files", killed)
        judged(repo, tmp_path / "out")
    change = ChangeOptions(repo=repo, base="empty", tier=Tier.STATIC)
    output = OutputOptions(quiet=True)
    validate(ValidateOptions(change=change, out=tmp_path / "out", resume=True, output=output))
    records = read_bundle(tmp_path / "out").records
    kinds = (KernelCompilationEvidence, KernelAuditEvidence, WaitSourceEvidence)
    assert [sum(isinstance(r, kind) for r in records) for kind in kinds] == [1, 1, 1]
