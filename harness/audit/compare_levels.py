"""Reads that a compiler moved above the wait: right at one level, wrong at the next, with both places."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from harness.audit.cfg import Graph
from harness.audit.decide import AuditResult, Decision, Site, site_of
from harness.audit.model import Model, Touch
from harness.audit.program import Instruction, Kernel, Kind
from harness.audit.roles import KernelOptions

MOVABLE = ("PDL001", "PDL004")
"""Rules about the order of an access and the wait."""
HOISTED = "compiler-hoisted"


def explain_hoisted(
    ptx: Kernel,
    ptx_results: Sequence[AuditResult],
    sass_results: Sequence[AuditResult],
    options: KernelOptions | None = None,
) -> list[AuditResult]:
    """The SASS results, those that the PTX has in order marked as compiler-hoisted, with the PTX's place."""
    model = Model(ptx, options or KernelOptions())
    return [_explain(model, ptx_results, result) for result in sass_results]


def _explain(model: Model, ptx_results: Sequence[AuditResult], result: AuditResult) -> AuditResult:
    if result.rule not in MOVABLE or result.decision is not Decision.SHOWN:
        return result
    same = [r for r in ptx_results if r.rule == result.rule]
    is_right = any(r.decision is Decision.PROVEN for r in same) or (
        bool(same)
        and all(r.decision is Decision.SHOWN for r in same)
        and not any(set(r.arguments) & set(result.arguments) for r in same)
    )
    if not is_right:
        return result
    touch = _counterpart(model, result)
    site = () if touch is None else (site_of(touch.instruction, "in the PTX: after the wait"),)
    wait = next((i for i in model.kernel.instructions if i.kind is Kind.WAIT), None)
    waits = () if wait is None else (site_of(wait, "in the PTX: the wait"),)
    reason = f"{HOISTED}: {result.reason} The PTX has it in order"
    reason += f" (line {touch.instruction.line})." if touch is not None else "."
    return replace(result, reason=reason, sites=(*result.sites, *waits, *site))


def _counterpart(model: Model, result: AuditResult) -> Touch | None:
    """The PTX access of the same argument: of the same source line where both are known, otherwise the first."""
    touches = model.reads if result.rule == "PDL001" else model.writes
    same = [t for t in touches if set(t.arguments) & set(result.arguments)]
    places = {s.source.outermost for s in result.sites if s.source is not None}
    exact = [t for t in same if t.instruction.source is not None and t.instruction.source.outermost in places]
    return next(iter(exact or same), None)


def explain_from_source(kernel: Kernel, results: Sequence[AuditResult]) -> list[AuditResult]:
    """The results of one text, those marked as compiler-hoisted that the line information has after the wait.

    Only when the wait runs after the access in the text, outside a common loop: then the two have changed places.
    """
    graph = Graph(kernel)
    waits = [i for i in kernel.instructions if i.kind is Kind.WAIT and i.source is not None]
    return [_explain_source(graph, waits, result) for result in results]


def _explain_source(graph: Graph, waits: list[Instruction], result: AuditResult) -> AuditResult:
    if result.rule not in MOVABLE or result.decision is not Decision.SHOWN:
        return result
    place = next((s for s in result.sites if s.note.startswith(("reads", "writes", "prefetches"))), None)
    access = None if place is None else _instruction_at(graph.kernel, place)
    if access is None or access.source is None:
        return result
    swapped = (w for w in waits if _is_later_line(access, w) and _runs_later(graph, access, w))
    wait = next(swapped, None)
    if wait is None or wait.source is None:
        return result
    file, line = access.source.outermost
    reason = (
        f"{HOISTED}: {result.reason} The source has it in line {line} of {file}, after the wait in line "
        f"{wait.source.outermost[1]}."
    )
    sites = (
        *result.sites,
        site_of(access, "this access, by its source line after the wait"),
        site_of(wait, "the wait"),
    )
    return replace(result, reason=reason, sites=sites)


def _instruction_at(kernel: Kernel, site: Site) -> Instruction | None:
    return next((i for i in kernel.instructions if i.line == site.line and i.text == site.text), None)


def _is_later_line(access: Instruction, wait: Instruction) -> bool:
    if access.source is None or wait.source is None:
        return False
    ours, theirs = access.source.outermost, wait.source.outermost
    return ours[0] == theirs[0] and ours[1] > theirs[1]


def _runs_later(graph: Graph, access: Instruction, wait: Instruction) -> bool:
    ours, theirs = graph.block_of[access.index], graph.block_of[wait.index]
    if any({ours, theirs} <= loop.blocks for loop in graph.loops):
        return False
    return access.index < wait.index if ours == theirs else theirs in graph.reachable_from(ours)
