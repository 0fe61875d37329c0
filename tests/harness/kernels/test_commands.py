"""`fasttrack kernels` on a subject of a few lines."""

import json
import sys
from pathlib import Path

from harness.cli import main
from harness.kernels.records import (
    CompileRun,
)
from harness.model.kernel_tests import (
    KernelTestRun,
)
from harness.model.words import ExitCode

ALL_PASS = """
from toy_kernels import COUNTS


def test_both():
    COUNTS.update(["small", "large", "large"])
"""
MIXED = """
import pytest
from toy_kernels import COUNTS


@pytest.fixture
def broken():
    raise RuntimeError("no set-up")


def test_passes():
    COUNTS.update(["small"])


def test_fails():
    COUNTS.update(["large"])
    assert COUNTS["large"] == 7, "seven"


def test_is_skipped():
    pytest.skip("no GPU here")


def test_cannot_begin(broken):
    pass
"""


def run_tests(toy: Path, text: str, *more: str) -> tuple[int, KernelTestRun]:
    (toy.parent / "toy_tests" / "test_toy.py").write_text(text)
    out = toy.parent / "run.json"
    code = main(["kernels", "test", "--manifest", str(toy), "--out", str(out), "--quiet", *more])
    return code, KernelTestRun(**json.loads(out.read_text()))


def test_list_names_each_variant_with_its_roles(toy, capsys):
    assert main(["kernels", "list", "--manifest", str(toy)]) == ExitCode.ADMIT
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[1:3]] == ["small", "large"]
    assert "0:static" in lines[1]


def test_list_as_json_is_one_document(toy, capsys):
    main(["kernels", "list", "--manifest", str(toy), "--format", "json"])
    assert json.loads(capsys.readouterr().out)["variants"][1]["name"] == "large"


def test_a_manifest_without_an_inventory_is_refused(toy, capsys):
    toy.write_text('schema_version = 1\n[kernels]\ntests = ["toy_tests"]\n')
    assert main(["kernels", "list", "--manifest", str(toy)]) == ExitCode.USAGE
    assert "has no 'inventory'" in capsys.readouterr().err


def test_a_subject_that_cannot_be_imported_is_an_error_with_its_own_words(toy, capsys):
    (toy.parent / "toy_kernels.py").write_text("raise RuntimeError('not today')\n")
    assert main(["kernels", "list", "--manifest", str(toy)]) == ExitCode.HARNESS
    assert "not today" in capsys.readouterr().err


def test_tests_that_pass_and_launch_every_variant_leave_nothing_open(toy):
    code, run = run_tests(toy, ALL_PASS)
    assert code == ExitCode.ADMIT
    assert run.tests[0].launched == {"small": 1, "large": 2}


def test_a_variant_that_no_test_launched_stays_open(toy):
    code, run = run_tests(toy, ALL_PASS.replace('"large", "large"', ""))
    assert (code, run.never_launched) == (ExitCode.UNDECIDED, ("large",))


def test_each_test_keeps_its_own_outcome(toy):
    code, run = run_tests(toy, MIXED)
    outcomes = {t.test.rpartition("::")[2]: t.outcome for t in run.tests}
    assert code == ExitCode.REJECT
    assert outcomes == {
        "test_passes": "passed",
        "test_fails": "failed",
        "test_is_skipped": "not_run",
        "test_cannot_begin": "error",
    }


def test_a_failed_test_keeps_the_first_line_of_its_error(toy):
    _, run = run_tests(toy, MIXED)
    assert run.tests[1].reason == "AssertionError: seven"


def test_each_test_keeps_its_own_launches(toy):
    _, run = run_tests(toy, MIXED)
    assert [t.launched for t in run.tests[:2]] == [{"small": 1}, {"large": 1}]


def test_the_launches_of_a_failed_test_cover_nothing(toy):
    _, run = run_tests(toy, MIXED)
    assert run.never_launched == ("large",)


def test_a_skipped_test_leaves_the_run_open(toy):
    code, run = run_tests(
        toy, ALL_PASS + "\n\ndef test_skipped():\n    import pytest\n    pytest.skip('no GPU')\n"
    )
    assert code == ExitCode.UNDECIDED
    assert run.tests[1].reason.endswith("no GPU")


