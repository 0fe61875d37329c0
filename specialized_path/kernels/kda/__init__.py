"""Kimi Delta Attention for decode and verify steps, one kernel (OC-4 to OC-7)."""
