"""What differs between architectures, and the names of special registers.

Offsets and forms were read off kernels compiled for each architecture by ptxas 13.0 and 13.5.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """One architecture's layout of constant bank 0, in bytes."""

    parameter_base: int
    parameter_window: int
    """Where the generic address of the parameter space lies."""
    window_skips: int
    """The parameter offset that this address points at."""
    specials: dict[int, str]
    """Launch dimensions, by their place."""


_HOPPER = Machine(
    parameter_base=0x210,
    parameter_window=0x198,
    window_skips=0x10,
    specials={
        0x0: "ntid.x",
        0x4: "ntid.y",
        0x8: "ntid.z",
        0xC: "nctaid.x",
        0x10: "nctaid.y",
        0x14: "nctaid.z",
    },
)
_BLACKWELL = Machine(
    parameter_base=0x380,
    parameter_window=0x348,
    window_skips=0x0,
    specials={
        0x360: "ntid.x",
        0x364: "ntid.y",
        0x368: "ntid.z",
        0x370: "nctaid.x",
        0x374: "nctaid.y",
        0x378: "nctaid.z",
    },
)
_MACHINES = {90: _HOPPER, 100: _BLACKWELL, 103: _BLACKWELL}

_SPECIALS = {
    "SR_TID.X": "tid.x",
    "SR_TID.Y": "tid.y",
    "SR_TID.Z": "tid.z",
    "SR_CTAID.X": "ctaid.x",
    "SR_CTAID.Y": "ctaid.y",
    "SR_CTAID.Z": "ctaid.z",
    "SR_LANEID": "laneid",
    "SR_CgaCtaId": "cluster_ctarank",
    "SR_VIRTUALSMID": "smid",
    "SR_EQMASK": "lanemask_eq",
    "SR_LEMASK": "lanemask_le",
    "SR_LTMASK": "lanemask_lt",
    "SR_GEMASK": "lanemask_ge",
    "SR_GTMASK": "lanemask_gt",
    "SR_CLOCKLO": "clock",
    "SR_CLOCKHI": "clock_hi",
    "SR_GLOBALTIMERLO": "globaltimer_lo",
    "SR_GLOBALTIMERHI": "globaltimer_hi",
}


def compute_capability(arch: str) -> int:
    """90 for `sm_90a`; 0 when the name has no number."""
    match = re.match(r"sm_(\d+)", arch)
    return int(match.group(1)) if match else 0


def machine_of(arch: str) -> Machine | None:
    """The layout of an architecture; None for one that was not looked at."""
    return _MACHINES.get(compute_capability(arch))


def special_of(name: str) -> str:
    """The PTX name of a special register; its own name in lower case where PTX has none."""
    return _SPECIALS.get(name, name.removeprefix("SR_").lower())
