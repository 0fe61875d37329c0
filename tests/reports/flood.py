"""Judgements that try to flood a page: many findings, long texts, many lines, many checks."""

from __future__ import annotations

import itertools
from dataclasses import replace

from bundles.contents import Bundle
from harness.model.finding import Finding
from harness.model.words import Outcome


def flooded(bundle: Bundle, num_findings: int, *, text: str, num_details: int = 0) -> Bundle:
    """The bundle with the first check failing `num_findings` times, each with the text and lines of it."""
    first = bundle.judgement.checks[0]
    evidence = tuple(record.id for record in bundle.records[:3])
    findings = tuple(
        Finding(
            check=first.check, principle=first.principle, tier=first.tier, subject=f"place {i}",
            outcome=Outcome.FAIL, message=text, advice=text, evidence=evidence, details=(text,) * num_details,
        )
        for i in range(num_findings)
    )  # fmt: skip
    summary = first.model_copy(update={"outcome": Outcome.FAIL, "num_findings": num_findings})
    judgement = bundle.judgement.model_copy(
        update={"checks": (summary, *bundle.judgement.checks[1:]), "findings": findings}
    )
    return replace(bundle, judgement=judgement)


def grown(bundle: Bundle, num_checks: int) -> Bundle:
    """The bundle with its checks and their findings again, under further ids, until there are so many checks."""
    checks, findings = list(bundle.judgement.checks), list(bundle.judgement.findings)
    further = itertools.cycle(bundle.judgement.checks)
    while len(checks) < num_checks:
        check = next(further)
        again = {"check": f"{check.check[:3]}{len(checks):04d}"}
        checks.append(check.model_copy(update=again))
        findings += [f.model_copy(update=again) for f in bundle.judgement.findings if f.check == check.check]
    judgement = bundle.judgement.model_copy(update={"checks": tuple(checks), "findings": tuple(findings)})
    return replace(bundle, judgement=judgement)
