"""Variants of the attention residuals: by number of finished blocks, and by what becomes of the prefix."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from specialized_path.kernels.variant import KernelVariant

Update = Literal["keep", "add", "replace"]
"""What becomes of the prefix: itself, itself plus delta, or delta."""

HIDDEN = 7168
"""Columns of a row: the model's hidden size."""
MAX_BATCH = 64
ROLES = {
    # The prefix and the blocks come from attention residuals of earlier boundaries; between two of them lie at least
    # two launches, each of which triggers after its own wait. The prefix is read after the wait all the same.
    "0": "activation",
    "1": "activation",
    "2": "settled",
    "3": "static",
    "4": "static",
    "5": "static",
    "6": "output",
    "7": "output",
    "8": "output",
    "9": "output",
}
_ADDRESSES = 10


def _build(num_blocks: int, update: Update, rounds_mixture: bool) -> Any:
    import cutlass
    import cutlass.cute as cute

    from specialized_path.kernels.attn_res.kernel import AttnResKernel
    from specialized_path.kernels.common.host import fake_pointer, fake_stream

    kernel = AttnResKernel(num_blocks=num_blocks, update=update, rounds_mixture=rounds_mixture)
    addresses = [fake_pointer() for _ in range(_ADDRESSES)]
    strides = [cutlass.Int64(0)] * 4
    return cute.compile(kernel, *addresses, *strides, cutlass.Int32(1), cutlass.Int32(1), fake_stream())


@dataclass(frozen=True, slots=True, kw_only=True)
class AttnResVariant:
    """A variant, and the boundary that it is for."""

    num_blocks: int
    update: Update
    rounds_mixture: bool
    kernel: KernelVariant


def _variant(operator: str, num_blocks: int, update: Update, rounds_mixture: bool = False) -> AttnResVariant:
    kernel = KernelVariant(
        name=f"attn_res {'final' if rounds_mixture else update} blocks={num_blocks}",
        operator=operator,
        family="attn_res",
        rank_shape="any",
        batches=(1, MAX_BATCH),
        roles=ROLES,
        build=partial(_build, num_blocks, update, rounds_mixture),
    )
    return AttnResVariant(num_blocks=num_blocks, update=update, rounds_mixture=rounds_mixture, kernel=kernel)


_VARIANTS = (
    *(_variant("OC-2, OC-13", n, "add") for n in range(1, 9)),
    *(_variant("OC-13", n, "replace") for n in range(1, 9)),
    _variant("OC-2", 0, "keep"),
    _variant("OC-21", 8, "add", rounds_mixture=True),
)


def variants() -> tuple[KernelVariant, ...]:
    """All variants of the family."""
    return tuple(variant.kernel for variant in _VARIANTS)


def find_variant(num_blocks: int, update: Update, rounds_mixture: bool = False) -> AttnResVariant:
    """The variant for a boundary; raises ValueError where there is none."""
    wanted = (num_blocks, update, rounds_mixture)
    for variant in _VARIANTS:
        if (variant.num_blocks, variant.update, variant.rounds_mixture) == wanted:
            return variant
    raise ValueError(f"attention residuals: no kernel for {num_blocks} blocks, prefix {update}")
