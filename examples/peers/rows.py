"""Exchanges of whole rows with real peers: shards of attention, and the front, latent and output of the experts.

Between the exchanges run the kernels that are there (merge of shards, choice of experts, norm); what no kernel computes
by rank is drawn.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from examples.peers.data import count_differing, digest, draw
from examples.peers.exchange import COPIES, POLLS
from examples.peers.facts import ExchangeFacts
from examples.peers.graphs import repeat
from examples.peers.plan import BATCHES, LAUNCHES, ROW_EXCHANGES
from examples.peers.session import Session
from specialized_path.kernels.attn_res.variants import HIDDEN, MAX_BATCH
from specialized_path.kernels.exchange.boxes import count_full_words
from specialized_path.kernels.exchange.peers import share_boxes
from specialized_path.kernels.exchange.protocol import BoxLayout
from specialized_path.kernels.exchange.row_launch import gather_rows, publish_rows, sum_rows
from specialized_path.kernels.exchange.variants import publish_rows_variant, take_rows_variant
from specialized_path.kernels.mla.launch import dcp_merge
from specialized_path.kernels.mla.variants import merge_variant
from specialized_path.kernels.moe_latent.geometry import LATENT, NUM_EXPERTS, TOP_K
from specialized_path.kernels.moe_latent.launch import latent_norm, select_experts
from specialized_path.kernels.moe_latent.variants import norm_variant, selection_variant
from specialized_path.reference import rank_order_sum

_HEADS, _KV_RANK = 96, 512
_EMPTY_LSE = -3e38
_DATA = 4
_SHARE = 10
"""One in so many of the iterations of the output projection's exchange."""


class RowBoxes:
    """The boxes of one exchange; every process makes them at the same time, and closes them. One rank a process."""

    def __init__(self, session: Session, *, halves: int, floats: int = 0, use_pdl: bool) -> None:
        """Columns of a row in a box, BF16 and FP32."""
        self._session, self._use_pdl = session, use_pdl
        layout = BoxLayout(
            num_ranks=session.num_ranks, max_rows=MAX_BATCH, width=2 * floats + halves, copies=COPIES
        )
        self._shared = share_boxes(
            layout,
            process=session.process,
            num_processes=session.num_processes,
            device=session.device,
            gather=session.gather,
        )
        self._error = torch.zeros(4, dtype=torch.int32, device=session.device)[:1]

    def publish(
        self, halves: Tensor, copy: int, *, floats: Tensor | None = None, to_owners: bool = False
    ) -> None:
        """This rank's rows."""
        table = self._shared.tables[0, copy]
        publish_rows(halves, table, floats=floats, to_owners=to_owners, use_pdl=self._use_pdl)

    def gather(self, halves: Tensor, copy: int, *, floats: Tensor | None = None) -> None:
        """All ranks' rows, [N, B, columns]."""
        box = self._shared.boxes[0, copy]
        gather_rows(box, self._error, halves, floats=floats, polls=POLLS, use_pdl=self._use_pdl)

    def sum(self, out: Tensor, copy: int) -> None:
        """The sum of all ranks' rows."""
        sum_rows(self._shared.boxes[0, copy], self._error, out, polls=POLLS, use_pdl=self._use_pdl)

    def error_word(self) -> int:
        """0, or 1 + the rank that was waited for in vain."""
        return int(self._error)

    def full_words(self) -> int:
        """Words left in this process's boxes."""
        return count_full_words(self._shared.boxes)

    def close(self) -> None:
        """Gives them back, when all have stopped."""
        self._session.meet()
        self._shared.close(self._session.gather)


@dataclass(frozen=True, slots=True, kw_only=True)
class RowCase:
    """One exchange of one batch."""

    run: Callable[[int], None]
    """Exchanges over a copy of the boxes."""
    found: tuple[Tensor, ...]
    wanted: tuple[Tensor, ...]
    everyone: Tensor
    """Of all ranks, in all processes the same."""


Maker = Callable[[Session, int, int], RowCase]


def rows(session: Session) -> Iterator[ExchangeFacts]:
    """Each exchange over and over, batches and data changing, every result compared on the GPU."""
    for name in ROW_EXCHANGES:
        for launch in LAUNCHES:
            boxes, make = _EXCHANGES[name](session, use_pdl=launch == "dependent")
            cases = [make(session, batch, 40 + index) for index, batch in enumerate(BATCHES[::-1] * _DATA)]
            yield _run(session, f"{name}, {launch}", boxes, cases)
            for box in boxes:
                box.close()


