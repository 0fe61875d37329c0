"""Laws of `fasttrack sweep`: plans say the price, rehearsals decide nothing, what was measured is kept."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from harness.app import sweep as use_case
from harness.app.sweep_result import exit_code
from harness.cli import main
from harness.model.words import ExitCode, Verdict
from perf_sweeps.analysis import SweepResult
from perf_sweeps.block import Failure
from perf_sweeps.claims import ClaimResult, Support
from perf_sweeps.journal import RECORDS

REPO = Path(__file__).parents[3]


def run(out: Path, *arguments: str, expect: int = ExitCode.UNDECIDED) -> None:
    code = main(
        [
            "sweep",
            "--repo",
            str(REPO),
            "--out",
            str(out),
            "--base",
            "empty",
            "--address",
            "none",
            "--quiet",
            *arguments,
        ]
    )
    assert code == expect


@pytest.fixture(scope="module")
def rehearsed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("sweep") / "out"
    run(out, "--simulate", "0.9")
    return out


def test_a_rehearsal_admits_nothing_however_good_it_looks(rehearsed: Path) -> None:
    result = json.loads((rehearsed / "result.json").read_text())["result"]
    assert {c["outcome"] for c in result["cells"]} == {"pass"}
    assert result["verdict"] == "undecided"


def test_a_finished_sweep_is_judged_again_without_measuring(
    rehearsed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = (rehearsed / RECORDS).read_bytes()
    run(rehearsed, "--simulate", "0.9", "--resume")
    assert (rehearsed / RECORDS).read_bytes() == before
    assert "rehearsal" in capsys.readouterr().out


def test_a_sweep_is_not_gone_on_with_under_another_plan(
    rehearsed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(rehearsed, "--simulate", "0.8", "--resume", expect=ExitCode.USAGE)
    assert "another plan" in capsys.readouterr().err


def test_numbers_of_a_description_are_held_against_the_cells(
    rehearsed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "pr.md").write_text("At batch 8 it is 1.5x as fast, and 1.73x at batch 64.")
    text = str(tmp_path / "pr.md")
    run(
        rehearsed,
        "--simulate",
        "0.9",
        "--resume",
        "--pr-text",
        text,
        "--format",
        "json",
        expect=ExitCode.UNDECIDED,
    )
    claims = json.loads(capsys.readouterr().out)["claims"]
    assert [c["support"] for c in claims] == ["unsupported", "unsupported"]


def test_a_description_can_quote_the_sweep_as_a_table(
    rehearsed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(rehearsed, "--simulate", "0.9", "--resume", "--format", "md")
    text = capsys.readouterr().out
    assert text.startswith("**undecided**")
    assert "| input_len | output_len | batch | tp1 tok/s | tp1 speed-up |" in text


def test_a_slower_rehearsal_is_told_apart(tmp_path: Path) -> None:
    run(tmp_path / "out", "--simulate", "1.1", "--match", "decode/*/b1/*", expect=ExitCode.REJECT)


def test_the_tables_can_be_read_back(rehearsed: Path) -> None:
    pandas = pytest.importorskip("pandas", reason="needs the extra `sweep`")
    cells = pandas.read_parquet(rehearsed / "cells.parquet")
    assert len(cells) == 6
    assert cells["speedup"].between(1.09, 1.13).all()


def test_the_plan_says_the_price_and_starts_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(tmp_path / "out", "--plan", "--format", "json", expect=ExitCode.ADMIT)
    price = json.loads(capsys.readouterr().out)["price"]
    assert (len(price["lines"]), price["num_engines"]) == (6, 3)
    assert not (tmp_path / "out").exists()


def test_a_plan_names_the_cells_that_the_manifest_does_not_allow(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(tmp_path / "out", "--plan", "--preset", "k3-article", expect=ExitCode.ADMIT)
    assert "14 cells lie outside the manifest's scope" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--preset", "k3-artcle"), "Did you mean 'k3-article'?"),
        (("--preset", "k3-article"), "tensor parallel 16 (declared: 1)"),
        (("--match", "nothing"), "No cell"),
        (("--prompts", "/dev/null"), "no prompt"),
        (("--random-tokens", "--load", "vllm-bench"), "Random tokens have no text"),
        (("--trace", "/dev/null"), "it holds no conversation"),
        (("--tier", "gpu", "--preset", "overhead"), "Not on this machine: the gpu tier needs one CUDA GPU"),
        (("--tier", "gpu", "--preset", "cpu-agents"), "need an API server"),
        (("--tier", "gpu", "--load", "vllm-bench"), "need an API server"),
        (("--kernels",), "the arms of the cpu tier have none"),
        (("--tier", "gpu", "--preset", "k3-article-agents"), "at most 10240"),
    ],
)
def test_what_cannot_be_swept_is_said_before_anything_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], said: str
) -> None:
    run(tmp_path / "out", *arguments, expect=ExitCode.USAGE)
    assert said in capsys.readouterr().err


def test_what_a_server_says_of_its_machine_is_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lose(tasks: Any, _open_host: Any, keep: Any, *, sweep: str, **_: str) -> None:
        said = {"message": "No /home/somebody/model", "cause": "infrastructure", "recorded_at": "now"}
        keep(Failure.model_validate({"sweep": sweep, "cell": tasks[0].cell.name, "index": 0} | said))

    monkeypatch.setattr(use_case, "run_here", lose)
    run(tmp_path / "out", "--simulate", "0.9", "--match", "decode/*/b1/*")
    text = (tmp_path / "out" / RECORDS).read_text()
    assert "somebody" not in text and "No <home>" in text


def test_an_interrupted_sweep_says_what_it_has_and_ends_as_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measure = use_case.run_here

    def interrupted(tasks: Any, open_host: Any, keep: Any, **about: str) -> None:
        measure(tasks[:7], open_host, keep, **about)
        raise KeyboardInterrupt

    monkeypatch.setattr(use_case, "run_here", interrupted)
    run(tmp_path / "out", "--simulate", "0.9", expect=ExitCode.INTERRUPTED)
    cells = json.loads((tmp_path / "out" / "result.json").read_text())["result"]["cells"]
    assert [c["outcome"] for c in cells] == ["pass", "inconclusive", *["not_run"] * 4]


def test_the_tier_is_part_of_the_plan_and_chooses_what_of_the_manifest_is_in_scope(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ("--plan", "--preset", "overhead", "--format", "json", "--tier")
    names = {}
    for tier in ("cpu", "gpu"):
        run(tmp_path / "out", *asked, tier, expect=ExitCode.ADMIT)
        names[tier] = [line["cell"] for line in json.loads(capsys.readouterr().out)["price"]["lines"]]
    assert [cell["batch"] for cell in names["cpu"] + names["gpu"]] == [1, 8, 1, 64]
    run(tmp_path / "cpu", "--simulate", "0.9")
    run(tmp_path / "cpu", "--simulate", "0.9", "--resume", "--tier", "gpu", expect=ExitCode.USAGE)
    assert "another plan" in capsys.readouterr().err


def test_a_trace_is_the_one_cell_of_its_sweep_and_must_fit_the_scope(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    turn = {"added_tokens": 5000, "output_tokens": 8}
    (tmp_path / "t.jsonl").write_text(json.dumps({"id": "a", "turns": [turn]}))
    asked = ("--trace", str(tmp_path / "t.jsonl"), "--concurrency", "2")
    run(tmp_path / "out", *asked, expect=ExitCode.USAGE)
    assert "agent/tp1/b2/in5000/out8: 5008 tokens of context" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("verdict", "supports", "code"),
    [
        (Verdict.ADMIT, [], ExitCode.ADMIT),
        (Verdict.ADMIT, [Support.SUPPORTED], ExitCode.ADMIT),
        (Verdict.ADMIT, [Support.SUPPORTED, Support.UNSUPPORTED], ExitCode.UNDECIDED),
        (Verdict.ADMIT, [Support.UNDECIDED], ExitCode.UNDECIDED),
        (Verdict.ADMIT, [Support.CONTRADICTED], ExitCode.REJECT),
        (Verdict.UNDECIDED, [Support.SUPPORTED], ExitCode.UNDECIDED),
        (Verdict.REJECT, [], ExitCode.REJECT),
    ],
)
def test_a_stated_number_without_a_cell_keeps_a_sweep_from_admitting(
    verdict: Verdict, supports: list[Support], code: ExitCode
) -> None:
    claims: list[Any] = [ClaimResult(text="", support=s, reason="") for s in supports]
    assert exit_code(SweepResult(sweep="", verdict=verdict, cells=()), claims) is code
