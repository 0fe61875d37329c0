"""Variants of KDA: by heads of a rank, tokens a request, and number of requests."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, partial
from typing import Any

from specialized_path.kernels.kda.schedule import HEADS, MAX_TOKENS, Schedule, schedules
from specialized_path.kernels.variant import KernelVariant

ROLES = {
    "0": "activation",
    "1": "static",
    "2": "static",
    "3": "static",
    "4": "static",
    "5": "static",
    # States and windows of a layer were last written by the same layer one step back; slots and accepted counts are
    # written before the step's first kernel, and at least embedding and projection lie between. All are two or more
    # launches back in a chain that triggers after its own wait, so they are read before the wait; they are written
    # after it.
    "6": "settled",
    "7": "settled",
    "8": "settled",
    "9": "settled",
    "10": "output",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class KdaVariant:
    """A variant, and the schedule that it was compiled for."""

    schedule: Schedule
    kernel: KernelVariant


def _build(schedule: Schedule) -> Any:
    import cutlass.cute as cute
    import torch
    from cutlass import Int32, Int64

    from specialized_path.kernels.common.host import fake_pointer, fake_stream
    from specialized_path.kernels.kda.kernel import KdaDecode

    projected, conv_weight, w_f_b = fake_pointer(), fake_pointer(torch.float32), fake_pointer()
    A_log, dt_bias = fake_pointer(torch.float32), fake_pointer(torch.float32)
    conv_state, state = fake_pointer(alignment=2), fake_pointer(torch.float32)
    slots = accepted = fake_pointer(torch.int32, alignment=4)
    addresses = (
        *(projected, conv_weight, w_f_b, A_log, dt_bias, fake_pointer()),
        *(conv_state, state, slots, accepted, fake_pointer(alignment=2)),
    )
    strides = [Int64(0)] * 8
    return cute.compile(
        KdaDecode(schedule),
        *addresses,
        *strides,
        Int32(1),
        Int64(0),
        Int64(0),
        Int32(1),
        Int32(1),
        fake_stream(),
    )


def _variant(rank_shape: str, batches: tuple[int, int], schedule: Schedule) -> KdaVariant:
    tokens = schedule.tokens
    group = f" requests={schedule.requests}" if schedule.requests > 1 else ""
    kernel = KernelVariant(
        name=f"kda {rank_shape} tokens={tokens} cluster={schedule.cluster}{group}",
        operator="OC-4..6" if tokens == 1 else "OC-7",
        family="kda",
        rank_shape=rank_shape,
        batches=batches,
        roles=ROLES,
        build=partial(_build, schedule),
        # Held to 128 registers, sm_100a and sm_103a keep three words of addresses in local memory; sm_90a none.
        allowed_spill_bytes=16 if (schedule.cluster, schedule.min_blocks) == (1, 2) else 0,
    )
    return KdaVariant(schedule=schedule, kernel=kernel)


@cache
def kda_variants() -> tuple[KdaVariant, ...]:
    """All variants with their schedules."""
    return tuple(
        _variant(rank_shape, batches, schedule)
        for rank_shape in HEADS
        for tokens in range(1, MAX_TOKENS + 1)
        for batches, schedule in schedules(rank_shape, tokens)
    )


def variants() -> tuple[KernelVariant, ...]:
    """All variants of the family."""
    return tuple(variant.kernel for variant in kda_variants())


def find_variant(heads: int, tokens: int, num_reqs: int) -> KdaVariant:
    """The variant for a batch; raises ValueError where there is none."""
    for variant in kda_variants():
        first, last = variant.kernel.batches
        schedule = variant.schedule
        if (schedule.heads, schedule.tokens) == (heads, tokens) and first <= num_reqs <= last:
            return variant
    raise ValueError(f"kda: no kernel for {heads} heads, {tokens} tokens a request, {num_reqs} requests")
