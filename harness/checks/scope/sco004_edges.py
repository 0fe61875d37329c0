"""SCO004: every step goes where the declared scope says, at every edge of it, with a reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from harness.checks.joins.expected_path import Way, WentWrong, expected_way, find_wrong_way
from harness.checks.joins.probes import find_probe
from harness.checks.joins.ruling import Ruling, finding_of
from harness.checks.scope.edges import Edge, edges_of
from harness.model.check import BaseCheck, CheckContext
from harness.model.evidence import ProbeEvidence
from harness.model.finding import Finding
from harness.model.ledger import LedgerRow, Path, path_of
from harness.model.manifest import Manifest
from harness.model.probe import LORA
from harness.model.words import Arm, Outcome, Principle, Tier


class ScopeEdges(BaseCheck):
    """Selection, step by step, judged from what each step computes."""

    id = "SCO004"
    title = "Every step goes where the declared scope says, at each of its edges, and says why"
    principle = Principle.SCOPE
    tier = Tier.CPU
    how = (
        "Tells from each step's requests alone where the manifest sends it, and compares with the path that ran: "
        "all steps of the ledger, and scripted runs at every limit, one beyond, and every interruption."
    )

    def run(self, context: CheckContext) -> Sequence[Finding]:
        """Findings for the reasons, for the steps of the served suites, and for each edge."""
        findings = []
        ledger = context.evidence.ledger(Arm.CANDIDATE, self.tier)
        if ledger is not None:
            ruling = decide_ways(ledger.rows, context.manifest)
            findings.append(finding_of(self, "served steps", ruling, [ledger.id]))
        probe = find_probe(context, self.tier)
        if isinstance(probe, Ruling):
            return [*findings, finding_of(self, "edges", probe)]
        rows = [step.row for step in probe.steps]
        findings.append(finding_of(self, "scripted steps", decide_ways(rows, context.manifest), [probe.id]))
        tensor_parallel = context.manifest.scope.tensor_parallel
        findings.append(
            finding_of(self, "deployments", decide_deployments(probe, tensor_parallel), [probe.id])
        )
        ruling = decide_adapters(probe, context.manifest)
        findings.append(finding_of(self, "adapters", ruling, [probe.id]))
        findings += [
            finding_of(self, edge.name, decide_edge(edge, probe, context.manifest), [probe.id])
            for edge in edges_of(context.manifest.scope)
        ]
        return findings


def decide_ways(rows: Sequence[LedgerRow], manifest: Manifest) -> Ruling:
    """Whether every step carries a decision with a reason and went where the manifest sends it."""
    steps = [row for row in rows if row.num_reqs]
    unknown = [row for row in steps if expected_way(row, manifest.scope) is None]
    undecided = [row for row in steps if not row.decisions]
    silent = [row for row in steps if any(not d.reason for d in row.decisions)]
    wrong = [w for w in (find_wrong_way(row, manifest) for row in steps) if w is not None]
    if wrong or undecided:
        outcome = Outcome.FAIL
    elif not steps or unknown or silent:
        outcome = Outcome.INCONCLUSIVE
    else:
        outcome = Outcome.PASS
    text = f"{len(steps) - len(wrong)} of {len(steps)} steps went where the manifest sends them"
    if undecided:
        text += f"; {len(undecided)} were computed without a decision"
    if silent:
        text += f"; {len(silent)} decisions give no reason"
    if unknown:
        text += f"; of {len(unknown)} the ledger does not say what they start from"
    return Ruling(
        outcome=outcome,
        message=f"{text}.",
        advice=_advice(wrong, silent),
        details=(*map(str, wrong), *_reasons(steps))
        if outcome is not Outcome.PASS
        else tuple(_reasons(steps)),
    )


def _advice(wrong: Sequence[WentWrong], silent: Sequence[LedgerRow]) -> str:
    if wrong:
        return "Make the dispatcher hold the limits under [scope], or declare what it serves."
    return "Name the attribute that holds the reason under [dispatch] decisions." if silent else ""


def _reasons(rows: Sequence[LedgerRow]) -> Iterator[str]:
    counts = Counter(d.reason or "no reason" for row in rows for d in row.decisions)
    yield from (f"{count} steps: {reason}" for reason, count in counts.most_common())


def decide_deployments(probe: ProbeEvidence, tensor_parallel: Sequence[int] = (1,)) -> Ruling:
    """No deployment that the scope declares was refused.

    The scripted runs have one rank: what more ranks decide together is not known from them.
    """
    refused = [r for r in probe.refusals if r.within_scope]
    names = ", ".join(e.name for e in probe.engines)
    if refused:
        return Ruling(
            outcome=Outcome.FAIL,
            message=f"{len(refused)} deployments within the declared scope were refused at start.",
            advice="Serve what the scope declares, or declare less.",
            details=tuple(f"{r.engine}: {r.message}" for r in refused),
        )
    if probe.engines and (others := sorted(set(tensor_parallel) - {1})):
        return Ruling(
            outcome=Outcome.INCONCLUSIVE,
            message=f"The engines that were started ({names}) have one rank; the scope also declares tensor parallel "
            f"{', '.join(map(str, others))}, and nothing shows whether all ranks decide alike.",
            advice="Start the path on as many ranks as the scope declares, or declare one.",
        )
    return Ruling(
        outcome=Outcome.PASS if probe.engines else Outcome.INCONCLUSIVE,
        message=f"The engines of the declared scope started: {names}." if names else "No engine was started.",
    )


def decide_adapters(probe: ProbeEvidence, manifest: Manifest) -> Ruling:
    """Whether an engine that is started for LoRA adapters is refused, or left to the baseline.

    A path that serves there is no fault by itself, but no adapter was tried.
    """
    refused = [r.message for r in probe.refusals if r.engine == LORA and not r.scenario]
    if refused:
        clear = any("lora" in message.lower() for message in refused)
        text = "A deployment for LoRA adapters is refused before it serves"
        return Ruling(
            outcome=Outcome.PASS if clear else Outcome.INCONCLUSIVE,
            message=f"{text}."
            if clear
            else f"{text}, but the message does not name LoRA: it may be for another reason.",
            details=tuple(refused),
        )
    paths = Counter(path_of(s.row, manifest.dispatch.targets) for s in probe.steps if s.engine == LORA)
    if paths and set(paths) == {Path.BASELINE}:
        return Ruling(outcome=Outcome.PASS, message="A deployment for LoRA adapters is left to the baseline.")
    text = (
        "serves steps of a deployment for LoRA adapters, and no adapter was tried"
        if paths
        else "was not tried on one"
    )
    return Ruling(
        outcome=Outcome.INCONCLUSIVE,
        message=f"The specialised path {text}.",
        advice="Refuse deployments with enable_lora until adapters are shown to work.",
    )


def decide_edge(edge: Edge, probe: ProbeEvidence, manifest: Manifest) -> Ruling:
    """Whether an edge occurred, and every step at it went where the manifest sends it."""
    steps = edge.steps(probe)
    refusals = edge.refusals(probe)
    wrong = [w for w in (find_wrong_way(s.row, manifest) for s in steps) if w is not None]
    if wrong:
        return Ruling(
            outcome=Outcome.FAIL,
            message=f"{edge.claim}: {len(wrong)} of {len(steps)} steps did not go where the manifest sends them.",
            advice="Make the dispatcher hold the limits under [scope], or declare what it serves.",
            details=tuple(map(str, wrong)),
        )
    if steps:
        ways = Counter(str(expected_way(s.row, manifest.scope) or Way.EITHER) for s in steps)
        text = ", ".join(f"{count} {way}" for way, count in ways.most_common())
        return Ruling(outcome=Outcome.PASS, message=f"{edge.claim}: {len(steps)} steps, {text}, as declared.")
    if refusals:
        return Ruling(
            outcome=Outcome.PASS,
            message=f"{edge.claim}: refused, so that no such step is computed.",
            details=tuple(r.message for r in refusals),
        )
    if edge.cannot_occur(probe):
        text = f"{edge.claim}: no engine of the scripted runs can be brought there."
        return Ruling(outcome=Outcome.NOT_APPLICABLE, message=text)
    return Ruling(
        outcome=Outcome.INCONCLUSIVE,
        message=f"{edge.claim}: it never occurred, so nothing shows where such a step goes.",
        advice="The scripted runs must reach this edge on the candidate.",
    )
