"""Rows of published data sets: from the Hugging Face hub at a commit, or from local JSON lines and parquet files."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from harness.model.errors import ConfigurationError
from harness.model.evals import EvalSource

SUFFIXES = (".jsonl", ".parquet")
_MAX_PROBLEMS = 20
"""Problems that one message lists."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RawRow:
    """One row as a file has it."""

    file: str
    """Relative to the data set."""
    number: int
    """From 1; in JSON lines, the line."""
    values: Mapping[str, Any]

    @property
    def place(self) -> str:
        """Where it stands, for messages."""
        return f"{self.file}, row {self.number}"


class RowError(ValueError):
    """A row is not what its suite's format says; the text says which field."""


def bad_rows(problems: list[str]) -> ConfigurationError:
    """The error for rows that cannot be used, with each row's place."""
    more = len(problems) - _MAX_PROBLEMS
    lines = problems[:_MAX_PROBLEMS] + ([f"and {more} more"] if more > 0 else [])
    listed = "\n  ".join(lines)
    return ConfigurationError(
        "eval-bad-rows",
        f"{len(problems)} rows of the data set cannot be used:\n  {listed}",
        "Mend the rows, or name another file or revision in [evals] of the manifest.",
    )


def read_source(source: EvalSource, root: Path) -> Iterator[RawRow]:
    """The rows of a source that is not generated, file by file in order of their names.

    Args:
        source: What the manifest names.
        root: The folder that `source.path` is relative to.

    Raises:
        ConfigurationError: the data set cannot be fetched or found, a library is missing, or a file is damaged.
    """
    folder = fetch_from_hub(source.hub, source.revision) if source.hub else root / source.path
    if not source.hub and not folder.resolve().is_relative_to(root.resolve()):
        raise ConfigurationError("eval-outside", f"{source.path} leads out of the repository.")
    files = (
        [folder]
        if folder.is_file()
        else sorted(f for f in folder.rglob("*") if f.suffix in SUFFIXES and f.is_file())
    )
    if not files:
        raise ConfigurationError(
            "eval-no-rows",
            f"There is no {' or '.join(SUFFIXES)} file at {source.hub or source.path}.",
            "[evals] of the manifest names where the rows are; docs/manifest.md says how.",
        )
    num_rows = 0
    for file in files:
        name = file.name if file == folder else file.relative_to(folder).as_posix()
        for row in _read_parquet(file, name) if file.suffix == ".parquet" else _read_lines(file, name):
            num_rows += 1
            yield row
    if not num_rows:
        raise ConfigurationError(
            "eval-no-rows",
            f"The files at {source.hub or source.path} hold no row.",
            "[evals] of the manifest names where the rows are; docs/manifest.md says how.",
        )


def fetch_from_hub(hub: str, revision: str) -> Path:
    """The folder with the data files of a hub data set at a commit, from the cache or over the network.

    Raises:
        ConfigurationError: `huggingface_hub` is missing, or the data set cannot be had.
    """
    library = _library("huggingface_hub")
    patterns = [f"*{suffix}" for suffix in SUFFIXES]
    try:
        return Path(
            library.snapshot_download(hub, repo_type="dataset", revision=revision, allow_patterns=patterns)
        )
    except (OSError, ValueError, library.errors.HfHubHTTPError) as error:
        raise ConfigurationError(
            "eval-hub",
            f"The data set {hub} at {revision[:12]} cannot be had: {type(error).__name__}: {error}",
            "Fetch it once where there is a network, or name a local copy with path in [evals] of the manifest.",
        ) from error


def _library(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        raise ConfigurationError(
            "eval-library",
            f"Reading this data set needs {name}, which is not installed.",
            'Install it with `pip install "fasttrack[eval]"`, or name a .jsonl file with path in [evals].',
        ) from error


def _read_lines(file: Path, name: str) -> Iterator[RawRow]:
    with file.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                values = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise bad_rows([f"{name}, row {number}: not JSON: {error}"]) from error
            if not isinstance(values, dict):
                raise bad_rows([f"{name}, row {number}: got {type(values).__name__}, expected an object"])
            yield RawRow(file=name, number=number, values=values)


def _read_parquet(file: Path, name: str) -> Iterator[RawRow]:
    parquet = _library("pyarrow.parquet")
    try:
        number = 0
        for batch in parquet.ParquetFile(file).iter_batches(batch_size=16):
            for values in batch.to_pylist():
                number += 1
                yield RawRow(file=name, number=number, values=values)
    except (OSError, ValueError) as error:
        raise ConfigurationError(
            "eval-parquet", f"{name} cannot be read: {error}", "Fetch it again."
        ) from error


def text_field(values: Mapping[str, Any], key: str) -> str:
    """A field that must be text and not empty; raises RowError."""
    value = values.get(key)
    if not isinstance(value, str) or not value:
        raise RowError(f"{key}: got {_shown(values, key)}, expected text")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise RowError(f"{key}: holds half a surrogate pair at character {error.start}") from error
    return value


def count_field(values: Mapping[str, Any], key: str) -> int:
    """A field that must be a positive integer; raises RowError."""
    value = values.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise RowError(f"{key}: got {_shown(values, key)}, expected a positive integer")
    return value


def _shown(values: Mapping[str, Any], key: str) -> str:
    return repr(values[key])[:60] if key in values else "nothing"
