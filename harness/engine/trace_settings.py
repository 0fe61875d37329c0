"""What the tracer of a worker is told: written by the harness as JSON, read in every process of the engine."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

SETTINGS_ENV = "FASTTRACK_TRACE"
"""Environment variable that names the settings file; without it the tracer does nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionTarget:
    """A function whose result says which path a step takes, and how to read it (see `DecisionPoint`)."""

    target: str
    value: str
    specialized: str
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceSettings:
    """Everything that a worker's tracer needs to know. Standard library only: engines load it at start."""

    nonce: str
    ledger_dir: Path
    import_path: Path
    """The folder that the subject's import roots are imported from, and from nowhere else."""
    import_roots: tuple[str, ...]
    watched_prefixes: tuple[str, ...] = ()
    """Module prefixes outside the import roots whose imports are recorded, too."""
    decisions: tuple[DecisionTarget, ...] = ()
    code_targets: tuple[str, ...] = ()
    """Functions whose calls are counted, `module:function` or `module:Class.method`."""
    coverage_globs: tuple[str, ...] = ()
    """Files below `import_path` whose lines are recorded; none switches coverage off."""
    routers: tuple[str, ...] = ()
    """Functions whose results say which experts tokens go to; what is not found is counted nowhere."""

    @property
    def targets(self) -> tuple[str, ...]:
        """Every function to wrap, decision points first."""
        return tuple(dict.fromkeys([*(d.target for d in self.decisions), *self.code_targets]))


def write_settings(settings: TraceSettings, path: Path) -> None:
    """Writes the settings as JSON; `read_settings` gives them back."""
    path.write_text(json.dumps(asdict(settings), default=str, indent=1), encoding="utf-8")


def read_settings(path: Path) -> TraceSettings:
    """The settings in a file; raises OSError, ValueError, KeyError or TypeError when they are not usable."""
    raw: Mapping[str, object] = json.loads(path.read_text(encoding="utf-8"))
    return TraceSettings(
        nonce=str(raw["nonce"]),
        ledger_dir=Path(str(raw["ledger_dir"])),
        import_path=Path(str(raw["import_path"])),
        import_roots=_strings(raw["import_roots"]),
        watched_prefixes=_strings(raw["watched_prefixes"]),
        decisions=tuple(DecisionTarget(**d) for d in _items(raw["decisions"]) if isinstance(d, dict)),
        code_targets=_strings(raw["code_targets"]),
        coverage_globs=_strings(raw["coverage_globs"]),
        routers=_strings(raw["routers"]),
    )


def covered_files(import_path: Path, globs: Iterable[str]) -> tuple[Path, ...]:
    """The Python files below `import_path` that the globs name, sorted; `**` crosses folders."""
    found: set[Path] = set()
    for glob in globs:
        pattern = f"{glob}/*" if glob.endswith("**") else glob
        found.update(p for p in import_path.glob(pattern) if p.suffix == ".py" and p.is_file())
    return tuple(sorted(found))


def is_below(module: str, prefixes: Iterable[str]) -> bool:
    """Whether a dotted module name is one of the prefixes or lies below one."""
    return any(module == p or module.startswith(p + ".") for p in prefixes)


def _items(value: object) -> list[object]:
    if not isinstance(value, list):
        raise TypeError(f"expected a list, got {type(value).__name__}")
    return value


def _strings(value: object) -> tuple[str, ...]:
    return tuple(str(v) for v in _items(value))
