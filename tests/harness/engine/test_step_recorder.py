"""A ledger written short and one written in full are the same ledger, whatever an engine schedules and samples."""

from __future__ import annotations

import gc
import json
import tempfile
import weakref
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.engine import step_recorder
from harness.engine.ledger_file import LedgerFile
from harness.engine.ledger_reader import RowReader
from harness.engine.step_recorder import StepRecorder
from harness.engine.trace_settings import DecisionTarget
from harness.model.ledger import LedgerRow

NAMES = "abc"
PROMPT = 3
POINT = DecisionTarget(target="plan", value="", specialized="specialized")
STEP = st.fixed_dictionaries(
    {
        # Mostly everything goes on, or nothing would ever be written short.
        "who": st.one_of(
            st.just(NAMES), st.just(NAMES), st.just(NAMES), st.sampled_from(["ab", "ba", "c", "cba"])
        ),
        "emits": st.one_of(st.just(1), st.just(1), st.just(1), st.integers(0, 2)),
        "ends": st.one_of(st.just(""), st.just(""), st.just(""), st.sampled_from(NAMES)),
        "runs": st.one_of(st.just("g"), st.text("ghdf", max_size=4)),
        "drafts": st.one_of(st.just(0), st.just(0), st.just(0), st.integers(1, 2)),
    }
)


class MadeScheduler:
    """Prefills a request when it first comes, then decodes it from where it is."""

    def __init__(self) -> None:
        self.computed: dict[str, int] = {}
        self.ended: set[str] = set()

    def output(self, who: str, drafts: int) -> Any:
        fresh = [name for name in who if name not in self.computed]
        running = [name for name in who if name in self.computed]
        params = SimpleNamespace(stop_token_ids=[], eos_token_id=None, max_tokens=9)
        found = SimpleNamespace(
            finished_req_ids=set(self.ended),
            scheduled_new_reqs=[
                SimpleNamespace(
                    req_id=name,
                    num_computed_tokens=0,
                    prompt_token_ids=[1] * PROMPT,
                    prompt_embeds=None,
                    sampling_params=params,
                )
                for name in fresh
            ],
            scheduled_cached_reqs=SimpleNamespace(
                req_ids=running,
                num_computed_tokens=[self.computed[name] for name in running],
                num_output_tokens=[0] * len(running),
                resumed_req_ids=set(),
            ),
            scheduled_spec_decode_tokens={name: [7] * drafts for name in running if drafts},
            num_scheduled_tokens={name: PROMPT if name in fresh else 1 + drafts for name in who},
        )
        self.ended = set()
        for name in fresh:
            self.computed[name] = 0
        for name in who:
            self.computed[name] += PROMPT if name in fresh else 1
        return found

    def end(self, name: str) -> None:
        if self.computed.pop(name, None) is not None:
            self.ended.add(name)


def serve(recorder: StepRecorder, steps: Sequence[dict[str, Any]], num_in_flight: int) -> None:
    """An engine that, as vLLM's, changes a step's drafts and ends after the step has begun."""
    for kind, path in (("graph", "specialized"), ("other graph", "baseline")):
        recorder.capture_begun()
        recorder.count_wrapper(lambda: None, kind)()
        recorder.decision_wrapper(POINT)(lambda path=path: path, POINT.target)()
        recorder.capture_ended(kind)
    scheduler, waiting = MadeScheduler(), []
    for step in steps:
        scheduled = scheduler.output(step["who"], step["drafts"])
        recorder.around_execute(lambda _runner, _output, step=step: compute(recorder, step["runs"]))(
            None, scheduled
        )
        tokens = SimpleNamespace(
            sampled_token_ids=[[5] * step["emits"] for _ in step["who"]],
            req_id_to_index={name: index for index, name in enumerate(step["who"])},
        )
        result = SimpleNamespace(get_output=lambda tokens=tokens: tokens) if num_in_flight else tokens
        recorder.around_sample(lambda _runner, result=result: result)(None)
        scheduled.scheduled_spec_decode_tokens.clear()
        scheduled.finished_req_ids.clear()
        scheduled.scheduled_new_reqs.clear()
        if step["drafts"]:
            scheduled.num_scheduled_tokens.clear()
        waiting.append(result)
        if num_in_flight and len(waiting) >= num_in_flight:
            waiting.pop(0).get_output()
        if step["ends"]:
            scheduler.end(step["ends"])
    for result in waiting if num_in_flight else ():
        result.get_output()


def compute(recorder: StepRecorder, runs: str) -> None:
    """Runs what a step's letters say: a graph or another, a decision, a function."""
    for letter in runs:
        if letter in "gh":
            recorder.replayed({"g": "graph", "h": "other graph"}[letter])
        elif letter == "d":
            recorder.decision_wrapper(POINT)(lambda: "eager", POINT.target)()
        else:
            recorder.count_wrapper(lambda: None, "function")()


def rows_of(
    steps: Sequence[dict[str, Any]], *, is_short: bool, num_in_flight: int, is_held: bool = False
) -> tuple[list[LedgerRow], int]:
    """The rows of the ledger as they are read, and how many of them were written short."""
    with tempfile.TemporaryDirectory() as name:
        recorder = StepRecorder(LedgerFile(Path(name), "n"))
        if not is_short:
            recorder.book.goes_on = lambda _: None  # type: ignore[method-assign]
        with recorder.held_back() if is_held else nullcontext():
            serve(recorder, steps, num_in_flight)
        (path,) = Path(name).glob("*.jsonl")
        records = [json.loads(line) for line in path.read_text().splitlines()]
        assert not [r for r in records if r["kind"] == "error"]
        reader = RowReader()
        rows = [reader.read(r) for r in records if r["kind"] == "row"]
        return list(timeless(rows)), sum("goes_on" in r for r in records)


