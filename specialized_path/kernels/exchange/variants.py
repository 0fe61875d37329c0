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
PUBLISH_ROWS_ROLES = {"0": "activation", "1": "activation", "2": "static", "*2": "mailbox:sys:rearmed"}
TAKE_ROWS_ROLES = {"0": "mailbox:sys:rearmed", "1": "scratch", "2": "output", "3": "output"}


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


def _build_publish_rows(num_ranks: int, to_owners: bool) -> Any:
    import cutlass.cute as cute
    import torch
    from cutlass import Int32

    from specialized_path.kernels.common.host import fake_pointer, fake_stream
    from specialized_path.kernels.exchange.rows import PublishRowsKernel

    kernel = PublishRowsKernel(num_ranks=num_ranks, to_owners=to_owners)
    addresses = [fake_pointer(t) for t in (torch.float32, torch.bfloat16, torch.int64)]
    return cute.compile(kernel, *addresses, *[Int32(1)] * 4, fake_stream())


def _build_take_rows(num_ranks: int, max_rows: int, adds: bool) -> Any:
    import cutlass.cute as cute
    import torch
    from cutlass import Int32, Int64

    from specialized_path.kernels.common.host import fake_pointer, fake_stream
    from specialized_path.kernels.exchange.rows import TakeRowsKernel

    kernel = TakeRowsKernel(num_ranks=num_ranks, max_rows=max_rows, adds=adds)
    types = (torch.bfloat16, torch.int32, torch.float32, torch.bfloat16)
    addresses = [fake_pointer(t) for t in types]
    numbers = [*[Int32(1)] * 2, *[Int64(0)] * 4, *[Int32(1)] * 3]
    return cute.compile(kernel, *addresses, *numbers, fake_stream())


def publish_variant(num_inputs: int, batch: int, num_ranks: int, is_two_shot: bool) -> KernelVariant:
    """The output projection from `num_inputs` columns, cut as fitted for memory, that publishes among the ranks.

    Batches of one cut have one variant. Raises ValueError where there is no such projection.
    """
    largest = find_variant(HIDDEN, num_inputs, batch).kernel.batches[1]
    return _publish_variant(num_inputs, largest, num_ranks, is_two_shot)


@cache
def _publish_variant(num_inputs: int, batch: int, num_ranks: int, is_two_shot: bool) -> KernelVariant:
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


@cache
def publish_rows_variant(num_ranks: int, to_owners: bool) -> KernelVariant:
    """Rows of one rank into all boxes, or each rank's part of them into its own."""
    return KernelVariant(
        name=f"exchange rows publish to={'owners' if to_owners else 'all'} ranks={num_ranks}",
        operator="OC-11, OC-14, OC-15, OC-17, OC-19",
        family="exchange",
        rank_shape=f"tp{num_ranks}",
        batches=(1, MAX_BATCH),
        roles=PUBLISH_ROWS_ROLES,
        build=partial(_build_publish_rows, num_ranks, to_owners),
    )


@cache
def take_rows_variant(num_ranks: int, adds: bool, max_rows: int = MAX_BATCH) -> KernelVariant:
    """All ranks' rows out of a box, one after the other or added."""
    return KernelVariant(
        name=f"exchange rows {'sum' if adds else 'gather'} ranks={num_ranks} rows={max_rows}",
        operator="OC-17, OC-19" if adds else "OC-11, OC-14, OC-15, OC-19",
        family="exchange",
        rank_shape=f"tp{num_ranks}",
        batches=(1, max_rows),
        roles=TAKE_ROWS_ROLES,
        build=partial(_build_take_rows, num_ranks, max_rows, adds),
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
            *(publish_rows_variant(ranks, to_owners) for to_owners in (False, True)),
            *(take_rows_variant(ranks, adds) for adds in (False, True)),
            *(
                consume_variant(ranks, blocks, update, is_two_shot)
                for is_two_shot in (False, True)
                for update in updates
                for blocks in range(1, 9)
            ),
        )
    )
