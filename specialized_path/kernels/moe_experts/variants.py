"""Variants of the experts' kernels: by rank shape and batch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

from specialized_path.kernels.moe_experts.shape import (
    MAX_TOKENS,
    SHAPES,
    DownTactic,
    ExpertShape,
    GateUpTactic,
)
from specialized_path.kernels.moe_experts.shared_variants import shared_variants
from specialized_path.kernels.variant import KernelVariant

GATE_UP_ROLES = {"0": "activation", "1": "activation", "2": "static", "3": "static", "4": "output"}
# Ids and weights are written by the kernel in front of gate-up, two launches back, and gate-up triggers after its wait.
DOWN_ROLES = {"0": "activation", "1": "settled", "2": "settled", "3": "static", "4": "static", "5": "output"}

# The small cuts leave registers and shared memory to CTAs of the kernel behind, which bring their weights meanwhile.
_GATE_UP = (
    GateUpTactic(k_warps=8, depth=4, max_tokens=2),
    GateUpTactic(k_warps=16, depth=3, max_tokens=MAX_TOKENS),
)
_DOWN = (
    DownTactic(warps=16, depth=3, max_tokens=2, to_l2=True),
    DownTactic(warps=16, depth=3, max_tokens=MAX_TOKENS, to_l2=False),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertsVariant:
    """One of the two kernels, and what it was compiled for."""

    shape: ExpertShape
    tactic: GateUpTactic | DownTactic
    kernel: KernelVariant


def build_gate_up(shape: ExpertShape, tactic: GateUpTactic) -> Any:
    """Compiles the gate-up kernel."""
    import cutlass.cute as cute
    import torch
    from cutlass import Int32

    from specialized_path.kernels.common.host import fake_pointer, fake_stream
    from specialized_path.kernels.moe_experts.gate_up import GateUpKernel

    return cute.compile(
        GateUpKernel(shape=shape, tactic=tactic),
        fake_pointer(),
        fake_pointer(torch.int32),
        fake_pointer(torch.int32),
        fake_pointer(torch.uint8),
        fake_pointer(),
        Int32(1),
        Int32(1),
        Int32(1),
        fake_stream(),
    )


def build_down(shape: ExpertShape, tactic: DownTactic) -> Any:
    """Compiles the down kernel."""
    import cutlass.cute as cute
    import torch
    from cutlass import Int32

    from specialized_path.kernels.common.host import fake_pointer, fake_stream
    from specialized_path.kernels.moe_experts.down import DownKernel

    return cute.compile(
        DownKernel(shape=shape, tactic=tactic),
        fake_pointer(),
        fake_pointer(torch.int32),
        fake_pointer(),
        fake_pointer(torch.int32),
        fake_pointer(torch.uint8),
        fake_pointer(),
        Int32(1),
        Int32(1),
        fake_stream(),
    )


@cache
def gate_up_variants() -> tuple[ExpertsVariant, ...]:
    """Variants of the gate-up kernel."""
    return tuple(gate_up_variant(shape, *cut) for shape in SHAPES for cut in _with_lows(_GATE_UP))


@cache
def down_variants() -> tuple[ExpertsVariant, ...]:
    """Variants of the down kernel."""
    return tuple(down_variant(shape, *cut) for shape in SHAPES for cut in _with_lows(_DOWN))


def _with_lows(tactics: tuple[Any, ...]) -> Iterator[tuple[Any, int]]:
    """Each cut, and the fewest tokens that the one before does not take."""
    return zip(tactics, (1, *(tactic.max_tokens + 1 for tactic in tactics)), strict=False)


def gate_up_variant(shape: ExpertShape, tactic: GateUpTactic, low: int = 1) -> ExpertsVariant:
    """The gate-up kernel with any tactic, for `low` to `tactic.max_tokens` tokens."""
    kernel = KernelVariant(
        name=f"moe gate_up {shape.name} batch={low}-{tactic.max_tokens}",
        operator="OC-16",
        family="moe_experts",
        rank_shape=shape.name.split()[0],
        batches=(low, tactic.max_tokens),
        roles=GATE_UP_ROLES,
        build=partial(build_gate_up, shape, tactic),
    )
    return ExpertsVariant(shape=shape, tactic=tactic, kernel=kernel)


def down_variant(shape: ExpertShape, tactic: DownTactic, low: int = 1) -> ExpertsVariant:
    """The down kernel with any tactic, for `low` to `tactic.max_tokens` tokens."""
    kernel = KernelVariant(
        name=f"moe down {shape.name} batch={low}-{tactic.max_tokens}",
        operator="OC-16, OC-17",
        family="moe_experts",
        rank_shape=shape.name.split()[0],
        batches=(low, tactic.max_tokens),
        roles=DOWN_ROLES,
        build=partial(build_down, shape, tactic),
    )
    return ExpertsVariant(shape=shape, tactic=tactic, kernel=kernel)


def variants() -> tuple[KernelVariant, ...]:
    """All variants of the family."""
    routed = tuple(variant.kernel for variant in gate_up_variants() + down_variants())
    return routed + tuple(variant.kernel for variant in shared_variants())


def find_variant(kind: tuple[ExpertsVariant, ...], held: int, num_tokens: int) -> ExpertsVariant:
    """The variant among those of one kernel, by the rows of gate in memory; raises ValueError where there is none."""
    for variant in kind:
        low, high = variant.kernel.batches
        if variant.shape.held == held and low <= num_tokens <= high:
            return variant
    raise ValueError(
        f"routed experts: got {num_tokens} tokens and intermediate size {held}, expected 1 ... {MAX_TOKENS} "
        f"and one of {[shape.held for shape in SHAPES]}"
    )
