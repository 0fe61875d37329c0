"""Sums over all threads of a cluster, exchanged through the shared memory of its CTAs; the same bits in each thread."""

from __future__ import annotations

from typing import Any

import cutlass.cute as cute
from cutlass import Float32, Int32
from cutlass.cute.arch import inline_ptx

from specialized_path.kernels.common import device

_LANES = 32


class ClusterSums:
    """Where a thread stands in a cluster of `num_ctas` CTAs of `num_warps` warps, at most 32 warps in all.

    Every exchange has shared memory of its own, so that none needs a barrier against the one before. The first needs
    all CTAs of the cluster to run: the caller puts a cluster barrier before it.
    """

    def __init__(self, cta: Any, thread: Any, num_ctas: int, num_warps: int) -> None:
        self.num_ctas, self.num_warps = num_ctas, num_warps
        self.lane = thread % _LANES
        self.slot = cta * num_warps + thread // _LANES

    def sums(self, values: list[Any]) -> Any:
        """Sum i of n (a power of two) in lanes `32 i / n ... 32 (i + 1) / n - 1` of every warp of the cluster."""
        count = len(values)
        lanes = _LANES // count
        shared = cute.arch.alloc_smem(Float32, count * _LANES, alignment=16).toint()
        mine = device.warp_sums(values, self.lane)
        place = shared + ((self.lane // lanes) * _LANES + self.slot) * 4
        for first in range(0, self.num_ctas, lanes):
            peer = first + self.lane % lanes
            address = device.peer_address(place, peer)
            inline_ptx(
                "st.shared::cluster.f32 [{$r0}], {$r1};",
                read_only_args=[address, mine],
                # A predicate that always holds is folded into a form that ptxas refuses.
                predicate=peer < self.num_ctas if first + lanes > self.num_ctas else None,
            )
        device.cluster_barrier()
        is_used = self.lane < self.num_ctas * self.num_warps
        partials = [device.load_shared_f32(shared + (i * _LANES + self.lane) * 4) for i in range(count)]
        return device.warp_sums([device.select(is_used, p, 0.0) for p in partials], self.lane)

    def sum(self, value: Any) -> Any:
        """One sum, in every lane."""
        return self.sums([value])

    def broadcast(self, sums: Any, index: int, count: int) -> Any:
        """Sum `index` of what `sums` gave for `count` values, in every lane."""
        return cute.arch.shuffle_sync(sums, Int32(index * _LANES // count))
