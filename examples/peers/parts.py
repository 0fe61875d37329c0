"""Parts that all processes come through: payloads, many iterations, a process that is late, a rank that is absent."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from examples.peers.data import (
    Case,
    count_wrong,
    digest,
    draw_case,
    draw_weights,
    outputs,
    payload_case,
)
from examples.peers.exchange import COPIES, OutputExchange
from examples.peers.facts import AbsenceFacts, ExchangeFacts
from examples.peers.graphs import repeat
from examples.peers.plan import BATCHES, FORMS, LAUNCHES, PAYLOADS, PLACES, UPDATES
from examples.peers.session import Session
from specialized_path.kernels.exchange.protocol import copy_schedule

_DATA = 4
"""Sets of rows for each batch: a word left over from an earlier exchange belongs to another set."""
_LATE_CYCLES = 2_000_000
"""A millisecond at 2 GHz."""
_LATE_EXCHANGES = 8
_FEW_POLLS = 20_000


def payloads(session: Session) -> Iterator[ExchangeFacts]:
    """Every payload once in every form, with an output that is all NaN before."""
    for form in FORMS:
        exchange = OutputExchange(session, form)
        for update in UPDATES:
            for name in PAYLOADS:
                case = payload_case(session, name, update)
                found = outputs(session, case.num_rows)
                # What a process loads at its first case would make it late for the others.
                session.meet()
                start = time.monotonic()
                _run(exchange, case, 0, found, update)
                session.meet()
                yield ExchangeFacts(
                    case=f"{form}, {update}, {name}",
                    asked=1,
                    ran=1,
                    wrong_elements=int(count_wrong(case, found)),
                    # Every local rank has the same rows, or they would not all be the wanted ones.
                    digest=digest([found[:, : case.num_rows]]),
                    full_words=exchange.full_words(),
                    error_words=exchange.error_words(),
                    seconds=time.monotonic() - start,
                )
        exchange.close()


def iterations(session: Session) -> Iterator[ExchangeFacts]:
    """A graph of exchanges of every batch and several sets of data, each compared on the GPU, over and over."""
    weights = draw_weights(session)
    cases = _mixed_cases(session, weights)
    wanted = digest(case.wanted for case in cases)
    for form in FORMS:
        for launch in LAUNCHES:
            exchange = OutputExchange(session, form, use_pdl=launch == "dependent")
            wrong = torch.zeros((), dtype=torch.int64, device=session.device)
            ran, seconds = _repeat(session, exchange, cases, wrong)
            yield ExchangeFacts(
                case=f"{form}, {launch}",
                asked=session.num_iterations,
                ran=ran,
                wrong_elements=int(wrong),
                digest=wanted,
                full_words=exchange.full_words(),
                error_words=exchange.error_words(),
                seconds=seconds,
            )
            exchange.close()


def delays(session: Session) -> Iterator[ExchangeFacts]:
    """Exchanges in a row in which one process is a millisecond late each time, before it publishes or consumes."""
    cases = _mixed_cases(session, draw_weights(session))[:_LATE_EXCHANGES]
    wanted = digest(case.wanted for case in cases)
    for form in FORMS:
        exchange = OutputExchange(session, form)
        for late in range(session.num_processes):
            for place in PLACES:
                wrong = torch.zeros((), dtype=torch.int64, device=session.device)
                start = time.monotonic()
                elapsed_ms = _held_up(
                    session, exchange, cases, wrong, place if late == session.process else None
                )
                session.meet()
                yield ExchangeFacts(
                    case=f"{form}, process {late} late to {place}",
                    asked=len(cases),
                    ran=len(cases),
                    wrong_elements=int(wrong),
                    digest=wanted,
                    full_words=exchange.full_words(),
                    error_words=exchange.error_words(),
                    seconds=time.monotonic() - start,
                    late_process=late,
                    elapsed_ms=elapsed_ms,
                )
        exchange.close()


def absence(session: Session) -> Iterator[AbsenceFacts]:
    """A publisher (one-shot) or an owner (two-shot) that leaves one exchange out, then one exchange with all."""
    case = draw_case(session, draw_weights(session), 2, 7)
    for form in FORMS:
        exchange = OutputExchange(session, form)
        found = outputs(session, case.num_rows)
        _run(exchange, case, 1, found)
        for absent in (0, session.num_ranks - 1):
            session.meet()
            start = time.monotonic()
            exchange.publish(case.x, case.weight, 0, but=absent if form == "one-shot" else None)
            # What there is to take lies in the boxes before anybody has few looks left.
            session.meet()
            exchange.reduce(case.num_rows, 0, but=absent)
            session.meet()
            exchange.consume(case.residual, 0, found[0], found[1], polls=_FEW_POLLS)
            torch.cuda.synchronize(session.device)
            seconds = time.monotonic() - start
            words, is_nan = exchange.error_words(), bool(found[0].isnan().all())
            exchange.empty()
            _run(exchange, case, 0, found)
            session.meet()
            yield AbsenceFacts(
                case=f"{form}, rank {absent} absent",
                absent_rank=absent,
                error_words=words,
                rows_are_nan=is_nan,
                seconds=seconds,
                wrong_elements_after=int(count_wrong(case, found)),
                full_words_after=exchange.full_words(),
            )
        exchange.close()


def _run(exchange: OutputExchange, case: Case, copy: int, found: Tensor, update: str = "add") -> None:
    exchange.run(case.x, case.weight, case.residual, copy, found[0], found[1], update=update)


def _mixed_cases(session: Session, weights: Tensor) -> list[Case]:
    """Batches that shrink and grow; an exchange's data is not that of the one that used its copy before."""
    large_and_small = [batch for pair in zip(BATCHES[::-1], BATCHES, strict=True) for batch in pair]
    batches = large_and_small[: len(BATCHES)] * _DATA
    return [draw_case(session, weights, batch, 10 + index) for index, batch in enumerate(batches)]


def _repeat(
    session: Session, exchange: OutputExchange, cases: Sequence[Case], wrong: Tensor
) -> tuple[int, float]:
    """`repeat` of one exchange of each case, compared."""
    copies = copy_schedule(len(cases))
    assert max(copies) < COPIES
    space = outputs(session, max(BATCHES))

    def cycle() -> None:
        for case, copy in zip(cases, copies, strict=True):
            # One place for all: rows that an exchange did not write are another one's.
            found = space[:, : session.num_local * case.num_rows]
            _run(exchange, case, copy, found)
            wrong.add_(count_wrong(case, found))

    return repeat(session, cycle, len(cases), session.num_iterations, lambda: any(exchange.error_words()))


def _held_up(
    session: Session, exchange: OutputExchange, cases: Sequence[Case], wrong: Tensor, place: str | None
) -> float:
    """Milliseconds of the exchanges on this GPU; `place` is where this process is late, None where it is not."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    kept = [outputs(session, case.num_rows) for case in cases]
    session.meet()
    start.record()
    for index, (case, found) in enumerate(zip(cases, kept, strict=True)):
        if place == "publish":
            torch.cuda._sleep(_LATE_CYCLES)
        exchange.publish(case.x, case.weight, index % COPIES)
        exchange.reduce(case.num_rows, index % COPIES)
        if place == "consume":
            torch.cuda._sleep(_LATE_CYCLES)
        exchange.consume(case.residual, index % COPIES, found[0], found[1])
    end.record()
    session.meet()
    for case, found in zip(cases, kept, strict=True):
        wrong.add_(count_wrong(case, found))
    return float(start.elapsed_time(end))
