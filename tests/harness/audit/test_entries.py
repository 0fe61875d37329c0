"""Entry points from a manifest or the command line: what they compile is audited, what they break is said."""

from __future__ import annotations

import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from harness.audit.command import audit
from harness.audit.modules import Module, Text, audit_module
from harness.audit.pool import audit_modules
from harness.audit.roles import parse_options
from harness.audit.toolchain.disassembler import ToolMissingError, find_nvdisasm
from harness.model.errors import ConfigurationError
from harness.model.kernel_audit import Decision
from harness.model.kernels import Launch
from harness.options import CommandResult
from tests.harness.audit.fixture_cases import FOLDER

ROOT = Path(__file__).parents[3]
ENTRIES = f"""
import os, pathlib, signal, sys, time

class Compiled:
    def __init__(self, ptx):
        arch = os.environ["CUTE_DSL_ARCH"]
        text = pathlib.Path({str(FOLDER)!r}, ptx + ".ptx").read_text()
        self.asm = {{"ptx": text.replace("sm_90", arch).replace("aa", "a")}}
        self.asm["cubin"] = b"not a cubin"

def clean():
    yield "batch=1", Compiled("hoisted_load_clean")
    yield "batch=2", Compiled("hoisted_load_clean")

def fault():
    yield "batch=1", Compiled("hoisted_load_fault")

def garbage():
    sys.stderr.buffer.write(b"\\xff\\x1b[2J" * 100_000)
    print("on stdout", flush=True)
    pathlib.Path(os.environ["CUTE_DSL_DUMP_DIR"], "x.ptx").write_bytes(b"\\xff\\xfe garbage")
    yield "batch=1"

def raises():
    raise ValueError("no such tile")

def hangs():
    time.sleep(600)

def crashes():
    os.kill(os.getpid(), signal.SIGSEGV)

def spoils_its_record():
    import atexit
    folder = pathlib.Path(os.environ["CUTE_DSL_DUMP_DIR"]).parent
    atexit.register(lambda: (folder / "record.json").write_text('{{"variants": 3}}'))
    yield "batch=1", Compiled("hoisted_load_clean")
"""
ROLES = {"w": "static", "out": "output"}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "made_entries.py").write_text(ENTRIES)
    return tmp_path


def manifest(folder: Path, *entries: dict[str, Any]) -> Path:
    text = (ROOT / "fasttrack.toml").read_text().split("\n[kernels]")[0]
    text += '\n[kernels]\nimport_roots = ["."]\n'
    for entry in entries:
        roles = ", ".join(f'{k} = "{v}"' for k, v in entry.pop("roles", ROLES).items())
        text += "\n[[kernels.entries]]\n" + "".join(f"{k} = {json.dumps(v)}\n" for k, v in entry.items())
        text += f"roles = {{ {roles} }}\n"
    path = folder / "fasttrack.toml"
    path.write_text(text)
    return path


def run(*arguments: str | Path) -> CommandResult:
    result = audit.main(
        args=[*(str(a) for a in arguments), "--quiet"], prog_name="fasttrack audit", standalone_mode=False
    )
    assert isinstance(result, CommandResult)
    return result


def document(*arguments: str | Path) -> Any:
    return json.loads(run(*arguments, "--format", "json").text)


def findings_of(document: Any, outcome: str) -> list[Any]:
    return [f for f in document["findings"] if f["outcome"] == outcome]


def entry(name: str, **fields: Any) -> dict[str, Any]:
    return {"entry": f"made_entries:{name}", "arches": ["sm_90a"], **fields}


def test_a_manifest_gives_the_entry_points_and_the_roles(folder: Path) -> None:
    found = document("--manifest", manifest(folder, entry("fault", variants="batch=*")))
    (fault,) = findings_of(found, "fail")
    assert fault["check"] == "PDL001" and "made_entries:fault/batch=1" in fault["subject"]


