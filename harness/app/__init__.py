"""Use cases: what each command does. The only part of the harness that knows suites, sweeps, bundles and reports."""

from harness.app.attest import keygen, pack_bundle, sign, sign_as_job, waive
from harness.app.bundles import diff, merge, report, show, verify
from harness.app.gate import gate
from harness.app.machine import doctor, plan
from harness.app.publishing import publish
from harness.app.reproduce import reproduce
from harness.app.selftest.run import selftest
from harness.app.submit import submit
from harness.app.validate import validate

__all__ = [
    "diff",
    "doctor",
    "gate",
    "keygen",
    "merge",
    "pack_bundle",
    "plan",
    "publish",
    "report",
    "reproduce",
    "selftest",
    "show",
    "sign",
    "sign_as_job",
    "submit",
    "validate",
    "verify",
    "waive",
]
