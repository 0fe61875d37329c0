"""Runs what needs the subject's code, in a process of its own: `python -m harness.kernels.worker ACTION ...`.

Each result is a line of JSON in `--out`, written as soon as it is there: the fields of a record that the parent makes.
Imports the standard library and its neighbours that do the same, so that any interpreter that has the DSL runs it.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from collections.abc import Callable, Iterable, Mapping
from fnmatch import fnmatchcase
from operator import attrgetter
from pathlib import Path
from typing import Any

from harness.kernels.sources import imported_sources
from harness.kernels.timing import (
    Calls,
    Captured,
    Facts,
    capture,
    gpu_gap,
    measure_copies,
    measure_machine,
    time_interleaved,
)

Emit = Callable[[dict[str, Any]], None]
_CANDIDATE = "candidate"


class RefusedError(Exception):
    """The action cannot begin, for a reason that the user can do something about."""

    def __init__(self, message: str, *, is_usage: bool = True) -> None:
        super().__init__(message)
        self.is_usage = is_usage
        """Whether the command or the manifest is wrong; otherwise the machine lacks something."""


def main() -> None:
    """Parses the command line of the parent and does one action."""
    parser = argparse.ArgumentParser()
    parser.add_argument("action", choices=list(_ACTIONS))
    parser.add_argument("--root", action="append", default=[])
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--function", required=True)
    parser.add_argument("--launches", default="")
    parser.add_argument("--match", default="*")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    sys.path[:0] = arguments.root
    with arguments.out.open("a", encoding="utf-8") as file:

        def emit(line: dict[str, Any]) -> None:
            file.write(json.dumps(line, allow_nan=False) + "\n")
            file.flush()

        try:
            _ACTIONS[arguments.action](arguments, emit)
        except RefusedError as error:
            emit({"refused": str(error), "is_usage": error.is_usage})
        except ModuleNotFoundError as error:
            lacks = f"{sys.executable} has no module {error.name!r}, which the manifest's code imports"
            emit({"refused": f"--python: {lacks}. Name an interpreter that has it.", "is_usage": True})


def resolve(function: str) -> Callable[[], Any]:
    """The function that `module:function` names.

    Raises:
        RefusedError: there is no such module or function; what the module itself raises is left as it is.
    """
    module, _, name = function.partition(":")
    try:
        imported = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if not f"{module}.".startswith(f"{error.name}."):
            raise
        raise RefusedError(f"{function}: there is no module {error.name!r}") from error
    try:
        found: Callable[[], Any] = attrgetter(name)(imported)
    except AttributeError as error:
        raise RefusedError(f"{function}: {error}") from error
    if not callable(found):
        raise RefusedError(f"{function}: got {type(found).__name__}, expected a function")
    return found


def matching(named: Iterable[Any], match: str, noun: str) -> list[Any]:
    """Those whose names match the glob; raises RefusedError where none does."""
    found = [one for one in named if fnmatchcase(one.name, match)]
    if not found:
        raise RefusedError(f"--match: no {noun} matches {match!r}")
    return found


def list_variants(arguments: argparse.Namespace, emit: Emit) -> None:
    """Gives every variant of the inventory; a counter of launches must be there where one is named."""
    if arguments.launches:
        resolve(arguments.launches)
    for variant in resolve(arguments.function)():
        emit({"variant": variant_facts(variant)})


def variant_facts(variant: Any) -> Facts:
    """A `VariantRecord` of a variant of the subject's inventory."""
    names = ("name", "operator", "family", "rank_shape", "launch", "dependents", "allowed_spill_bytes")
    facts = {name: getattr(variant, name) for name in names}
    return {**facts, "batches": list(variant.batches), "roles": dict(variant.roles)}


