"""Use cases: what each command does. The only part of the harness that knows suites, sweeps, bundles and reports."""

from harness.app.bundles import gate, report, verify
from harness.app.machine import doctor, plan
from harness.app.validate import validate

__all__ = ["doctor", "gate", "plan", "report", "validate", "verify"]
