"""What the machine is, by `nvidia-smi` and the installed packages."""

from __future__ import annotations

import platform
import re
import subprocess
from importlib import metadata

from examples.peers.record import Place

_NEEDED = ("torch", "nvidia-cutlass-dsl-libs-base")
_PACKAGES = (*_NEEDED, "nvidia-nccl-cu13", "cuda-bindings")


def collect_place() -> Place:
    """The machine as it is now; without `nvidia-smi` it has no GPU."""
    versions = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            versions[package] = "missing"
    listed, drivers = _ask("-L"), _ask("--query-gpu=driver_version", "--format=csv,noheader")
    return Place(
        gpus=parse_gpus(listed or ""),
        driver=drivers.split("\n")[0].strip() if drivers else None,
        topology=_ask("topo", "-m"),
        versions=versions,
    )


def parse_gpus(listed: str) -> tuple[str, ...]:
    """The names in `nvidia-smi -L`, which also tells serial numbers."""
    return tuple(re.findall(r"^GPU \d+: (.*?) \(UUID", listed, flags=re.MULTILINE))


def without_colours(text: str) -> str:
    """Text without a terminal's escape sequences, which `nvidia-smi topo` writes into files as well."""
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


def why_not(place: Place, num_gpus: int) -> str | None:
    """What processes on so many GPUs miss here."""
    if len(place.gpus) < num_gpus:
        return f"{num_gpus} GPUs are needed, and nvidia-smi lists {len(place.gpus)}"
    missing = [name for name in _NEEDED if place.versions[name] == "missing"]
    return f"packages are missing: {', '.join(missing)}" if missing else None


def _ask(*arguments: str) -> str | None:
    try:
        asked = subprocess.run(
            ["nvidia-smi", *arguments], capture_output=True, text=True, timeout=30, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return without_colours(asked.stdout)
