"""Variants of the two kernels of a gated MLP in BF16, the shared experts and the dense one: by rank shape and batch."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, partial
from typing import Any, Literal

from specialized_path.kernels.projection.tactics import Tactic
from specialized_path.kernels.projection.variants import ROLES, build
from specialized_path.kernels.variant import KernelVariant

HIDDEN = 7168
INTERMEDIATE = {"tp8": 768, "tp16": 384}
"""Rows of gate and of up of the shared experts on one rank."""
DENSE = {"tp8": 4224, "tp16": 2112}
"""Those of the first layer's dense MLP."""
Part = Literal["gate_up", "down"]

# By tiles of eight tokens. Not fitted on a GPU; those of the down-projection are like the output projection's.
_GATE_UP = {
    "tp8": {
        n: Tactic(n_tiles=n, k_warps=4, tiles=1, atoms=4, stages=9 if n < 4 else 5) for n in (1, 2, 4, 8)
    },
    "tp16": {
        n: Tactic(n_tiles=n, splits=2, k_warps=4, tiles=1, atoms=2, stages=14 if n < 4 else 9)
        for n in (1, 2, 4, 8)
    },
}
_DOWN = {
    "tp8": {
        n: Tactic(n_tiles=n, k_warps=4, tiles=2, atoms=3, stages=4 if n < 8 else 3) for n in (1, 2, 4, 8)
    },
    "tp16": {n: Tactic(n_tiles=n, k_warps=4, tiles=2, atoms=2, stages=3) for n in (1, 2, 4, 8)},
}
# A CTA an SM for gate and up, two for down. Not fitted either.
_DENSE_GATE_UP = {
    "tp8": {
        1: Tactic(n_tiles=1, k_warps=4, tiles=4, atoms=2, stages=12),
        2: Tactic(n_tiles=2, k_warps=4, tiles=4, atoms=2, stages=10),
        4: Tactic(n_tiles=4, k_warps=4, tiles=4, atoms=2, stages=9),
        8: Tactic(n_tiles=8, n_warps=2, k_warps=2, tiles=4, atoms=2, stages=6),
    },
    "tp16": {
        n: Tactic(n_tiles=n, k_warps=4, tiles=2, atoms=2, stages=stages)
        for n, stages in ((1, 20), (2, 18), (4, 13), (8, 9))
    },
}
_DENSE_DOWN = {
    n: Tactic(n_tiles=n, k_warps=4, tiles=2, atoms=3, stages=stages)
    for n, stages in ((1, 6), (2, 5), (4, 4), (8, 3))
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedVariant:
    """A variant, and what it multiplies."""

    part: Part
    intermediate: int
    tactic: Tactic
    kernel: KernelVariant

    @property
    def weight_size(self) -> tuple[int, int]:
        """Rows and columns of the weight."""
        return (2 * self.intermediate, HIDDEN) if self.part == "gate_up" else (HIDDEN, self.intermediate)


def build_gate_up(intermediate: int, tactic: Tactic) -> Any:
    """Compiles the gate-up kernel for a rank's intermediate size."""
    import cutlass
    import cutlass.cute as cute

    from specialized_path.kernels.common.host import fake_pointer, fake_stream
    from specialized_path.kernels.moe_experts.shared_kernel import SharedGateUpKernel

    kernel = SharedGateUpKernel(num_outputs=2 * intermediate, num_inputs=HIDDEN, tactic=tactic)
    addresses = [fake_pointer() for _ in range(3)]
    return cute.compile(kernel, *addresses, cutlass.Int32(1), cutlass.Int32(1), fake_stream())


@cache
def shared_variants() -> tuple[SharedVariant, ...]:
    """All variants of both kernels, of the shared experts and of the dense MLP."""
    shared = [
        _variant("shared", "OC-18", part, rank, size, tactic)
        for rank, size in INTERMEDIATE.items()
        for part, table in _parts(_GATE_UP[rank], _DOWN[rank])
        for tactic in table.values()
    ]
    dense = [
        _variant("dense", "OC-20", part, rank, size, tactic)
        for rank, size in DENSE.items()
        for part, table in _parts(_DENSE_GATE_UP[rank], _DENSE_DOWN)
        for tactic in table.values()
    ]
    return (*shared, *dense)


def _parts(gate_up: dict[int, Tactic], down: dict[int, Tactic]) -> tuple[tuple[Part, dict[int, Tactic]], ...]:
    return ("gate_up", gate_up), ("down", down)


def _variant(
    mlp: str, operator: str, part: Part, rank_shape: str, intermediate: int, tactic: Tactic
) -> SharedVariant:
    high = tactic.columns
    low = 1 if tactic.n_tiles == 1 else high // 2 + 1
    kernel = KernelVariant(
        name=f"moe {mlp}_{part} {rank_shape} batch={low}-{high}",
        operator=operator,
        family="moe_experts",
        rank_shape=rank_shape,
        batches=(low, high),
        roles=ROLES,
        build=partial(build_gate_up, intermediate, tactic)
        if part == "gate_up"
        else partial(build, HIDDEN, intermediate, tactic),
    )
    return SharedVariant(part=part, intermediate=intermediate, tactic=tactic, kernel=kernel)


def find_shared_variant(part: Part, intermediate: int, num_tokens: int) -> SharedVariant:
    """The variant for a batch; raises ValueError where there is none."""
    for variant in shared_variants():
        low, high = variant.kernel.batches
        if (variant.part, variant.intermediate) == (part, intermediate) and low <= num_tokens <= high:
            return variant
    raise ValueError(
        f"shared experts: got {num_tokens} tokens and intermediate size {intermediate}, expected 1 ... 64 "
        f"and one of {[*INTERMEDIATE.values(), *DENSE.values()]}"
    )