def test_roles_of_the_manifest_free_a_read_and_the_command_line_has_the_last_word(folder: Path) -> None:
    path = manifest(folder, entry("fault", roles=ROLES | {"x": "static"}))
    assert findings_of(document("--manifest", path), "fail") == []
    assert len(findings_of(document("--manifest", path, "--role", "x=activation"), "fail")) == 1


def test_every_architecture_that_is_asked_for_is_compiled(folder: Path) -> None:
    found = document("--manifest", manifest(folder, entry("clean", arches=["sm_90a", "sm_103a"])))
    assert {k["arch"] for k in found["kernels"] if k["level"] == "ptx"} == {"sm_90a", "sm_103a"}


def test_a_variant_that_no_entry_matches_is_named_as_not_looked_at(folder: Path) -> None:
    found = document("--manifest", manifest(folder, entry("clean", variants="batch=1")))
    assert any(
        f["subject"].endswith("clean/batch=2") and "nobody looked" in f["message"]
        for f in findings_of(found, "not_run")
    )


def test_an_entry_point_can_be_chosen_and_one_that_is_not_declared_is_refused(folder: Path) -> None:
    path = manifest(folder, entry("clean"), entry("fault"))
    assert findings_of(document("made_entries:clean", "--manifest", path), "fail") == []
    with pytest.raises(ConfigurationError, match="no entry point of"):
        run("made_entries:other", "--manifest", path)


def test_a_manifest_may_hold_kernels_alone_and_its_errors_are_told_as_a_whole_ones(folder: Path) -> None:
    whole = manifest(folder, entry("fault")).read_text()
    alone = folder / "kernels.toml"
    alone.write_text("schema_version = 1\n" + whole[whole.index("\n[kernels]") :])
    assert findings_of(document("--manifest", alone), "fail")
    alone.write_text(alone.read_text().replace("sm_90a", "sm_99"))
    with pytest.raises(ConfigurationError, match=r'kernels.entries\[0\].arches\[0\]: got "sm_99"'):
        run("--manifest", alone)


def test_a_manifest_without_kernels_is_refused_with_what_to_write(folder: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"declares no entry point under \[kernels\]"):
        run("--manifest", manifest(folder))


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("raises", "no such tile"),
        ("hangs", "did not end within its time"),
        ("crashes", "killed by a signal"),
        ("missing", "has no attribute 'missing'"),
    ],
)
def test_an_entry_point_that_gives_nothing_is_not_run_and_says_why(
    folder: Path, name: str, words: str
) -> None:
    found = document("--manifest", manifest(folder, entry(name)), "--timeout", "5")
    (missing,) = findings_of(found, "not_run")
    assert found["exit_code"] == 3 and words in missing["message"]


@pytest.mark.parametrize("name", ["garbage", "spoils_its_record"])
def test_garbage_from_an_entry_point_never_passes(folder: Path, name: str) -> None:
    found = document("--manifest", manifest(folder, entry(name)))
    assert found["verdict"] == "undecided" and found["exit_code"] == 3


