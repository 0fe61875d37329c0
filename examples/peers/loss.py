"""What a process does while another is killed or held: exchanges until its own kernels give up, and then it says so."""

from __future__ import annotations

import itertools

import torch

from examples.peers.data import draw_case, draw_weights, outputs
from examples.peers.exchange import OutputExchange
from examples.peers.session import Session

_AT_ONCE = 4
"""Exchanges between two looks at the error words: each may take all its looks before it gives up."""
_UNDER_WAY = 400
"""Exchanges, a multiple of those at once, after which the process says that it is running."""


def exchange_until_lost(session: Session) -> None:
    """Goes on until an error word says that a rank did not come, and writes what it saw."""
    cases = [draw_case(session, draw_weights(session), batch, batch) for batch in (8, 1)]
    exchange = OutputExchange(session, "one-shot")
    found = outputs(session, 8)
    for done in itertools.count(_AT_ONCE, _AT_ONCE):
        for index in range(_AT_ONCE):
            case = cases[index % len(cases)]
            rows = found[:, : session.num_local * case.num_rows]
            exchange.run(case.x, case.weight, case.residual, index % 2, rows[0], rows[1])
        torch.cuda.synchronize(session.device)
        words = exchange.error_words()
        if done == _UNDER_WAY:
            session.say("running")
        if any(words):
            is_nan = bool(rows[0].isnan().all())
            ranks = sorted({word - 1 for word in words if word})
            message = f"rank {ranks[0]} did not come: the exchange was given up, its rows are NaN"
            facts = {"exchanges": done, "error_words": words, "rows_are_nan": is_nan, "message": message}
            session.say("lost", facts=facts)
            return
