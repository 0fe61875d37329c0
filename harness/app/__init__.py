"""Use cases: what each command does. The only part of the harness that knows suites, sweeps, bundles and reports."""

from harness.app.attest import keygen, pack_bundle, sign, waive
from harness.app.bundles import diff, merge, report, show, verify
from harness.app.gate import gate
from harness.app.machine import doctor, plan
from harness.app.validate import validate

__all__ = [
    "diff",
    "doctor",
    "gate",
    "keygen",
    "merge",
    "pack_bundle",
    "plan",
    "report",
    "show",
    "sign",
    "validate",
    "verify",
    "waive",
]
