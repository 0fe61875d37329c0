"""Variants of the exchange: by ranks, by shots, and by what the kernel around each step is."""

from __future__ import annotations

from functools import cache, partial
from typing import Any

from specialized_path.kernels.attn_res.variants import HIDDEN, MAX_BATCH, Update
from specialized_path.kernels.projection.tactics import Tactic
from specialized_path.kernels.projection.variants import find_variant, shape_variants
from specialized_path.kernels.variant import KernelVariant

RANKS = {"tp8": 8, "tp16": 16}
PUBLISH_ROLES = {"0": "activation", "2": "static", "3": "static", "*3": "mailbox:sys:rearmed"}
"""Parameters 0 and 2 are the descriptors of activations and weights, 3 the table of the boxes."""
CONSUME_ROLES = {
    "0": "activation",
    "1": "mailbox:sys:rearmed",
    "2": "settled",
    "3": "static",
    "4": "static",
    "5": "static",
    "6": "output",
    "7": "output",
    "8": "scratch",
}
REDUCE_ROLES = {"0": "mailbox:sys:rearmed", "1": "static", "*1": "mailbox:sys:rearmed", "2": "scratch"}


def _build_publish(
    num_outputs: int, num_inputs: int, tactic: Tactic, num_ranks: int, is_two_shot: bool
) -> Any:
    import cutlass.cute as cute
    from cutlass import Int32

    from specialized_path.kernels.common.host import fake_pointer, fake_stream
    from specialized_path.kernels.exchange.kernel import PublishKernel

    kernel = PublishKernel(
        num_outputs=num_outputs,
        num_inputs=num_inputs,
        tactic=tactic,
        num_ranks=num_ranks,
        is_two_shot=is_two_shot,
    )
    addresses = [fake_pointer() for _ in range(3)]
    return cute.compile(kernel, *addresses, Int32(1), Int32(1), fake_stream())


def _build_consume(num_ranks: int, max_rows: int, num_blocks: int, update: Update, is_two_shot: bool) -> Any:
    import cutlass.cute as cute
    from cutlass import Int32, Int64

    from specialized_path.kernels.common.host import fake_pointer, fake_stream
    from specialized_path.kernels.exchange.kernel import ConsumeKernel

    kernel = ConsumeKernel(
        num_blocks=num_blocks, update=update, num_ranks=num_ranks, max_rows=max_rows, is_two_shot=is_two_shot
    )
    addresses = [fake_pointer() for _ in range(9)]
    return cute.compile(kernel, *addresses, *[Int64(0)] * 3, *[Int32(1)] * 4, fake_stream())


def _build_reduce(num_ranks: int, max_rows: int) -> Any:
    import cutlass.cute as cute
    from cutlass import Int32

    from specialized_path.kernels.common.host import fake_pointer, fake_stream
    from specialized_path.kernels.exchange.kernel import ReduceKernel

    kernel = ReduceKernel(num_ranks=num_ranks, max_rows=max_rows)
    addresses = [fake_pointer() for _ in range(3)]
    return cute.compile(kernel, *addresses, *[Int32(1)] * 3, fake_stream())


@cache
def publish_variant(num_inputs: int, batch: int, num_ranks: int, is_two_shot: bool) -> KernelVariant:
    """The output projection from `num_inputs` columns, cut as fitted for memory, that publishes among the ranks.

    Raises ValueError where there is no such projection.
    """
    projection = find_variant(HIDDEN, num_inputs, batch)
    shape, (low, high) = projection.shape, projection.kernel.batches
    shots = "two-shot" if is_two_shot else "one-shot"
    return KernelVariant(
        name=f"exchange publish {shots} ranks={num_ranks} {shape.name} batch={low}-{high}",
        operator="OC-12",
        family="exchange",
        rank_shape=shape.rank_shape,
        batches=(low, high),
        roles=PUBLISH_ROLES,
        build=partial(
            _build_publish, shape.num_outputs, shape.num_inputs, projection.tactic, num_ranks, is_two_shot
        ),
    )


@cache
def consume_variant(
    num_ranks: int, num_blocks: int, update: Update, is_two_shot: bool, max_rows: int = MAX_BATCH
) -> KernelVariant:
    """The attention residual behind an exchange among this many ranks."""
    shots = "two-shot" if is_two_shot else "one-shot"
    return KernelVariant(
        name=f"exchange consume {shots} ranks={num_ranks} rows={max_rows} {update} blocks={num_blocks}",
        operator="OC-12, OC-13",
        family="exchange",
        rank_shape=f"tp{num_ranks}",
        batches=(1, max_rows),
        roles=CONSUME_ROLES,
        allowed_spill_bytes=8,
        build=partial(_build_consume, num_ranks, max_rows, num_blocks, update, is_two_shot),
    )


@cache
def reduce_variant(num_ranks: int, max_rows: int = MAX_BATCH) -> KernelVariant:
    """The owner's sum of a two-shot exchange among this many ranks."""
    return KernelVariant(
        name=f"exchange reduce ranks={num_ranks} rows={max_rows}",
        operator="OC-12",
        family="exchange",
        rank_shape=f"tp{num_ranks}",
        batches=(1, max_rows),
        roles=REDUCE_ROLES,
        build=partial(_build_reduce, num_ranks, max_rows),
    )


def variants() -> tuple[KernelVariant, ...]:
    """All variants of the two deployments."""
    updates: tuple[Update, ...] = ("add", "replace")
    return tuple(
        variant
        for rank_shape, ranks in RANKS.items()
        for variant in (
            *(
                publish_variant(projection.shape.num_inputs, projection.kernel.batches[1], ranks, is_two_shot)
                for is_two_shot in (False, True)
                for projection in shape_variants(f"{rank_shape} o_proj")
            ),
            reduce_variant(ranks),
            *(
                consume_variant(ranks, blocks, update, is_two_shot)
                for is_two_shot in (False, True)
                for update in updates
                for blocks in range(1, 9)
            ),
        )
    )
