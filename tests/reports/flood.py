"""Judgements that try to flood a page: many findings, long texts, many lines."""

from __future__ import annotations

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
