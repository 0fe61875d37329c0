"""Reads PTX text into the audit's common form."""

from __future__ import annotations

from harness.audit.ptx.reader import PtxFile, read_ptx

__all__ = ["PtxFile", "read_ptx"]