def test_arguments_behind_the_options_go_to_pytest(toy):
    _, run = run_tests(toy, MIXED, "-k", "passes")
    assert [t.outcome for t in run.tests] == ["passed"]


def test_a_selection_of_tests_is_in_order_when_it_launches_the_variants_that_it_is_held_against(toy):
    code, run = run_tests(toy, MIXED, "-k", "passes", "--match", "sm*")
    assert (code, run.match, run.never_launched) == (ExitCode.ADMIT, "sm*", ())


def test_a_selection_of_tests_is_open_while_a_variant_that_it_is_held_against_is_not_launched(toy):
    code, run = run_tests(toy, MIXED, "-k", "passes", "--match", "*l*")
    assert (code, run.never_launched) == (ExitCode.UNDECIDED, ("large",))


def test_no_test_at_all_is_not_in_order(toy):
    code, run = run_tests(toy, "")
    assert (code, run.tests) == (ExitCode.UNDECIDED, ())


def test_a_run_that_dies_keeps_what_it_had_recorded(toy):
    dying = ALL_PASS + "\n\ndef test_dies():\n    import os\n    os._exit(9)\n"
    code, run = run_tests(toy, dying)
    assert code == ExitCode.REJECT
    assert [t.outcome for t in run.tests] == ["passed"]


def test_an_unknown_architecture_is_refused(toy, capsys):
    assert main(["kernels", "compile", "--manifest", str(toy), "--arch", "sm_75"]) == ExitCode.USAGE
    assert "sm_75" in capsys.readouterr().err


def test_an_inventory_that_compiles_nothing_names_every_missing_variant(toy, capsys):
    toy.write_text(
        toy.read_text() + '[[kernels.entries]]\nentry = "toy_kernels:variants"\narches = ["sm_90a"]\n'
    )
    code = main(
        ["kernels", "compile", "--manifest", str(toy), "--no-cache", "--python", sys.executable, "--quiet"]
    )
    out = capsys.readouterr().out
    assert code == ExitCode.REJECT
    assert "gave no kernel: small (sm_90a)" in out


CUBIN = Path(__file__).parents[1] / "audit/fixtures/real/probe.sm_90a.cubin"
ENTRIES = f"""

def entry(*names):
    import pathlib, types
    for name in names:
        pathlib.Path(__file__).with_name(f"{{name}}.compiled").touch()
        yield name, types.SimpleNamespace(__cubin__=pathlib.Path({str(CUBIN)!r}).read_bytes())


def both():
    return entry("small", "large")


def small():
    return entry("small")


def large():
    return entry("large")
"""


def compile_only(toy: Path, match: str, *entries: tuple[str, str]) -> tuple[int, CompileRun]:
    (toy.parent / "toy_kernels.py").write_text((toy.parent / "toy_kernels.py").read_text() + ENTRIES)
    for name, glob in entries:
        text = (
            f'[[kernels.entries]]\nentry = "toy_kernels:{name}"\nvariants = "{glob}"\narches = ["sm_90a"]\n'
        )
        toy.write_text(toy.read_text() + text)
    out = toy.parent / "run.json"
    options = ["--no-cache", "--quiet", "--manifest", str(toy), "--out", str(out), "--match", match]
    return main(["kernels", "compile", *options]), CompileRun(**json.loads(out.read_text()))


def test_compiling_some_variants_records_these_and_misses_no_other(toy):
    code, run = compile_only(toy, "sm*", ("both", "*"))
    assert (code, run.match, [k.variant for k in run.kernels], run.missing) == (0, "sm*", ["small"], ())


def test_compiling_some_variants_leaves_out_entry_points_that_cannot_give_them(toy):
    compile_only(toy, "small", ("small", "small"), ("large", "large"))
    assert [path.stem for path in toy.parent.glob("*.compiled")] == ["small"]


def test_a_variant_that_was_asked_for_and_gave_no_kernel_is_missing(toy):
    code, run = compile_only(toy, "small", ("large", "*"))
    assert (code, run.missing) == (ExitCode.REJECT, ("small (sm_90a)",))