def timeless(rows: Sequence[LedgerRow]) -> Iterator[LedgerRow]:
    return (row.model_copy(update={"started_ns": 0, "duration_ns": 0}) for row in rows)


@given(st.lists(STEP, min_size=1, max_size=24), st.sampled_from([0, 1, 2]))
def test_a_ledger_written_short_reads_as_one_written_in_full(
    steps: list[dict[str, Any]], num_in_flight: int
) -> None:
    short, _ = rows_of(steps, is_short=True, num_in_flight=num_in_flight)
    full, num_short = rows_of(steps, is_short=False, num_in_flight=num_in_flight)
    assert short == full and num_short == 0


def test_a_steady_batch_is_written_short_from_its_third_step_on() -> None:
    steady = [{"who": NAMES, "emits": 1, "ends": "", "drafts": 0, "runs": "g"}] * 8
    assert [rows_of(steady, is_short=True, num_in_flight=n)[1] for n in (0, 1)] == [6, 6]


@given(st.lists(STEP, min_size=1, max_size=24), st.sampled_from([0, 1, 2]))
def test_rows_that_are_made_together_are_those_that_are_made_at_once(
    steps: list[dict[str, Any]], num_in_flight: int
) -> None:
    at_once, _ = rows_of(steps, is_short=False, num_in_flight=num_in_flight)
    together, _ = rows_of(steps, is_short=True, num_in_flight=num_in_flight, is_held=True)
    assert together == at_once


def test_what_a_step_ran_and_decided_is_told_in_its_order_whether_graph_or_not() -> None:
    steps = [{"who": NAMES, "emits": 1, "ends": "", "drafts": 0, "runs": runs} for runs in ("g", "dgfhd", "")]
    rows, _ = rows_of(steps, is_short=True, num_in_flight=0, is_held=True)
    assert [[(d.specialized) for d in row.decisions] for row in rows] == [
        [True],
        [False, True, False, False],
        [],
    ]
    assert [row.ran for row in rows] == [
        {"graph": 1},
        {"graph": 1, "function": 1, "other graph": 1},
        {},
    ]
    assert [row.graph_replayed for row in rows] == [True, True, False]


@pytest.mark.parametrize(("most", "num_made"), [(100_000, 1), (512, 33)])
def test_steps_of_a_block_count_once_they_are_settled_or_too_many_and_imports_are_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int, num_made: int
) -> None:
    monkeypatch.setattr(step_recorder, "MOST_KEPT", most)
    recorder, looks = StepRecorder(LedgerFile(tmp_path, "n")), []
    recorder.after_steps = lambda: looks.append(recorder.num_steps)
    with recorder.held_back():
        serve(recorder, [{"who": "a", "emits": 1, "ends": "", "drafts": 0, "runs": "g"}] * 40, 0)
        assert recorder.num_steps == num_made
        recorder.settle()
        assert recorder.num_steps == 40
    assert looks == [*sorted({1, num_made}), 40, 40]


def test_the_steps_of_a_block_that_fails_are_written(tmp_path: Path) -> None:
    recorder = StepRecorder(LedgerFile(tmp_path, "n"))
    with pytest.raises(RuntimeError), recorder.held_back():
        serve(recorder, [{"who": "a", "emits": 1, "ends": "", "drafts": 0, "runs": "g"}] * 3, 0)
        raise RuntimeError
    (file,) = tmp_path.iterdir()
    assert [json.loads(line).get("step") for line in file.read_text().splitlines()[1:]] == [0, 1, 2]


class LateOutput:
    """As the second model runner's: its tokens are there when the engine fetches them."""

    def __init__(self) -> None:
        self.fetched = 0

    def get_output(self) -> SimpleNamespace:
        self.fetched += 1
        return SimpleNamespace(sampled_token_ids=[[5]], req_id_to_index={"a": 0})


def test_a_late_output_is_kept_without_its_row_and_without_the_runners_own_object(tmp_path: Path) -> None:
    recorder = StepRecorder(LedgerFile(tmp_path, "n"))
    scheduler, ends = MadeScheduler(), []
    gc.disable()
    try:
        with recorder.held_back():
            for _ in range(5):
                late = LateOutput()
                recorder.around_execute(lambda *_: None)(None, scheduler.output("a", 0))
                assert recorder.around_sample(lambda _runner, late=late: late)(None) is late
                assert late.get_output().sampled_token_ids == [[5]] and late.fetched == 1
                ends.append(weakref.ref(late))
                del late
            assert [end() for end in ends] == [None] * 5
            assert recorder.num_steps == 1
    finally:
        gc.enable()
    assert recorder.num_steps == 5


def test_a_step_whose_output_nobody_fetches_has_no_row(tmp_path: Path) -> None:
    recorder, scheduler = StepRecorder(LedgerFile(tmp_path, "n")), MadeScheduler()
    with recorder.held_back():
        for late in (lates := [LateOutput() for _ in range(3)]):
            recorder.around_execute(lambda *_: None)(None, scheduler.output("a", 0))
            recorder.around_sample(lambda _runner, late=late: late)(None)
        lates[0].get_output()
        lates[2].get_output()
    (file,) = tmp_path.iterdir()
    assert [json.loads(line).get("step") for line in file.read_text().splitlines()[1:]] == [0, 2]
    lates[1].get_output()
    assert json.loads(file.read_text().splitlines()[-1])["step"] == 1