def bench(arguments: argparse.Namespace, emit: Emit) -> None:
    """Times every cell that matches."""
    launches = resolve(arguments.launches) if arguments.launches else dict
    cells = matching(resolve(arguments.function)(), arguments.match, "benchmark cell")
    _require_gpu()
    before = measure_machine()
    emit({"machine": before, "copies": measure_copies()})
    for cell in cells:
        emit({"cell": time_cell(cell, launches, arguments.rounds)})
    emit({"machine": measure_machine(before), "sources": imported_sources(arguments.folder)})


def _require_gpu() -> None:
    gap = gpu_gap()
    if gap:
        raise RefusedError(f"Timing needs a CUDA GPU: {gap}.", is_usage=False)


def time_cell(cell: Any, launches: Callable[[], Mapping[str, int]], rounds: int) -> Facts:
    """A `CellRecord` of one cell, timed; what does not run is listed with its reason, never left out."""
    names = ("name", "family", "operator", "rank_shape", "batch", "bytes_moved")
    facts = {name: getattr(cell, name) for name in names}
    try:
        prepared = cell.prepare()
    # What the subject raises says something about the subject.
    except Exception as error:
        failed = {_CANDIDATE: _reason(error)}
        return {**facts, "candidate": None, "baselines": {}, "missing": failed, "launched": {}}
    missing = dict(prepared.missing)
    graphs: dict[str, Captured] = {}
    before = dict(launches())
    _capture_into(graphs, missing, _CANDIDATE, prepared.candidate)
    launched = {k: n - before.get(k, 0) for k, n in launches().items() if n > before.get(k, 0)}
    for name, calls in prepared.baselines.items():
        _capture_into(graphs, missing, name, calls)
    times = time_interleaved(graphs, rounds)
    candidate = times.pop(_CANDIDATE, None)
    timed = {"candidate": candidate, "baselines": times}
    return {**facts, **timed, "missing": missing, "launched": launched}


def _capture_into(graphs: dict[str, Captured], missing: dict[str, str], name: str, calls: Calls) -> None:
    try:
        graphs[name] = capture(calls)
    except Exception as error:
        missing[name] = _reason(error)


def tune(arguments: argparse.Namespace, emit: Emit) -> None:
    """Times every choice of every task that matches, and lets the subject save the fastest."""
    tuner = resolve(arguments.function)()
    tasks = matching(tuner.tasks(), arguments.match, "tuning task")
    _require_gpu()
    before = measure_machine()
    emit({"machine": before})
    chosen: dict[str, str] = {}
    for task in tasks:
        choice = time_task(task, arguments.rounds)
        emit({"choice": choice})
        if choice["chosen"] is not None:
            chosen[task.name] = choice["chosen"]
    machine = measure_machine(before)
    emit({"machine": machine, "sources": imported_sources(arguments.folder)})
    if chosen:
        emit({"saved": str(tuner.save(chosen, machine["gpu"]))})


def time_task(task: Any, rounds: int) -> Facts:
    """A `TuningChoice` of one task; what does not run is listed with its reason, never left out."""
    graphs: dict[str, Captured] = {}
    failures: dict[str, str] = {}
    choices: Mapping[str, Callable[[], Calls]] = {}
    try:
        choices = task.prepare()
    except Exception as error:
        failures["prepare()"] = _reason(error)
    for name, calls in choices.items():
        try:
            graphs[name] = capture(calls())
        except Exception as error:
            failures[name] = _reason(error)
    times = time_interleaved(graphs, rounds)
    fastest_first = dict(sorted(times.items(), key=_median))
    chosen = next(iter(fastest_first), None)
    return {"task": task.name, "chosen": chosen, "timings": fastest_first, "failures": failures}


def _median(item: tuple[str, Facts]) -> float:
    return float(item[1]["median_us"])


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).strip().splitlines()[-1] if str(error).strip() else ''}"[
        :300
    ]


_ACTIONS: Mapping[str, Callable[[argparse.Namespace, Emit], None]] = {
    "list": list_variants,
    "bench": bench,
    "tune": tune,
}


if __name__ == "__main__":
    main()
