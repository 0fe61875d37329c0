"""Variants of the kernels around the routed experts: by rank shape and batch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, Literal

from specialized_path.kernels.moe_latent.geometry import FRONTS, HIDDEN, MAX_TOKENS, FrontShape
from specialized_path.kernels.projection.tactics import Tactic
from specialized_path.kernels.projection.variants import ROLES
from specialized_path.kernels.variant import KernelVariant

Part = Literal["front", "tail"]
SELECTION_ROLES = {"0": "activation", "1": "static", "2": "output", "3": "output", "4": "static"}
NORM_ROLES = {"0": "activation", "1": "static", "2": "output"}

# By tiles of eight tokens. Those of the front are the input projection's for nearly as many rows; those of the tail
# leave room for two CTAs an SM. Not fitted on a GPU.
_FRONT = {
    1: Tactic(n_tiles=1, splits=2, k_warps=4, tiles=3, atoms=2, stages=8),
    2: Tactic(n_tiles=2, splits=2, m_warps=3, k_warps=2, tiles=1, atoms=2, stages=7),
    4: Tactic(n_tiles=4, splits=2, k_warps=4, tiles=3, atoms=1, stages=11),
    8: Tactic(n_tiles=8, n_warps=2, k_warps=2, tiles=3, atoms=2, stages=8),
}
_TAIL = {
    n: Tactic(n_tiles=n, k_warps=4, tiles=2, atoms=2, stages=stages)
    for n, stages in ((1, 10), (2, 8), (4, 6), (8, 4))
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ProductVariant:
    """A product's variant, and what it multiplies."""

    part: Part
    weight_size: tuple[int, int]
    tactic: Tactic
    kernel: KernelVariant


def build_product(part: Part, weight_size: tuple[int, int], tactic: Tactic) -> Any:
    """Compiles a product's kernel."""
    import cutlass
    import cutlass.cute as cute

    from specialized_path.kernels.common.host import fake_pointer, fake_stream
    from specialized_path.kernels.moe_latent.products import FrontKernel
    from specialized_path.kernels.projection.kernel import ProjectionKernel

    rows, columns = weight_size
    kind = FrontKernel if part == "front" else ProjectionKernel
    addresses = [fake_pointer() for _ in range(3)]
    kernel = kind(num_outputs=rows, num_inputs=columns, tactic=tactic)
    return cute.compile(kernel, *addresses, cutlass.Int32(1), cutlass.Int32(1), fake_stream())


def build_selection() -> Any:
    """Compiles the choice of experts."""
    import cutlass
    import cutlass.cute as cute
    import torch

    from specialized_path.kernels.common.host import fake_pointer, fake_stream
    from specialized_path.kernels.moe_latent.selection import SelectionKernel

    types = (torch.float32, torch.float32, torch.int32, torch.bfloat16, torch.bfloat16)
    numbers = [cutlass.Int32(1)] * 4
    return cute.compile(SelectionKernel(), *map(fake_pointer, types), *numbers, fake_stream())


def build_norm() -> Any:
    """Compiles the latent's norm."""
    import cutlass
    import cutlass.cute as cute

    from specialized_path.kernels.common.host import fake_pointer, fake_stream
    from specialized_path.kernels.moe_latent.norm import LatentNormKernel

    addresses = [fake_pointer() for _ in range(3)]
    stride, one = cutlass.Int64(1), cutlass.Int32(1)
    return cute.compile(LatentNormKernel(), *addresses, stride, one, one, fake_stream())


@cache
def front_variants() -> tuple[ProductVariant, ...]:
    """Variants of the product in front of the experts."""
    return tuple(_front(shape, tactic) for shape in FRONTS for tactic in _FRONT.values())


@cache
def tail_variants() -> tuple[ProductVariant, ...]:
    """Variants of the product behind them."""
    return tuple(_tail(shape, tactic) for shape in FRONTS for tactic in _TAIL.values())


def _front(shape: FrontShape, tactic: Tactic) -> ProductVariant:
    return _product("front", (shape.num_outputs, HIDDEN), shape.name, "OC-14, OC-15, OC-18", tactic)


def _tail(shape: FrontShape, tactic: Tactic) -> ProductVariant:
    return _product("tail", (HIDDEN, shape.tail_inputs), shape.name, "OC-18, OC-19", tactic)


def _product(
    part: Part,
    weight_size: tuple[int, int],
    rank_shape: str,
    operator: str,
    tactic: Tactic,
) -> ProductVariant:
    low = 1 if tactic.n_tiles == 1 else tactic.columns // 2 + 1
    kernel = KernelVariant(
        name=f"moe {part} {rank_shape} batch={low}-{tactic.columns}",
        operator=operator,
        family="moe_latent",
        rank_shape=rank_shape,
        batches=(low, tactic.columns),
        roles=ROLES,
        build=partial(build_product, part, weight_size, tactic),
    )
    return ProductVariant(part=part, weight_size=weight_size, tactic=tactic, kernel=kernel)


@cache
def selection_variant() -> KernelVariant:
    """The choice of experts."""
    return _of_rows("moe selection", "OC-14", SELECTION_ROLES, build_selection)


@cache
def norm_variant() -> KernelVariant:
    """The latent's norm."""
    return _of_rows("moe norm", "OC-17", NORM_ROLES, build_norm)


def _of_rows(name: str, operator: str, roles: Mapping[str, str], build: Any) -> KernelVariant:
    return KernelVariant(
        name=name,
        operator=operator,
        family="moe_latent",
        rank_shape="any",
        batches=(1, MAX_TOKENS),
        roles=roles,
        build=build,
    )


def variants() -> tuple[KernelVariant, ...]:
    """All variants of the family."""
    products = tuple(variant.kernel for variant in front_variants() + tail_variants())
    return (*products, selection_variant(), norm_variant())


def find_product(
    kind: tuple[ProductVariant, ...], weight_size: tuple[int, ...], num_tokens: int
) -> ProductVariant:
    """The variant for a weight's rows and columns and a batch; raises ValueError where there is none."""
    for variant in kind:
        low, high = variant.kernel.batches
        if variant.weight_size == weight_size and low <= num_tokens <= high:
            return variant
    known = sorted({variant.weight_size for variant in kind})
    raise ValueError(
        f"moe {kind[0].part}: got {num_tokens} tokens and a weight of {weight_size}, expected 1 ... {MAX_TOKENS} "
        f"and one of {known}"
    )
