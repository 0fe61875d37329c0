"""`fasttrack kernels`: a change's kernels listed, compiled, tested, timed and tuned; what was seen becomes records."""
