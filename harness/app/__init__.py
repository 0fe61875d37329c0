"""Use cases: what each command does. The only part of the harness that knows suites, sweeps, bundles and reports."""
