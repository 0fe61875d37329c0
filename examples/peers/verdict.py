"""From what the processes of a part answered to its outcome and the reasons for it. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from examples.peers.facts import AbsenceFacts, Answer, ExchangeFacts, LossFacts, TimingFacts
from examples.peers.plan import ARMS, LOSSES, Part, cases
from harness.model.words import Outcome

LOSS_LIMIT_S = 20.0
"""From a signal to the stop of every other process."""
ABSENCE_LIMIT_S = 10.0
"""For an exchange that gives up after few looks."""
BASELINE_ERROR = 1e-2
"""Relative L2 error above which the baseline computed something else: a few roundings to BF16 stay below."""
WAITED_SHARE = 0.5
"""Of the late process's time, what every other process must have spent waiting."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A part of a job, as it was asked of the processes."""

    part: Part
    num_processes: int
    num_ranks: int

    @property
    def lost_process(self) -> int | None:
        """The one from which no answer is expected."""
        return self.num_processes - 1 if self.part in LOSSES else None

    @property
    def answering(self) -> list[int]:
        """All others."""
        return [process for process in range(self.num_processes) if process != self.lost_process]

    def ranks_of(self, process: int) -> range:
        """The ranks that a process serves."""
        count = self.num_ranks // self.num_processes
        return range(process * count, (process + 1) * count)


def decide_part(question: Question, answers: Sequence[Answer]) -> tuple[Outcome, tuple[str, ...]]:
    """The outcome of a part that was started, and why it is not `pass`: a case that a process left out fails it."""
    wanted = cases(question.part, question.num_processes, question.num_ranks)
    by_process = {answer.process: answer for answer in answers}
    failures = [why for p in question.answering for why in _gaps(p, wanted, by_process.get(p))]
    if failures:
        return Outcome.FAIL, tuple(failures)
    open_ends: list[str] = []
    for index, case in enumerate(wanted):
        seen = {p: by_process[p].facts[index] for p in question.answering}
        failures += [f"{case}: {why}" for why in _decide_case(question, seen)]
        open_ends += [f"{case}: {why}" for why in _unfinished(seen)]
    if failures:
        return Outcome.FAIL, tuple(failures)
    return (Outcome.INCONCLUSIVE, tuple(open_ends)) if open_ends else (Outcome.PASS, ())


def _gaps(process: int, wanted: Sequence[str], answer: Answer | None) -> list[str]:
    found = [facts.case for facts in answer.facts] if answer else []
    if found == list(wanted):
        return []
    missing = [case for case in wanted if case not in found]
    trouble = (answer.trouble if answer else None) or "it gave no reason"
    return [f"process {process} did not answer for {missing or 'the cases in order'}: {trouble}"]


def _unfinished(seen: Mapping[int, Any]) -> list[str]:
    return [
        f"process {process} ran {facts.ran} of {facts.asked} exchanges"
        for process, facts in seen.items()
        if isinstance(facts, ExchangeFacts) and facts.ran < facts.asked
    ]


def _decide_case(question: Question, seen: Mapping[int, Any]) -> list[str]:
    """Everything that is wrong with one case."""
    kind = {"absence": AbsenceFacts, "times": TimingFacts, **dict.fromkeys(LOSSES, LossFacts)}.get(
        question.part, ExchangeFacts
    )
    strangers = [process for process, facts in seen.items() if not isinstance(facts, kind)]
    if strangers:
        return [f"processes {strangers} answered with facts of another kind"]
    if kind is ExchangeFacts:
        return _decide_exchange(question, seen)
    if kind is LossFacts:
        return _decide_loss(question, seen)
    decide_one = _decide_absence if kind is AbsenceFacts else _decide_timing
    return [
        f"process {p}: {why}" for p, facts in seen.items() for why in decide_one(question.ranks_of(p), facts)
    ]