def test_machine_code_that_nobody_could_read_is_named_and_nothing_passes_as_a_whole(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("harness.audit.toolchain.disassembler.DISTRIBUTION", "no-such-distribution")
    monkeypatch.setenv("PATH", "")
    found = document("--manifest", manifest(folder, entry("clean")))
    missing = findings_of(found, "not_run")
    assert found["exit_code"] == 3 and all("No nvdisasm" in f["message"] for f in missing) and missing


def test_an_interpreter_that_is_not_there_is_a_usage_error(folder: Path) -> None:
    with pytest.raises(ConfigurationError, match="no/such/python"):
        run("--manifest", manifest(folder, entry("clean")), "--python", "no/such/python")


def test_json_has_a_verdict_with_its_reason() -> None:
    found = document(FOLDER / "hoisted_load_fault.ptx", "--role", "w=static", "--role", "out=output")
    assert (found["schema_version"], found["verdict"], found["exit_code"]) == (1, "reject", 1)
    assert "1 fail" in found["reason"] and "PDL001" in found["reason"]


def test_kernels_that_no_rule_applies_to_are_said_to_be_just_that(tmp_path: Path) -> None:
    plain = (FOLDER / "hoisted_load_clean.ptx").read_text().replace("griddepcontrol.wait;", "")
    (tmp_path / "k.ptx").write_text(plain.replace("griddepcontrol.launch_dependents;", ""))
    assert document(tmp_path)["reason"].startswith("No rule applies")


def test_a_launch_that_nobody_states_is_what_the_ptx_tells_also_for_its_machine_code() -> None:
    ptx = Text(name="k.ptx", content=FOLDER / "hoisted_load_clean.ptx")
    sass_text = (FOLDER.parent / "sass" / "sm_90a" / "hoisted_load_clean.sass").read_text()
    without = sass_text.replace("ACQBULK", "NOP").replace("PREEXIT", "NOP")
    sass = Text(name="k.sass", content=without.encode())
    options = parse_options({"roles": ROLES})
    found = audit_module(Module(name="k", ptx=(ptx,), sass=(sass,), options=options))
    assert [k.launch for k in found.kernels] == [Launch.PDL, Launch.PDL]
    machine = [r for k in found.kernels if k.level == "sass" for r in k.results if r.rule == "PDL001"]
    assert [r.decision for r in machine] == [Decision.SHOWN]


def test_a_declared_launch_is_not_overruled_by_the_text() -> None:
    module = Module(
        name="k",
        ptx=(Text(name="k.ptx", content=FOLDER / "hoisted_load_fault.ptx"),),
        options=parse_options({"launch": "plain"}),
    )
    assert {k.launch for k in audit_module(module).kernels} == {Launch.PLAIN}


def test_resources_of_machine_code_are_told(tmp_path: Path) -> None:
    shutil.copy(FOLDER.parent / "sass" / "sm_90a" / "hoisted_load_clean.sass", tmp_path / "k.sass")
    (kernel,) = document(tmp_path)["kernels"]
    assert kernel["resources"]["registers"] > 0 and kernel["resources"]["mix"]["global load"] >= 1


def test_the_disassembler_of_another_interpreter_is_found(tmp_path: Path) -> None:
    tool = tmp_path / "nvdisasm"
    tool.write_text("")
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\necho {tool}\n")
    python.chmod(0o755)
    try:
        find_nvdisasm()
    except ToolMissingError:
        assert find_nvdisasm(python) == tool
    else:
        pytest.skip("this machine has a disassembler of its own, which comes first")


def test_a_module_that_takes_too_long_is_undecided_and_says_so() -> None:
    text = "\n".join([".version 8.0\n.target sm_90a\n.address_size 64"] * 50_000)
    slow = Module(name="slow", ptx=(Text(name="slow", content=text.encode()),))
    (late,) = audit_modules([slow], timeout_s=0.05)
    assert "did not come to an end" in late.unread[0].reason and not late.unread[0].broke


def test_a_module_that_cannot_be_read_is_a_failure_of_its_own() -> None:
    gone = Module(name="gone", ptx=(Text(name="gone", content=Path("no/such.ptx")),))
    good = Module(name="good", ptx=(Text(name="good", content=FOLDER / "hoisted_load_clean.ptx"),))
    broken, found = audit_modules([gone, good])
    assert broken.unread[0].broke and len(found.kernels) == 1


def test_a_module_is_audited_from_any_thread() -> None:
    good = Module(name="good", ptx=(Text(name="good", content=FOLDER / "hoisted_load_clean.ptx"),))
    with ThreadPoolExecutor(1) as pool:
        (found,) = pool.submit(audit_modules, [good]).result()
    assert len(found.kernels) == 1 and not found.unread
