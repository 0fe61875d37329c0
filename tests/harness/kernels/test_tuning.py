"""`fasttrack kernels tune`: a task without a choice that runs is shown, and the others are kept."""

import hashlib
import json
import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import ValidationError

from harness.cli import main
from harness.kernels.bench_run import run_tune
from harness.kernels.commands import tune_code
from harness.kernels.records import (
    Timing,
    TuneRun,
    TuningChoice,
)
from harness.kernels.rendering import render_tune
from harness.kernels.subject import load_subject
from harness.model.kernel_tests import (
    Machine,
)
from harness.model.words import ExitCode
from tests.harness.kernels.subjects import Dying

MACHINE = Machine(gpu="H200", driver="1", num_gpus=1, sm_clock_mhz=(), memory_clock_mhz=(), software={})
TIMING = Timing(median_us=1.0, low_us=1.0, high_us=1.0, rounds=5)
CHOSEN = TuningChoice(task="one runs", chosen="narrow", timings={"narrow": TIMING}, failures={})


def tune(toy, match: str) -> tuple[int, TuneRun]:
    out = toy.parent / "run.json"
    code = main(["kernels", "tune", "--manifest", str(toy), "--match", match, "--out", str(out)])
    return code, TuneRun(**json.loads(out.read_text()))


def test_a_task_of_which_no_choice_runs_is_listed_with_the_reason_of_each(pretended_gpu):
    _, run = tune(pretended_gpu, "none runs")
    reason = "ValueError: relative error 3e-1"
    assert [(c.chosen, c.failures) for c in run.choices] == [(None, {"wide": reason, "narrow": reason})]


def test_a_task_that_cannot_be_prepared_leaves_the_choices_of_the_others(pretended_gpu):
    _, run = tune(pretended_gpu, "*")
    assert run.choices[0].failures == {"prepare()": "ValueError: no weights"}
    assert [choice.chosen for choice in run.choices] == [None, None, "narrow"]


def test_only_what_was_chosen_is_saved(pretended_gpu):
    _, run = tune(pretended_gpu, "*")
    assert run.saved == "{'one runs': 'narrow'} for pretended GPU"


@pytest.mark.parametrize(
    ("match", "code"), [("*", ExitCode.UNDECIDED), ("c*", ExitCode.UNDECIDED), ("one*", ExitCode.ADMIT)]
)
def test_tuning_is_in_order_only_when_every_task_has_a_choice_that_runs(pretended_gpu, match, code):
    assert tune(pretended_gpu, match)[0] == code


def test_the_text_names_each_task_without_a_choice_and_why(pretended_gpu, capsys):
    tune(pretended_gpu, "c*")
    out = capsys.readouterr().out
    assert "did not run: cannot begin: prepare(): ValueError: no weights" in out
    assert "no choice ran: cannot begin" in out and "saved: nothing" in out


def test_a_tuning_that_dies_keeps_what_it_had_timed_and_stays_open():
    run = run_tune(Dying({"machine": MACHINE.model_dump()}, {"choice": CHOSEN.model_dump()}), "*", 5)
    assert (run.choices, run.saved, tune_code(run)) == ((CHOSEN,), "", ExitCode.UNDECIDED)
    assert "ended early: CUDA error" in render_tune(run)


def test_a_tuning_names_the_digest_of_each_source_that_it_ran(pretended_gpu):
    _, run = tune(pretended_gpu, "one*")
    source = (pretended_gpu.parent / "toy_kernels.py").read_bytes()
    assert run.sources["toy_kernels.py"] == hashlib.sha256(source).hexdigest()


def interrupt_behind(monkeypatch, *lines: dict[str, object]) -> None:
    """Each process is interrupted when it has written these."""

    def interrupt(command, **_options):
        Path(command[command.index("--out") + 1]).write_text("\n".join(map(json.dumps, lines)))
        raise KeyboardInterrupt

    monkeypatch.setattr(subprocess, "run", interrupt)


def test_an_interrupted_tuning_keeps_what_it_had_timed_and_stays_open(toy, monkeypatch):
    interrupt_behind(monkeypatch, {"machine": MACHINE.model_dump()}, {"choice": CHOSEN.model_dump()})
    code, run = tune(toy, "*")
    assert (code, run.choices) == (ExitCode.UNDECIDED, (CHOSEN,))
    assert "an interrupt" in run.stopped_by


def test_an_interrupt_before_anything_is_timed_stays_an_interrupt(toy, monkeypatch):
    interrupt_behind(monkeypatch)
    subject = load_subject(toy, Path(sys.executable))
    with pytest.raises(KeyboardInterrupt):
        run_tune(subject, "*", 5)


@pytest.mark.parametrize(
    ("chosen", "timings"), [("wide", {"narrow": TIMING}), (None, {"narrow": TIMING}), ("x", {})]
)
def test_a_choice_that_was_not_timed_does_not_parse(chosen, timings):
    with pytest.raises(ValidationError, match="not timed"):
        TuningChoice(task="toy", chosen=chosen, timings=timings, failures={})
