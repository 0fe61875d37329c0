"""Laws of collecting a negative control."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from eval_suites.suite import Suite, SuitePart
from harness.app.negative_control import AMPLITUDE, collect_control
from harness.app.recorder import Progress, Recorder
from harness.model.completion import CompletionRequest
from harness.model.errors import EngineError
from harness.model.evaluation import SuiteItem
from harness.model.evidence import AnyEvidence, GapEvidence, SuiteEvidence

SUITE = Suite(
    name="mrcr_control",
    seed=5,
    parts=(
        SuitePart(
            concurrency=1,
            requests=(CompletionRequest(item="m0/k0@c1", row="m0", max_tokens=4, prompt_token_ids=(1,)),),
        ),
    ),
)


class Sink:
    def add(self, record: AnyEvidence) -> str:
        return record.id


class FakeSession:
    """A candidate that answers, and remembers when it was noisy."""

    command: tuple[str, ...] = ("serve",)

    def __init__(self, *, num_calls: int = 9, dies: bool = False) -> None:
        self.amplitude = 0.0
        self.said: list[str] = []
        self.num_calls = num_calls
        self.dies = dies

    @property
    def completer(self) -> FakeSession:
        return self

    def begin_suite(self, name: str) -> None:
        self.said.append(name)

    def perturb(self, amplitude: float, seed: int) -> int:
        self.said.append(f"noise {amplitude:g}, seed {seed}")
        self.amplitude = amplitude
        return self.num_calls

    def complete_many(
        self, requests: Sequence[CompletionRequest], *, concurrency: int, suite: str, together: bool = False
    ) -> tuple[SuiteItem, ...]:
        self.said.append(suite)
        if self.dies:
            raise EngineError("engine-died", "it died")
        return tuple(
            SuiteItem(
                item=r.item, request_id="x", row=r.row, concurrency=concurrency, num_prompt_tokens=1,
                token_ids=(1,), text="a", finish_reason="stop", num_completion_tokens=1,
            )
            for r in requests
        )  # fmt: skip


def collected(session: FakeSession) -> list[AnyEvidence]:
    recorder = Recorder(sink=Sink(), progress=Progress(quiet=True))
    collect_control(recorder, session, SUITE)  # type: ignore[arg-type]
    return recorder.records


def test_the_noise_lies_on_the_answers_of_the_control_alone_and_its_calls_are_recorded() -> None:
    session = FakeSession()
    (record,) = collected(session)
    assert session.said == ["mrcr_control", f"noise {AMPLITUDE:g}, seed 5", "mrcr_control", "noise 0, seed 0"]
    assert isinstance(record, SuiteEvidence) and record.num_perturbed_calls == 9 and record.perturbation


def test_a_subject_without_a_tensor_to_make_wrong_leaves_a_gap() -> None:
    gap, record = collected(FakeSession(num_calls=0))
    assert isinstance(gap, GapEvidence) and not gap.broke and "tensor" in gap.reason
    assert isinstance(record, SuiteEvidence) and record.num_perturbed_calls == 0


def test_an_engine_that_dies_under_the_noise_is_no_longer_noisy_and_leaves_a_gap() -> None:
    session = FakeSession(dies=True)
    (gap,) = collected(session)
    assert isinstance(gap, GapEvidence) and gap.broke and session.amplitude == 0


def test_a_control_that_is_recorded_is_not_asked_again() -> None:
    recorder = Recorder(sink=Sink(), progress=Progress(quiet=True))
    for _ in range(2):
        collect_control(recorder, FakeSession(), SUITE)  # type: ignore[arg-type]
    assert len(recorder.records) == 1


@pytest.mark.parametrize("num_calls", [0, 9])
def test_every_answer_that_was_sent_for_is_kept(num_calls: int) -> None:
    records = [r for r in collected(FakeSession(num_calls=num_calls)) if isinstance(r, SuiteEvidence)]
    assert [len(r.items) for r in records] == [1]
