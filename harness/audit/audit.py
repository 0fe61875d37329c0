"""Audits kernels: the one entry of the core, for every reader of texts."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence

from harness.audit.analysis import Analysis
from harness.audit.decide import AuditResult
from harness.audit.model import Model
from harness.audit.program import Kernel
from harness.audit.roles import AuditOptions, KernelOptions
from harness.audit.rules import RULES, Rule
from harness.audit.rules.base import decide_all

_MIN_RECURSION = 5_000
"""Expressions and formatted texts nest as deep as the kernel's arithmetic."""


def audit_kernel(
    kernel: Kernel, options: KernelOptions | None = None, rules: Sequence[Rule] = RULES
) -> list[AuditResult]:
    """The results of all rules on one kernel."""
    sys.setrecursionlimit(max(sys.getrecursionlimit(), _MIN_RECURSION))
    return decide_all(rules, Analysis(Model(kernel, options or KernelOptions())))


def audit_kernels(
    kernels: Iterable[Kernel], options: AuditOptions | None = None, rules: Sequence[Rule] = RULES
) -> list[AuditResult]:
    """The results of all rules on all kernels."""
    given = options or AuditOptions()
    return [r for k in kernels for r in audit_kernel(k, given.for_kernel(k.name), rules)]
