"""The ids that clients give to requests."""

from __future__ import annotations

import re

from harness.engine.arm_spec import ArmSpec


def make_request_id(suite: str, spec: ArmSpec, serial: int) -> str:
    """An id that names the suite and the server asked; it ends in a letter, so that none is another's beginning."""
    return f"{re.sub(r'[^A-Za-z0-9]+', '_', suite)}-{spec.nonce[:8]}-{serial}r"