def _run(session: Session, name: str, boxes: Sequence[RowBoxes], cases: Sequence[RowCase]) -> ExchangeFacts:
    wrong = torch.zeros((), dtype=torch.int64, device=session.device)
    asked = max(len(cases), session.num_iterations // _SHARE)

    def cycle() -> None:
        for index, case in enumerate(cases):
            case.run(index % COPIES)
            for found, wanted in zip(case.found, case.wanted, strict=True):
                wrong.add_(count_differing(found, wanted))

    session.meet()
    ran, seconds = repeat(session, cycle, len(cases), asked, lambda: any(box.error_word() for box in boxes))
    return ExchangeFacts(
        case=name,
        asked=asked,
        ran=ran,
        wrong_elements=int(wrong),
        digest=digest(case.everyone for case in cases),
        full_words=sum(box.full_words() for box in boxes),
        error_words=(max(box.error_word() for box in boxes),),
        seconds=seconds,
    )


def compile_rows(num_ranks: int) -> None:
    """Every kernel that is launched here, before the processes meet."""
    for choice in (False, True):
        publish_rows_variant(num_ranks, choice).compiled()
        take_rows_variant(num_ranks, choice, MAX_BATCH).compiled()
    for variant in (merge_variant("shards"), selection_variant(), norm_variant()):
        variant.compiled()


def _dcp_merge(session: Session, *, use_pdl: bool) -> tuple[list[RowBoxes], Maker]:
    """OC-11: each rank's attention of all heads over its tokens, to the heads' owners; some shards are empty."""
    num_ranks, heads = session.num_ranks, _HEADS // session.num_ranks
    box = RowBoxes(session, halves=heads * _KV_RANK, floats=heads, use_pdl=use_pdl)
    space = _poisoned(session, num_ranks * MAX_BATCH * heads * _KV_RANK)
    lse_space = _poisoned(session, num_ranks * MAX_BATCH * heads, torch.float32)
    out_space = _poisoned(session, MAX_BATCH * heads * _KV_RANK)
    out_lse_space = _poisoned(session, MAX_BATCH * heads, torch.float32)

    def make(session: Session, num_rows: int, seed: int) -> RowCase:
        latents = draw(session, seed, num_ranks, num_rows, _HEADS, _KV_RANK)
        lse = draw(session, seed + 500, num_ranks, num_rows, _HEADS).float()
        lse[:, :, ::7] = -0.0
        is_empty = draw(session, seed + 700, num_ranks, num_rows, _HEADS) > 1
        lse[is_empty], latents[is_empty] = _EMPTY_LSE, float("nan")
        merged, merged_lse = dcp_merge(latents, lse, use_pdl=False)
        own = slice(session.process * heads, (session.process + 1) * heads)
        halves = latents[session.process].view(num_rows, num_ranks, heads * _KV_RANK).clone()
        floats = lse[session.process].view(num_rows, num_ranks, heads).clone()
        taken = _part(space, num_ranks, num_rows, heads * _KV_RANK)
        taken_lse = _part(lse_space, num_ranks, num_rows, heads)
        out = _part(out_space, num_rows, heads, _KV_RANK)
        out_lse = _part(out_lse_space, num_rows, heads)

        def run(copy: int) -> None:
            box.publish(halves, copy, floats=floats, to_owners=True)
            box.gather(taken, copy, floats=taken_lse)
            by_head = taken.view(num_ranks, num_rows, heads, _KV_RANK)
            dcp_merge(by_head, taken_lse, out=out, lse=out_lse, use_pdl=use_pdl)

        wanted = (merged[:, own].contiguous(), merged_lse[:, own].contiguous())
        return RowCase(run=run, found=(out, out_lse), wanted=wanted, everyone=merged)

    return [box], make


def _front(session: Session, *, use_pdl: bool) -> tuple[list[RowBoxes], Maker]:
    """OC-14, OC-15: a rank's experts' logits and its columns of the latent in one row, to all; then the choice."""
    experts, columns = NUM_EXPERTS // session.num_ranks, LATENT // session.num_ranks
    box = RowBoxes(session, halves=columns, floats=experts, use_pdl=use_pdl)
    bias = draw(session, 39, NUM_EXPERTS).float()
    space = _poisoned(session, MAX_BATCH * LATENT)
    logit_space = _poisoned(session, MAX_BATCH * NUM_EXPERTS, torch.float32)
    id_space = torch.full((MAX_BATCH * TOP_K,), -1, dtype=torch.int32, device=session.device)
    weight_space = _poisoned(session, MAX_BATCH * TOP_K)

    def make(session: Session, num_rows: int, seed: int) -> RowCase:
        latent = draw(session, seed, num_rows, LATENT)
        logits = draw(session, seed + 500, num_rows, NUM_EXPERTS).float() * 3
        choice = select_experts(logits, bias, use_pdl=False)
        halves = latent[:, session.process * columns :][:, :columns].contiguous()
        floats = logits[:, session.process * experts :][:, :experts].contiguous()
        out, out_logits = _part(space, num_rows, LATENT), _part(logit_space, num_rows, NUM_EXPERTS)
        ids, weights = _part(id_space, num_rows, TOP_K), _part(weight_space, num_rows, TOP_K)

        def run(copy: int) -> None:
            box.publish(halves, copy, floats=floats)
            box.gather(_by_rank(session, out), copy, floats=_by_rank(session, out_logits))
            select_experts(out_logits, bias, ids=ids, weights=weights, use_pdl=use_pdl)

        # -0 is published as +0.
        wanted = (latent + 0.0, logits + 0.0, *choice)
        return RowCase(run=run, found=(out, out_logits, ids, weights), wanted=wanted, everyone=latent)

    return [box], make


def _latent(session: Session, *, use_pdl: bool) -> tuple[list[RowBoxes], Maker]:
    """OC-17: every rank's combined latent to all, added in the order of the ranks, and the norm."""
    box = RowBoxes(session, halves=LATENT, use_pdl=use_pdl)
    weight = draw(session, 39, LATENT)
    spaces = [_poisoned(session, MAX_BATCH * LATENT) for _ in range(2)]

    def make(session: Session, num_rows: int, seed: int) -> RowCase:
        partials = draw(session, seed, session.num_ranks, num_rows, LATENT)
        total = rank_order_sum(partials)
        normed = latent_norm(total, weight, use_pdl=False)
        mine = partials[session.process].clone()
        out, out_normed = (_part(space, num_rows, LATENT) for space in spaces)

        def run(copy: int) -> None:
            box.publish(mine, copy)
            box.sum(out, copy)
            latent_norm(out, weight, out=out_normed, use_pdl=use_pdl)

        return RowCase(run=run, found=(out, out_normed), wanted=(total, normed), everyone=normed)

    return [box], make


def _output(session: Session, *, use_pdl: bool) -> tuple[list[RowBoxes], Maker]:
    """OC-19: the shared experts' partials to the columns' owners, who add them and their up-projection; rows to all."""
    columns = HIDDEN // session.num_ranks
    parts, whole = (RowBoxes(session, halves=columns, use_pdl=use_pdl) for _ in range(2))
    own_space, space = _poisoned(session, MAX_BATCH * columns), _poisoned(session, MAX_BATCH * HIDDEN)

    def make(session: Session, num_rows: int, seed: int) -> RowCase:
        partials = draw(session, seed, session.num_ranks, num_rows, HIDDEN)
        up = draw(session, seed + 500, num_rows, HIDDEN)
        wanted = rank_order_sum(partials) + up
        mine = partials[session.process].view(num_rows, session.num_ranks, columns).clone()
        own_up = up[:, session.process * columns :][:, :columns].contiguous()
        own, out = _part(own_space, num_rows, columns), _part(space, num_rows, HIDDEN)

        def run(copy: int) -> None:
            parts.publish(mine, copy, to_owners=True)
            parts.sum(own, copy)
            own.add_(own_up)
            whole.publish(own, copy)
            whole.gather(_by_rank(session, out), copy)

        return RowCase(run=run, found=(out,), wanted=(wanted,), everyone=wanted)

    return [parts, whole], make


_EXCHANGES: dict[str, Callable[..., tuple[list[RowBoxes], Maker]]] = {
    "dcp merge": _dcp_merge,
    "front": _front,
    "latent": _latent,
    "output": _output,
}


def _by_rank(session: Session, out: Tensor) -> Tensor:
    """[N, B, columns] of [B, N * columns]."""
    return out.unflatten(1, (session.num_ranks, -1)).transpose(0, 1)


def _poisoned(session: Session, size: int, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    return torch.full((size,), float("nan"), dtype=dtype, device=session.device)


def _part(space: Tensor, *shape: int) -> Tensor:
    """The beginning of a place that all cases use: what an exchange does not write is another one's."""
    return space[: math.prod(shape)].view(shape)
