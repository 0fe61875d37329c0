"""Pure statistics of the verdicts."""
