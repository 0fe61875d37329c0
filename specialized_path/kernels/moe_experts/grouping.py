"""Which expert serves which rows: every CTA sorts the step's pairs of token and slot into passes, in shared memory.

A pass is an expert and up to eight of its pairs, in their order: what one matrix instruction serves. Passes are the
same in every CTA, though shared memory counts the pairs in any order. Pairs that one warp holds, of one or two tokens,
are a pass each: they rarely share an expert, and need no sorting.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass import Int32, Int64, Uint32

from specialized_path.kernels.moe_experts import ops
from specialized_path.kernels.moe_experts.shape import COLUMNS, ExpertShape, max_pairs

_WARP = 32
_EXPERT_BITS, _COUNT_BITS = 10, 3
_PAIRS_MASK, _PASSES_SHIFT, _PASSES_MASK, _CROWDED_SHIFT = 0x7FF, 11, 0x7FF, 22
"""Numbers of pairs, of passes, and of experts with more than one pass travel in one word."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    """A pass, as a warp sees it."""

    expert: Any
    count: Any
    """Pairs, 1 to 8."""
    pairs: Any
    """Shared address of the first pair's number; those of the others follow."""


class Grouping:
    """The passes of a step, in `shared_bytes` of shared memory from `base` on."""

    def __init__(self, shape: ExpertShape, threads: int, base: Any) -> None:
        self.shape, self.threads = shape, threads
        self.groups = -(-shape.num_experts // _WARP)
        self.counts = base
        self.totals = base + 4 * _WARP * self.groups
        self.passes = self.totals + 4 * _WARP
        self.pairs = self.passes + 4 * max_pairs(shape)

    @staticmethod
    def shared_bytes(shape: ExpertShape) -> int:
        """Shared memory that a grouping takes."""
        return 4 * (_WARP * -(-shape.num_experts // _WARP) + _WARP + 2 * max_pairs(shape))

    def clear(self, thread: Any) -> None:
        """Empties the counts; a barrier must follow."""
        _clear(self, thread)

    def build(self, thread: Any, topk_ids: Any, num_tokens: Any) -> Any:
        """Sorts the pairs; all threads of the CTA call it, after `clear` and a barrier. Gives the number of passes.

        Pairs whose id is no expert's are in no pass.
        """
        return _build(self, thread, topk_ids, num_tokens)

    def __getitem__(self, index: Any) -> Pass:
        word = ops.load_shared_word(self.passes + index * 4)
        return Pass(
            expert=word & ((1 << _EXPERT_BITS) - 1),
            count=((word >> _EXPERT_BITS) & (COLUMNS - 1)) + 1,
            pairs=self.pairs + (word >> _EXPERT_BITS + _COUNT_BITS) * 4,
        )


@cute.jit
def _clear(grouping: cutlass.Constexpr, thread: Int32) -> None:
    item = thread
    while item < _WARP * grouping.groups:
        ops.store_shared_word(grouping.counts + item * 4, Int32(0))
        item += grouping.threads


@cute.jit
def _build(grouping: cutlass.Constexpr, thread: Int32, topk_ids: Int64, num_tokens: Int32) -> Int32:
    """Lists the passes; gives their number."""
    num_passes = Int32(0)
    if num_tokens * grouping.shape.top_k <= _WARP:
        num_passes = _build_of_warp(grouping, thread, topk_ids, num_tokens)
    else:
        num_passes = _build_sorted(grouping, thread, topk_ids, num_tokens)
    return num_passes


@cute.jit
def _build_of_warp(grouping: cutlass.Constexpr, thread: Int32, topk_ids: Int64, num_tokens: Int32) -> Int32:
    """A pass for each pair, in their order; every warp counts them, the first one lists them."""
    lane = thread % _WARP
    expert = Int32(-1)
    if lane < num_tokens * grouping.shape.top_k:
        expert = ops.load_word(topk_ids + Int64(lane) * 4)
    is_there = Uint32(expert) < Uint32(grouping.shape.num_experts)
    listed = cute.arch.vote_ballot_sync(is_there)
    place = cute.arch.popc(listed & ((Int32(1) << lane) - 1))
    if is_there and thread < _WARP:
        ops.store_shared_word(grouping.pairs + place * 4, lane)
        word = expert | (place << _EXPERT_BITS + _COUNT_BITS)
        ops.store_shared_word(grouping.passes + place * 4, word)
    cute.arch.sync_threads()
    return cute.arch.popc(listed)


@cute.jit
def _build_sorted(grouping: cutlass.Constexpr, thread: Int32, topk_ids: Int64, num_tokens: Int32) -> Int32:
    """Counts the pairs of each expert, lists passes by prefix sums, and scatters the pairs."""
    shape = grouping.shape
    num_pairs = num_tokens * shape.top_k
    slots: cutlass.Constexpr = -(-max_pairs(shape) // grouping.threads)
    experts, ranks = cute.make_rmem_tensor((slots,), Int32), cute.make_rmem_tensor((slots,), Int32)
    for i in cutlass.range_constexpr(slots):
        pair = thread + i * grouping.threads
        experts[i], ranks[i] = Int32(-1), Int32(0)
        if pair < num_pairs:
            expert = ops.load_word(topk_ids + Int64(pair) * 4)
            if Uint32(expert) < Uint32(shape.num_experts):
                experts[i] = expert
                ranks[i] = ops.add_shared(grouping.counts + expert * 4, Int32(1))
    cute.arch.sync_threads()
    warp, lane = thread // _WARP, thread % _WARP
    group = warp
    while group < grouping.groups:
        total = _prefix_sum(_counted(grouping, group, lane), lane)
        if lane == _WARP - 1:
            ops.store_shared_word(grouping.totals + group * 4, total)
        group += grouping.threads // _WARP
    cute.arch.sync_threads()
    total = Int32(0)
    if lane < grouping.groups:
        total = ops.load_shared_word(grouping.totals + lane * 4)
    up_to = _prefix_sum(total, lane)
    before = up_to - total
    group = warp
    while group < grouping.groups:
        counted = _counted(grouping, group, lane)
        place = _prefix_sum(counted, lane) - counted + cute.arch.shuffle_sync(before, group)
        _list_passes(grouping, group * _WARP + lane, counted & _PAIRS_MASK, place)
        group += grouping.threads // _WARP
    cute.arch.sync_threads()
    _scatter(grouping, experts, ranks, slots, thread)
    all_of_them = cute.arch.shuffle_sync(up_to, _WARP - 1)
    if all_of_them >> _CROWDED_SHIFT != 0:
        _order(grouping, experts, ranks, slots, thread)
        _scatter(grouping, experts, ranks, slots, thread)
    return (all_of_them >> _PASSES_SHIFT) & _PASSES_MASK


@cute.jit
def _scatter(
    grouping: cutlass.Constexpr,
    experts: cute.Tensor,
    ranks: cute.Tensor,
    slots: cutlass.Constexpr,
    thread: Int32,
) -> None:
    """Writes each pair to its rank's place among the pairs of its expert."""
    for i in cutlass.range_constexpr(slots):
        if experts[i] >= 0:
            first = ops.load_shared_word(grouping.counts + experts[i] * 4) & _PAIRS_MASK
            ops.store_shared_word(grouping.pairs + (first + ranks[i]) * 4, thread + i * grouping.threads)
    cute.arch.sync_threads()


@cute.jit
def _order(
    grouping: cutlass.Constexpr,
    experts: cute.Tensor,
    ranks: cute.Tensor,
    slots: cutlass.Constexpr,
    thread: Int32,
) -> None:
    """Ranks the pairs of an expert with several passes by their numbers, so that all CTAs cut them alike."""
    for i in cutlass.range_constexpr(slots):
        if experts[i] >= 0:
            word = ops.load_shared_word(grouping.counts + experts[i] * 4)
            first, count = word & _PAIRS_MASK, word >> _PASSES_SHIFT
            if count > COLUMNS:
                rank = Int32(0)
                for k in range(count):
                    other = ops.load_shared_word(grouping.pairs + (first + k) * 4)
                    rank += Int32(other < thread + i * grouping.threads)
                ranks[i] = rank
    cute.arch.sync_threads()


@cute.jit
def _list_passes(grouping: cutlass.Constexpr, expert: Int32, count: Int32, place: Int32) -> None:
    """Writes an expert's passes, and where its pairs begin beside how many it has."""
    start = place & _PAIRS_MASK
    ops.store_shared_word(grouping.counts + expert * 4, start | (count << _PASSES_SHIFT))
    address = grouping.passes + ((place >> _PASSES_SHIFT) & _PASSES_MASK) * 4
    while count > 0:
        columns = COLUMNS
        if count < COLUMNS:
            columns = count
        word = expert | ((columns - 1) << _EXPERT_BITS) | (start << _EXPERT_BITS + _COUNT_BITS)
        ops.store_shared_word(address, word)
        address += 4
        start += COLUMNS
        count -= COLUMNS


def _counted(grouping: Grouping, group: Any, lane: Any) -> Any:
    """Pairs, passes and whether more than one, of the lane's expert in a group."""
    count = ops.load_shared_word(grouping.counts + (group * _WARP + lane) * 4)
    passes = (count + COLUMNS - 1) // COLUMNS
    return count | (passes << _PASSES_SHIFT) | (Int32(passes > 1) << _CROWDED_SHIFT)


def _prefix_sum(value: Any, lane: Any) -> Any:
    """The sum over the lanes up to this one."""
    for step in (1, 2, 4, 8, 16):
        below = cute.arch.shuffle_sync_up(value, step)
        value = value + (below & (Int32(0) - Int32(lane >= step)))
    return value
