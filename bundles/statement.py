"""What a signature on a bundle says: two in-toto statements, both a function of the bundle alone.

One has in-toto's own test-result predicate, which general tools read; the other says what that one has no words for:
outcomes that are neither passed nor failed, measurements with their intervals, policy and trust. Sources: in-toto
attestation framework, spec/v1/statement.md and spec/predicates/test-result.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from bundles.contents import Bundle
from bundles.layout import SHA256SUMS
from harness.model.evidence import (
    AnyEvidence,
    EnvironmentEvidence,
    KernelAuditEvidence,
    SubjectEvidence,
)
from harness.model.judgement import CheckSummary
from harness.model.record import digest_of, render_canonical_json
from harness.model.words import Outcome, TrustLevel, Verdict

STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
TEST_RESULT = "https://in-toto.io/attestation/test-result/v0.1"
JUDGEMENT = "urn:fasttrack:judgement:v1"
"""Described in docs/bundles.md."""

Json = dict[str, Any]


def build_statements(bundle: Bundle, sums_sha256: str, trust: TrustLevel) -> tuple[bytes, ...]:
    """The two statements, as the canonical JSON that is signed.

    Args:
        bundle: The finished bundle.
        sums_sha256: sha256 of its `sha256sums.txt`, which covers every other file.
        trust: What the signer claims to be; the reader decides by the key what it is worth.
    """
    subjects = list_subjects(bundle, sums_sha256)
    return tuple(
        render_canonical_json(
            {"_type": STATEMENT_TYPE, "subject": subjects, "predicateType": kind, "predicate": predicate}
        )
        for kind, predicate in (
            (TEST_RESULT, _test_result(bundle)),
            (JUDGEMENT, _judgement(bundle, trust)),
        )
    )


def list_subjects(bundle: Bundle, sums_sha256: str) -> list[Json]:
    """What the statements are about: the bundle, the commits, and the code that was run."""
    found = {
        SHA256SUMS: {"sha256": sums_sha256},
        "head": {"gitCommit": bundle.change.head},
        "merge-base": {"gitCommit": bundle.change.merge_base},
    }
    for record in bundle.records:
        found.update(_subjects_of(record))
    return [{"name": name, "digest": digest} for name, digest in sorted(found.items())]


def _subjects_of(record: AnyEvidence) -> Iterator[tuple[str, dict[str, str]]]:
    if isinstance(record, SubjectEvidence):
        yield "subject-sources", {"sha256": digest_of(record.files)}
    elif isinstance(record, EnvironmentEvidence):
        yield "harness-sources", {"sha256": record.harness_sha256}
        if record.engine_sha256:
            yield "engine-files", {"sha256": record.engine_sha256}
    elif isinstance(record, KernelAuditEvidence):
        for kernel in record.kernels:
            yield f"kernel/{kernel.level}/{kernel.text_sha256[:16]}", {"sha256": kernel.text_sha256}


def _test_result(bundle: Bundle) -> Json:
    """Undecided is no pass, and the predicate has no third word for it: it is FAILED."""
    checks = bundle.judgement.checks
    passed = [c.check for c in checks if c.outcome is Outcome.PASS]
    failed = [c.check for c in checks if c.required and not c.outcome.lets_through]
    warned = [c.check for c in checks if not c.required and not c.outcome.lets_through]
    return {
        "result": "PASSED" if bundle.judgement.verdict is Verdict.ADMIT else "FAILED",
        "configuration": [
            {"name": "policy", "digest": {"sha256": bundle.judgement.policy_sha256}},
            {"name": "manifest", "digest": {"sha256": bundle.judgement.manifest_sha256}},
        ],
        "passedTests": passed,
        "warnedTests": warned,
        "failedTests": failed,
    }


def _judgement(bundle: Bundle, trust: TrustLevel) -> Json:
    judgement = bundle.judgement
    times = sorted(record.recorded_at for record in bundle.records)
    return {
        "trust": str(trust),
        "verdict": str(judgement.verdict),
        "reason": judgement.reason,
        "policy": {"version": judgement.policy_version, "sha256": judgement.policy_sha256},
        "manifest": {"sha256": judgement.manifest_sha256},
        "harness": judgement.harness_version,
        "recorded": {"first": times[0], "last": times[-1]} if times else None,
        "hardware": sorted({record.hardware for record in bundle.records if record.hardware}),
        "outcomes": [_outcome(summary) for summary in judgement.checks],
        "measurements": [
            {"check": finding.check, "subject": finding.subject, **measurement.model_dump(mode="json")}
            for finding in judgement.findings
            for measurement in finding.measurements
        ],
    }


def _outcome(summary: CheckSummary) -> Json:
    return {
        "check": summary.check,
        "tier": str(summary.tier),
        "required": summary.required,
        "outcome": str(summary.outcome),
    }
