"""Every check: those of this repository and those that other distributions add."""

from __future__ import annotations

import re
from collections.abc import Iterable
from importlib.metadata import EntryPoint, entry_points

from harness.checks.correctness.cor001_token_level import TokenLevel
from harness.checks.correctness.cor002_greedy_agreement import GreedyAgreement
from harness.checks.correctness.cor003_specialized_share import SpecializedShare
from harness.checks.correctness.cor004_unexecuted_lines import UnexecutedLines
from harness.checks.correctness.cor005_ledger_alive import LedgerAlive
from harness.checks.correctness.cor006_hand_over import HandOver
from harness.checks.correctness.cor007_long_context_retrieval import LongContextRetrieval
from harness.checks.correctness.cor008_reasoning import Reasoning
from harness.checks.correctness.cor009_negative_control import NegativeControl
from harness.checks.correctness.cor010_comparable_answers import ComparableAnswers
from harness.checks.correctness.cor011_own_tests import OwnTests
from harness.checks.correctness.cor012_hand_over_on_a_gpu import HandOverOnAGpu
from harness.checks.correctness.cor013_kernel_tests import KernelTests
from harness.checks.correctness.kernel_rules import kernel_rule_checks
from harness.checks.correctness.pdl005_wait_clobbers_memory import WaitClobbersMemory
from harness.checks.isolation.iso001_changed_paths import ChangedPaths
from harness.checks.isolation.iso002_default_off import DefaultOff
from harness.checks.isolation.iso003_guarded_hooks import GuardedHooks
from harness.checks.isolation.iso004_imports import Imports
from harness.checks.isolation.iso005_reaching_out import ReachingOut
from harness.checks.isolation.iso006_surface import Surface
from harness.checks.isolation.iso007_base_and_head import BaseAndHead
from harness.checks.isolation.iso008_declared_writes import DeclaredWrites
from harness.checks.isolation.iso009_captured_pointers import CapturedPointers
from harness.checks.isolation.iso010_base_and_head_on_a_gpu import BaseAndHeadOnAGpu
from harness.checks.isolation.iso011_pages_on_a_gpu import PagesOnAGpu
from harness.checks.isolation.iso012_rows_on_a_gpu import RowsOnAGpu
from harness.checks.performance.perf001_decode_itl import DecodeItl
from harness.checks.performance.perf002_decode_speedup import DecodeSpeedup
from harness.checks.performance.perf003_sweep import SweptScope
from harness.checks.scope.sco001_temperature_sampling import TemperatureSampling
from harness.checks.scope.sco002_structured_output import StructuredOutput
from harness.checks.scope.sco003_full_context import FullContext
from harness.checks.scope.sco004_edges import ScopeEdges
from harness.checks.scope.sco005_served_features import ServedFeatures
from harness.checks.scope.sco006_edges_on_a_gpu import ScopeEdgesOnAGpu
from harness.model.check import Check
from harness.model.errors import ConfigurationError
from harness.model.words import Principle, Tier

GROUP = "fasttrack.checks"
"""Entry points that name a class of a check, made without arguments."""
BUILT_IN: tuple[type[Check], ...] = (
    ChangedPaths,
    DefaultOff,
    GuardedHooks,
    Imports,
    BaseAndHead,
    DeclaredWrites,
    CapturedPointers,
    BaseAndHeadOnAGpu,
    PagesOnAGpu,
    RowsOnAGpu,
    ReachingOut,
    Surface,
    TemperatureSampling,
    StructuredOutput,
    FullContext,
    ScopeEdges,
    ServedFeatures,
    ScopeEdgesOnAGpu,
    TokenLevel,
    GreedyAgreement,
    SpecializedShare,
    UnexecutedLines,
    LedgerAlive,
    HandOver,
    HandOverOnAGpu,
    KernelTests,
    LongContextRetrieval,
    Reasoning,
    NegativeControl,
    ComparableAnswers,
    OwnTests,
    WaitClobbersMemory,
    DecodeItl,
    DecodeSpeedup,
    SweptScope,
)
_ID = re.compile(r"[A-Z]{3,}[0-9]{3}")
_ADVICE = "Remove or repair the distribution that adds it."


def all_checks() -> tuple[Check, ...]:
    """One instance of every check; the audit's rules make one each.

    Raises:
        ConfigurationError: an entry point cannot be loaded, or is not a check.
    """
    return (*(kind() for kind in BUILT_IN), *kernel_rule_checks(), *load_checks(entry_points(group=GROUP)))


def load_checks(points: Iterable[EntryPoint]) -> tuple[Check, ...]:
    """The checks that entry points name, in the order of their names."""
    return tuple(_load(point) for point in sorted(points, key=lambda p: (p.name, p.value)))


def _load(point: EntryPoint) -> Check:
    where = f"The check {point.name} ({point.value})"
    try:
        check = point.load()()
    except (
        ImportError,
        AttributeError,
        SyntaxError,
        TypeError,
        ValueError,
        LookupError,
        RuntimeError,
        OSError,
    ) as e:
        raise ConfigurationError(
            "broken-check", f"{where} cannot be loaded: {type(e).__name__}: {e}.", _ADVICE
        ) from e
    for problem in _problems(check):
        raise ConfigurationError("broken-check", f"{where} is not a check: {problem}.", _ADVICE)
    found: Check = check
    return found


def _problems(check: object) -> Iterable[str]:
    if not _ID.fullmatch(str(getattr(check, "id", ""))):
        yield "its id is not like ISO001"
    for name in ("title", "how"):
        if not getattr(check, name, None):
            yield f"it has no {name}"
    if not isinstance(getattr(check, "principle", None), Principle):
        yield "its principle is not a Principle"
    if not isinstance(getattr(check, "tier", None), Tier):
        yield "its tier is not a Tier"
    if not isinstance(getattr(check, "requires", None), tuple):
        yield "its requires is not a tuple of ids"
    if not callable(getattr(check, "run", None)):
        yield "it has no run"
