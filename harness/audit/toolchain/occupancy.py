"""How many CTAs of a kernel fit on one SM, from the limits that NVIDIA publishes per compute capability.

Source of the limits: CUDA C++ Programming Guide, "Compute Capabilities", table of technical specifications,
columns 9.0, 10.0 and 10.3. The three share them.
"""

from __future__ import annotations

from dataclasses import dataclass

_KIB = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class SmLimits:
    """The limits of one streaming multiprocessor."""

    registers: int = 64 * _KIB
    registers_per_thread: int = 255
    register_unit: int = 256
    """Registers are given to a warp in multiples of this."""
    threads: int = 2048
    ctas: int = 32
    shared_bytes: int = 228 * _KIB
    shared_bytes_per_cta: int = 227 * _KIB
    reserved_shared_bytes: int = _KIB
    """What the system takes of shared memory for each resident CTA."""
    shared_unit: int = 128
    warp: int = 32
    partitions: int = 4
    """Register files of an SM; a warp's registers come from one of them."""


LIMITS = {90: SmLimits(), 100: SmLimits(), 103: SmLimits()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Occupancy:
    """CTAs and warps resident on one SM, and the resource that stops the next CTA."""

    ctas: int
    warps: int
    share: float
    """Resident warps over the SM's warps, 0 to 1."""
    limited_by: str


def occupancy(
    *, compute_capability: int, registers: int, threads: int, shared_bytes: int
) -> Occupancy | None:
    """Occupancy of CTAs of `threads` threads with `registers` registers a thread and `shared_bytes` in all
    (static and dynamic); None for a compute capability whose limits are not held here.
    """
    limits = LIMITS.get(compute_capability)
    if limits is None or threads <= 0:
        return None
    warps = -(-threads // limits.warp)
    unit = limits.register_unit
    per_warp = -(-max(registers, 1) * limits.warp // unit) * unit
    warps_by_registers = limits.registers // limits.partitions // per_warp * limits.partitions
    shared = -(-(shared_bytes + limits.reserved_shared_bytes) // limits.shared_unit) * limits.shared_unit
    fits = shared_bytes <= limits.shared_bytes_per_cta
    bounds = {
        "registers": warps_by_registers // warps,
        "threads": limits.threads // (warps * limits.warp),
        "ctas": limits.ctas,
        "shared memory": limits.shared_bytes // shared if fits else 0,
    }
    limited_by = min(bounds, key=lambda name: bounds[name])
    ctas = bounds[limited_by]
    total = limits.threads // limits.warp
    return Occupancy(ctas=ctas, warps=ctas * warps, share=ctas * warps / total, limited_by=limited_by)
