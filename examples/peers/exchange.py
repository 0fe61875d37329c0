"""One process's side of the output projection's exchange with real peers: its boxes, its launches, its error words."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from examples.peers.session import Session
from specialized_path.kernels.attn_res.variants import HIDDEN, MAX_BATCH
from specialized_path.kernels.exchange.boxes import count_full_words, empty_box
from specialized_path.kernels.exchange.launch import (
    attn_res_after_exchange,
    publish_projection,
    reduce_chunks,
)
from specialized_path.kernels.exchange.peers import PeerBoxes, share_boxes
from specialized_path.kernels.exchange.protocol import BoxLayout

COPIES = 2
NUM_BLOCKS = 3
LAYERS = {"add": 25, "block write": 24}
"""A layer that adds to the prefix and one that replaces it, both behind `NUM_BLOCKS` blocks."""
POLLS = 1 << 21
"""A second or more: far beyond any delay that is made here, and short enough to give up on many exchanges."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Residual:
    """What the attention residual behind the exchange reads, for one rank; every rank holds the same."""

    prefix: Tensor
    """[B, 7168]."""
    blocks: Tensor
    """[B, n, 7168]."""
    weights: tuple[Tensor, Tensor, Tensor]
    """[7168] each."""

    def repeated(self, count: int) -> Residual:
        """The rows of several ranks, rank by rank."""
        return Residual(
            prefix=self.prefix.repeat(count, 1),
            blocks=self.blocks.repeat(count, 1, 1),
            weights=self.weights,
        )


class OutputExchange:
    """The exchange in one form; every process makes one at the same time, and closes it."""

    def __init__(self, session: Session, form: str, *, use_pdl: bool = False) -> None:
        """Shares the boxes; `form` is one-shot or two-shot."""
        self._session, self._use_pdl = session, use_pdl
        self._is_two_shot = form == "two-shot"
        width = HIDDEN // session.num_ranks if self._is_two_shot else HIDDEN
        layout = BoxLayout(num_ranks=session.num_ranks, max_rows=MAX_BATCH, width=width, copies=COPIES)
        self._boxes: list[PeerBoxes] = [
            share_boxes(
                layout,
                process=session.process,
                num_processes=session.num_processes,
                device=session.device,
                gather=session.gather,
            )
            for _ in range(1 + self._is_two_shot)
        ]
        # A reduction serves one rank, and its error word stands at an aligned address.
        self._reduce_errors = torch.zeros(session.num_local, 4, dtype=torch.int32, device=session.device)
        self._errors = torch.zeros(session.num_local, dtype=torch.int32, device=session.device)

    def publish(self, x: Tensor, weight: Tensor, copy: int, *, but: int | None = None) -> None:
        """Each local rank's product into all boxes, but that of rank `but`; `x` [L, B, K], `weight` [L, 7168, K]."""
        for local in range(self._session.num_local):
            if self._session.first_rank + local != but:
                table = self._boxes[0].tables[local, copy]
                publish_projection(
                    x[local], weight[local], table, is_two_shot=self._is_two_shot, use_pdl=self._use_pdl
                )

    def reduce(self, num_rows: int, copy: int, *, but: int | None = None) -> None:
        """The owners' sums of a two-shot exchange; nothing otherwise."""
        for local in range(self._session.num_local if self._is_two_shot else 0):
            if self._session.first_rank + local != but:
                reduce_chunks(
                    self._boxes[0].boxes[local, copy],
                    self._boxes[1].tables[local, copy],
                    self._reduce_errors[local, :1],
                    num_rows=num_rows,
                    polls=POLLS,
                    use_pdl=self._use_pdl,
                )

    def consume(
        self,
        residual: Residual,
        copy: int,
        out: Tensor,
        prefix_out: Tensor,
        *,
        update: str = "add",
        polls: int = POLLS,
    ) -> None:
        """The attention residual of all local ranks, whose rows `residual` and the outputs hold, rank by rank."""
        attn_res_after_exchange(
            residual.prefix,
            residual.blocks,
            self._boxes[-1].boxes[:, copy],
            *residual.weights,
            self._errors,
            layer_idx=LAYERS[update],
            is_two_shot=self._is_two_shot,
            out=out,
            prefix_out=prefix_out,
            polls=polls,
            use_pdl=self._use_pdl,
        )

    def run(
        self,
        x: Tensor,
        weight: Tensor,
        residual: Residual,
        copy: int,
        out: Tensor,
        prefix_out: Tensor,
        *,
        update: str = "add",
    ) -> None:
        """One whole exchange."""
        self.publish(x, weight, copy)
        self.reduce(x.shape[1], copy)
        self.consume(residual, copy, out, prefix_out, update=update)

    def error_words(self) -> tuple[int, ...]:
        """Of each local rank: its consumer's, or its reduction's where that is 0."""
        pairs = zip(self._errors.tolist(), self._reduce_errors[:, 0].tolist(), strict=True)
        return tuple(consumer or reduction for consumer, reduction in pairs)

    def full_words(self) -> int:
        """Words left in this process's boxes."""
        return sum(count_full_words(shared.boxes) for shared in self._boxes)

    def empty(self) -> None:
        """Empties boxes and error words, when all have stopped; the others may go on when all have done it."""
        self._session.meet()
        for shared in self._boxes:
            empty_box(shared.boxes)
        self._errors.zero_()
        self._reduce_errors.zero_()
        self._session.meet()

    def close(self) -> None:
        """Gives the boxes back, when all have stopped."""
        self._session.meet()
        for shared in self._boxes:
            shared.close(self._session.gather)
