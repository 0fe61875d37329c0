"""The mailbox protocol of the exchanges: what a box holds, which copy an exchange uses, and what may go wrong.

Every rank owns one box. An exchange is a complete all-to-all: a rank stores its rows into every rank's box and
goes on when its own box is full. There are no flags and no fences: an empty 32-bit word holds a bit pattern
that data never has, a reader polls the data itself, and empties what it has read for the next use.
"""

from __future__ import annotations

from dataclasses import dataclass

EMPTY_WORD = 0x80000000
"""An empty word, as a pair of BF16: the high one is -0, which publishers turn into +0 before they store."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BoxLayout:
    """The shape of one rank's box: `[copies, num_ranks, max_rows, width]` BF16, all words empty at rest."""

    num_ranks: int
    max_rows: int
    width: int
    """Columns of a row; a multiple of 8, so that a row is whole 16-byte fragments."""
    copies: int

    def __post_init__(self) -> None:
        """Refuses shapes that the kernels do not read."""
        if self.num_ranks < 1 or self.max_rows < 1 or self.copies < 1:
            raise ValueError(f"box: got {self}, expected at least one rank, row and copy")
        if self.width < 8 or self.width % 8:
            raise ValueError(f"width: got {self.width}, expected a multiple of 8")

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """Dimensions of the BF16 tensor."""
        return (self.copies, self.num_ranks, self.max_rows, self.width)


def copy_schedule(num_exchanges: int, *, between: int = 0) -> tuple[int, ...]:
    """Which copy each of a step's exchanges uses, so that no copy is filled before all ranks have emptied it.

    A copy may be filled again once every rank has taken part in one further complete exchange that a rank
    publishes only after it has emptied its box. So two exchanges that follow one another, the last of a step
    and the first of the next included, need different copies, unless `between` further complete exchanges over
    other boxes lie between them. The owners' sums of a two-shot exchange are none of these: the kernel that
    publishes them is the one that empties the chunks, and a sum may arrive before the emptying has. Its chunk
    boxes and its result boxes follow the schedule of the layers, each on its own.

    Args:
        num_exchanges: exchanges over this box in a step, one a layer.
        between: complete exchanges over other boxes between any two of them, the wrap to the next step
            included, each published by a kernel behind the one that empties this box.

    Returns:
        The copy of each exchange, from 0.

    Raises:
        ValueError: there is no exchange.
    """
    if num_exchanges < 1:
        raise ValueError(f"num_exchanges: got {num_exchanges}, expected at least 1")
    if between >= 1:
        return (0,) * num_exchanges
    if num_exchanges == 1:
        raise ValueError(
            "one exchange a step over one box follows itself: an exchange over another box is needed"
        )
    odd = num_exchanges % 2
    return tuple(i % 2 for i in range(num_exchanges - odd)) + (2,) * odd
