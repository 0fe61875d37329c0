"""Gate, up and activation of every chosen expert, cut into parts of K that warps take without waiting for each other.

An alternative to `gate_up`, with the same bits. A part is a sixteenth of K of a tile of 64 gate and 64 up rows. Warps
take a CTA's parts by turns and put their sums where the tile's are gathered; the last to come adds them in the parts'
order, activates and stores, while the others stream on. Where parts are shared out one by one (`is_shared`), all CTAs
have as many, and a tile that lies in several is gathered by the one that has its first part: the others bring their
sums through global memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass import Int32, Int64, Uint8
from cutlass.cute.arch import inline_ptx

from specialized_path.kernels.common import device
from specialized_path.kernels.moe_experts import ops
from specialized_path.kernels.moe_experts.grouping import Grouping
from specialized_path.kernels.moe_experts.products import (
    WarpRing,
    activation_place,
    clear_sums,
    copy_activations,
    copy_weights,
    expert_place,
    multiply,
    tile_place,
)
from specialized_path.kernels.moe_experts.shape import GROUP_K, TILE_ROWS, ExpertShape
from specialized_path.kernels.moe_experts.shares import (
    K_PARTS,
    TILE_SUM_BYTES,
    PartsTactic,
    first_unit,
    owner_of,
)

_WARP = 32
_LANES_BYTES = _WARP * 16
"""Sums of one matrix instruction of a part."""
_SUBTILES = 8
"""Matrix instructions of a part: four of gate, four of up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartsGateUpKernel:
    """The kernel for one rank's experts and one tactic."""

    shape: ExpertShape
    tactic: PartsTactic
    beta: float = 4.0
    linear_beta: float = 25.0

    @property
    def ring_bytes(self) -> int:
        """A warp's ring."""
        return self.tactic.depth * WarpRing.stage_bytes(2)

    @property
    def groups(self) -> int:
        """Groups of K of a part."""
        return self.shape.gate_up_groups // K_PARTS

    @property
    def shared_bytes(self) -> int:
        """Dynamic shared memory: rings, a tile's sums, grouping, counters and the CTA's span."""
        return self.tactic.warps * self.ring_bytes + TILE_SUM_BYTES + Grouping.shared_bytes(self.shape) + 32

    @cute.jit
    def __call__(
        self,
        latent: cute.Pointer,
        topk_ids: cute.Pointer,
        codes: cute.Pointer,
        scales: cute.Pointer,
        hidden: cute.Pointer,
        room: cute.Pointer,
        brought: cute.Pointer,
        num_tokens: Int32,
        num_ctas: Int32,
        use_pdl: Int32,
        stream: Any,
    ) -> None:
        """As `GateUpKernel`; `room` has `TILE_SUM_BYTES` a CTA, `brought` a zero a CTA, which it is again behind."""
        self.kernel(latent, topk_ids, codes, scales, hidden, room, brought, num_tokens).launch(
            grid=(num_ctas, 1, 1),
            block=(self.tactic.threads, 1, 1),
            smem=self.shared_bytes,
            stream=stream,
            use_pdl=use_pdl,
        )

    @cute.kernel
    def kernel(
        self,
        latent: cute.Pointer,
        topk_ids: cute.Pointer,
        codes: cute.Pointer,
        scales: cute.Pointer,
        hidden: cute.Pointer,
        room: cute.Pointer,
        brought: cute.Pointer,
        num_tokens: Int32,
    ) -> None:
        """CTA i of n takes parts `i / n ... (i + 1) / n` of all passes' tiles in order, or as many whole tiles."""
        block, _, _ = cute.arch.block_idx()
        num_ctas, _, _ = cute.arch.grid_dim()
        thread, _, _ = cute.arch.thread_idx()
        rings = cute.arch.get_dyn_smem(Uint8, alignment=128).toint()
        sums = rings + self.tactic.warps * self.ring_bytes
        passes = Grouping(self.shape, self.tactic.threads, sums + TILE_SUM_BYTES)
        counters = sums + TILE_SUM_BYTES + Grouping.shared_bytes(self.shape)
        passes.clear(thread)
        if thread < 2:
            ops.store_shared_word(counters + thread * 4, Int32(0))
        cute.arch.sync_threads()
        device.wait_for_dependencies()
        device.release_dependents()
        num_units = passes.build(thread, topk_ids.toint(), num_tokens) * self.shape.gate_up_tiles
        each: cutlass.Constexpr = 1 if self.tactic.is_shared else K_PARTS
        num_units = num_units * (K_PARTS // each)
        first = first_unit(block, num_ctas, num_units) * each
        last = first_unit(block + 1, num_ctas, num_units) * each
        warp = cute.arch.make_warp_uniform(thread // _WARP)
        if first + warp < last:
            starts = (codes.toint(), scales.toint(), latent.toint(), hidden.toint())
            ring = WarpRing(
                rings + warp * self.ring_bytes,
                thread % _WARP,
                rows=2 * self.shape.held,
                tiles=2,
                tile_stride=self.shape.held,
                depth=self.tactic.depth,
            )
            memory = (sums, counters, room.toint(), brought.toint())
            # Registers are short in the loop; every warp writes the same.
            ops.store_shared_word(counters + 8, first)
            ops.store_shared_word(counters + 12, last)
            ops.store_shared_word(counters + 16, num_units * each)
            cute.arch.sync_warp()
            self.stream(ring, passes, starts, memory, first + warp, last, thread % _WARP)

    @property
    def code_bytes(self) -> int:
        """Codes of a group of K of an expert, of all rows."""
        return self.shape.held * GROUP_K

    @cute.jit
    def stream(
        self,
        ring: cutlass.Constexpr,
        passes: cutlass.Constexpr,
        starts: tuple[Int64, Int64, Int64, Int64],
        memory: tuple[Int32, Int32, Int64, Int64],
        first: Int32,
        last: Int32,
        lane: Int32,
    ) -> None:
        """A warp's parts, one behind the other; the next one's first groups are asked for before this one's end.

        Args:
            ring: the warp's.
            passes: the step's grouping.
            starts: addresses of expert 0's codes and scales, of token 0's activations and of the output.
            memory: shared addresses of the sums and the counters, global ones of the CTAs' rooms and their counters.
            first: the warp's first part, which it has.
            last: one behind the CTA's last.
            lane: of the warp.
        """
        ahead: cutlass.Constexpr = self.tactic.depth - 1
        warps: cutlass.Constexpr = self.tactic.warps
        codes, scales, row = self.places(passes, starts, first, lane)
        for stage in cutlass.range_constexpr(ahead):
            copy_weights(ring, stage, codes, scales)
            copy_activations(ring, stage, row)
            ops.commit_copies()
            codes, scales, row = self.advance(codes, scales, row)
        stage, free = Int32(0), Int32(ahead)
        for part in range(first, last, warps):
            clear_sums(ring)
            for step in cutlass.range_constexpr(2):
                if cutlass.const_expr(step == 1):
                    codes, scales, row = self.places(
                        passes, starts, cutlass.min(part + warps, last - 1), lane
                    )
                for _ in range(ahead if step == 1 else self.groups - ahead):
                    ops.wait_for_copies(ahead - 1)
                    # What is asked for goes where the group before was: its products are behind its reads.
                    if step == 0 or part + warps < last:
                        copy_weights(ring, free, codes, scales)
                        copy_activations(ring, free, row)
                    ops.commit_copies()
                    codes, scales, row = self.advance(codes, scales, row)
                    multiply(ring, stage)
                    free = stage
                    stage += 1
                    if stage == self.tactic.depth:
                        stage = Int32(0)
            self.deliver(ring, passes, starts[3], memory, part, lane)

    def places(self, passes: Grouping, starts: tuple[Any, ...], part: Any, lane: Any) -> tuple[Any, Any, Any]:
        """The lane's addresses of a part's first codes, scales and activations."""
        shape, tile = self.shape, part // K_PARTS
        this = passes[tile // shape.gate_up_tiles]
        group = part % K_PARTS * self.groups
        code_away, scale_away = tile_place(lane, tile % shape.gate_up_tiles)
        code_away, scale_away = code_away + group * self.code_bytes, scale_away + group * (2 * shape.held)
        row = activation_place(this, shape.top_k, shape.latent, lane)
        return (
            starts[0] + expert_place(this.expert, shape.gate_up_groups * self.code_bytes) + Int64(code_away),
            starts[1] + expert_place(this.expert, shape.gate_up_groups * 2 * shape.held) + Int64(scale_away),
            starts[2] + row + Int64(group * (2 * GROUP_K)),
        )

    def advance(self, codes: Any, scales: Any, row: Any) -> tuple[Any, Any, Any]:
        """The addresses of the next group of K."""
        return codes + self.code_bytes, scales + 2 * self.shape.held, row + 2 * GROUP_K

    @cute.jit
    def deliver(
        self,
        ring: cutlass.Constexpr,
        passes: cutlass.Constexpr,
        hidden: Int64,
        memory: tuple[Int32, Int32, Int64, Int64],
        part: Int32,
        lane: Int32,
    ) -> None:
        """Puts a part's sums where its tile's are gathered; who comes last finishes the tile.

        A tile is gathered in one room in shared memory: a warp puts nothing there before the CTA's tile in front has
        been finished. That one needs only parts in front of this one, so that no warp waits for one that waits for it.
        """
        sums, counters, room, brought = memory
        first = ops.load_shared_word(counters + 8)
        tile, slot = part // K_PARTS, part % K_PARTS
        this = passes[tile // self.shape.gate_up_tiles]
        start = tile * K_PARTS
        # Of a place's four lanes, lane t has columns 2t and 2t + 1.
        place = slot * _LANES_BYTES + (lane % 4 * 8 + lane // 4) * 16
        is_used = lane % 4 * 2 < this.count
        if first <= start:
            turn = tile - (first + K_PARTS - 1) // K_PARTS
            while _finished(counters) < turn:
                pass
            if is_used:
                for sub in cutlass.range_constexpr(_SUBTILES):
                    four = [ring.sums[4 * sub + i] for i in range(4)]
                    ops.store_shared_sums(sums + place + sub * (K_PARTS * _LANES_BYTES), four)
            cute.arch.sync_warp()
            came = Int32(0)
            if lane == 0:
                came = _arrive(counters)
            came = cute.arch.shuffle_sync(came, 0)
            own = cutlass.min(ops.load_shared_word(counters + 12) - start, K_PARTS)
            if came == own - 1:
                if own < K_PARTS:
                    owner, _, _ = cute.arch.block_idx()
                    mine = room + Int64(owner) * TILE_SUM_BYTES
                    self.fetch(sums, mine, brought + Int64(owner) * 4, own, this.count, lane)
                self.finish(sums, this, hidden, tile, lane)
                cute.arch.sync_warp()
                if lane == 0:
                    ops.store_shared_word(counters, Int32(0))
                    _finish(counters, turn + 1)
        elif cutlass.const_expr(self.tactic.is_shared):
            num_ctas, _, _ = cute.arch.grid_dim()
            owner = owner_of(start, num_ctas, ops.load_shared_word(counters + 16))
            if is_used:
                there = room + Int64(owner) * TILE_SUM_BYTES + Int64(place)
                for sub in cutlass.range_constexpr(_SUBTILES):
                    four = [ring.sums[4 * sub + i] for i in range(4)]
                    _store_global_sums(there + sub * (K_PARTS * _LANES_BYTES), four)
            cute.arch.sync_warp()
            if lane == 0:
                _bring(brought + Int64(owner) * 4)

    @cute.jit
    def fetch(self, sums: Int32, room: Int64, brought: Int64, own: Int32, count: Int32, lane: Int32) -> None:
        """The sums of the parts from `own` on, which other CTAs bring, to their places in shared memory."""
        if lane == 0:
            there = Int32(0)
            while there < K_PARTS - own:
                there = _brought(brought)
            # For the next launch, which begins when this one has ended.
            device.store_word(brought, Int32(0))
        cute.arch.sync_warp()
        for part in range(own, K_PARTS):
            for pair in range((count + 1) // 2):
                for half in cutlass.range_constexpr(2):
                    sub = lane // 8 + 4 * half
                    away = (sub * K_PARTS + part) * _LANES_BYTES + (pair * 8 + lane % 8) * 16
                    _copy_sums(sums + away, room + Int64(away))
        ops.commit_copies()
        ops.wait_for_copies(0)
        cute.arch.sync_warp()

    @cute.jit
    def finish(self, sums: Int32, this: cutlass.Constexpr, hidden: Int64, tile: Int32, lane: Int32) -> None:
        """Adds the sums, the first part's of K first, and stores 64 activated rows of each pair of the pass.

        A lane has rows `16 (l / 8) + l % 8` and eight further.
        """
        for pair in range((this.count + 1) // 2):
            place = sums + lane // 8 * (K_PARTS * _LANES_BYTES) + (pair * 8 + lane % 8) * 16
            gates, ups = (
                cute.make_rmem_tensor((4,), cutlass.Float32),
                cute.make_rmem_tensor((4,), cutlass.Float32),
            )
            gates.fill(0)
            ups.fill(0)
            for part in cutlass.range_constexpr(K_PARTS):
                gate = ops.load_shared_sums(place + part * _LANES_BYTES)
                up = ops.load_shared_sums(place + (4 * K_PARTS + part) * _LANES_BYTES)
                for i in cutlass.range_constexpr(4):
                    gates[i] = gates[i] + gate[i]
                    ups[i] = ups[i] + up[i]
            for column in cutlass.range_constexpr(2):
                if 2 * pair + column < this.count:
                    number = ops.load_shared_word(this.pairs + (2 * pair + column) * 4)
                    for half in cutlass.range_constexpr(2):
                        row = (
                            tile % self.shape.gate_up_tiles * TILE_ROWS + lane // 8 * 16 + half * 8 + lane % 8
                        )
                        at = hidden + (Int64(number) * self.shape.intermediate + row) * 2
                        i = 2 * half + column
                        ops.store_bf16(at, ops.situ(gates[i], ups[i], self.beta, self.linear_beta))


def _finished(counters: Any) -> Any:
    """Tiles of this CTA that have been finished; what their finishers read is behind this."""
    return inline_ptx(
        "ld.acquire.cta.shared.b32 {$w0}, [{$r0}];", write_only_types=[Int32], read_only_args=[counters + 4]
    )


def _finish(counters: Any, turn: Any) -> None:
    """Says that so many tiles have been finished, behind all that this thread did and saw."""
    inline_ptx("st.release.cta.shared.b32 [{$r0}], {$r1};", read_only_args=[counters + 4, turn])


def _arrive(counters: Any) -> Any:
    """Counts this warp's part, behind its stores; gives how many of the tile came before, and shows theirs."""
    return inline_ptx(
        "atom.acq_rel.cta.shared.add.u32 {$w0}, [{$r0}], 1;",
        write_only_types=[Int32],
        read_only_args=[counters],
    )


def _bring(brought: Any) -> None:
    """Counts this warp's part for the CTA that gathers it, behind its stores."""
    inline_ptx(
        "fence.acq_rel.gpu; red.release.gpu.global.add.u32 [{$r0}], 1;", read_only_args=[Int64(brought)]
    )


def _brought(brought: Any) -> Any:
    """Parts that others have brought; shows what they stored."""
    return inline_ptx(
        "ld.acquire.gpu.global.b32 {$w0}, [{$r0}];", write_only_types=[Int32], read_only_args=[Int64(brought)]
    )


def _store_global_sums(address: Any, values: Any) -> None:
    inline_ptx(
        "st.global.v4.f32 [{$r0}], {{$r1},{$r2},{$r3},{$r4}};", read_only_args=[Int64(address), *values]
    )


def _copy_sums(shared: Any, source: Any) -> None:
    """Sixteen bytes, past L1, to shared memory by this thread's asynchronous copies."""
    inline_ptx("cp.async.cg.shared.global [{$r0}], [{$r1}], 16;", read_only_args=[shared, Int64(source)])