def _decide_exchange(question: Question, seen: Mapping[int, ExchangeFacts]) -> list[str]:
    found = [
        f"process {process}: {what}"
        for process, facts in seen.items()
        for what, is_so in {
            "no exchange ran": facts.ran == 0,
            f"{facts.wrong_elements} elements are not the sum's": facts.wrong_elements > 0,
            f"{facts.full_words} words of its boxes are not empty": facts.full_words > 0,
            f"error words {list(facts.error_words)}": any(facts.error_words),
            f"{len(facts.error_words)} error words": len(facts.error_words)
            != len(question.ranks_of(process)),
        }.items()
        if is_so
    ]
    if len({facts.digest for facts in seen.values()}) > 1:
        found.append("the processes' bits differ")
    if len({facts.ran for facts in seen.values()}) > 1:
        found.append(f"numbers of exchanges differ: {[facts.ran for facts in seen.values()]}")
    return found + (_decide_delay(seen) if question.part == "delays" else [])


def _decide_delay(seen: Mapping[int, ExchangeFacts]) -> list[str]:
    """Whether every other process waited: a delay that nobody felt showed nothing."""
    late = {facts.late_process for facts in seen.values()}
    times = {process: facts.elapsed_ms or 0.0 for process, facts in seen.items()}
    (process,) = late if len(late) == 1 else (None,)
    if process not in times:
        return ["the processes do not agree on which of them was late"]
    least = WAITED_SHARE * times[process]
    return [
        f"process {p} waited {time:.3f} ms, at least {least:.3f} ms were wanted"
        for p, time in times.items()
        if not time >= least > 0
    ]


def _decide_absence(ranks: range, facts: AbsenceFacts) -> list[str]:
    named = [1 + facts.absent_rank] * len(ranks)
    wrong = {
        f"error words {list(facts.error_words)}, expected {named}": list(facts.error_words) != named,
        "rows of the failed exchange are not NaN": not facts.rows_are_nan,
        f"gave up after {facts.seconds:.1f} s": facts.seconds > ABSENCE_LIMIT_S,
        f"{facts.wrong_elements_after} elements wrong afterwards": facts.wrong_elements_after > 0,
        f"{facts.full_words_after} words left afterwards": facts.full_words_after > 0,
    }
    return [what for what, is_so in wrong.items() if is_so]


def _decide_timing(ranks: range, facts: TimingFacts) -> list[str]:
    sizes = {len(values) for values in facts.samples_us.values()}
    wrong = {
        f"arms {sorted(facts.samples_us)}": set(facts.samples_us) != {*ARMS},
        f"rounds {sorted(sizes)}, expected one number of at least 3": len(sizes) != 1 or min(sizes) < 3,
        "a time that is not above 0": any(t <= 0 for values in facts.samples_us.values() for t in values),
        f"error words {list(facts.error_words)}": list(facts.error_words) != [0] * len(ranks),
        f"{facts.full_words} words of its boxes are not empty": facts.full_words > 0,
        f"{facts.wrong_elements} elements are not the sum's": facts.wrong_elements > 0,
        f"NCCL's result is off by {facts.baseline_error:.2g}": facts.baseline_error > BASELINE_ERROR,
    }
    return [what for what, is_so in wrong.items() if is_so]


def _decide_loss(question: Question, seen: Mapping[int, LossFacts]) -> list[str]:
    """Whether every other process stopped in time and said so, and one of them named the lost one.

    Processes that stopped are waited for in vain themselves, so the lost one need not be named by all.
    """
    lost = question.lost_process
    assert lost is not None
    found, named = [], set()
    for process, facts in seen.items():
        words = {word - 1 for word in facts.error_words if word}
        named |= words
        wrong = {
            f"error words {list(facts.error_words)}": len(facts.error_words)
            != len(question.ranks_of(process))
            or not all(facts.error_words),
            "it named itself": bool(words & {*question.ranks_of(process)}),
            "its rows are not NaN": not facts.rows_are_nan,
            f"it stopped {facts.stopped_s:.1f} s after the signal": not 0 <= facts.stopped_s <= LOSS_LIMIT_S,
            "it ran no exchange before": facts.exchanges == 0,
        }
        found += [f"process {process}: {what}" for what, is_so in wrong.items() if is_so]
    if not named & {*question.ranks_of(lost)}:
        found.append(f"nobody named process {lost}, which was lost")
    return found
