"""Compiling, caching, disassembling: every failure of an entry point is an outcome that says why."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from harness.audit.kernel_manifest import declared_options
from harness.audit.sass import read_sass
from harness.audit.toolchain import disassembler
from harness.audit.toolchain.cache import KernelCache
from harness.audit.toolchain.compiler import CompileOutcome, Compiler, CompileRequest, Failure
from harness.audit.toolchain.disassembler import ToolMissingError, collect_sass, find_nvdisasm
from harness.audit.toolchain.dumps import collect_dumps
from harness.audit.toolchain.elf import CubinError, parse_cubin
from harness.audit.toolchain.occupancy import occupancy
from harness.model.kernels import KernelsSection

REAL = Path(__file__).parent / "fixtures" / "real"
ENTRIES = """
import os, pathlib, signal, sys, time

class Compiled:
    asm = {"ptx": "// made", "cubin": b"made"}

def good():
    return Compiled()

def variants():
    for name in ("batch=1", "batch=2"):
        folder = pathlib.Path(os.environ["CUTE_DSL_DUMP_DIR"])
        (folder / f"same_name.{os.environ['CUTE_DSL_ARCH']}.ptx").write_text(f"// {name}")
        yield name

def partly():
    yield "first", Compiled()
    raise ValueError("the second does not compile")

def reads_a_file():
    compiled = Compiled()
    compiled.asm = {"ptx": pathlib.Path(__file__).with_name("kernel.txt").read_text()}
    return compiled

def calls_a_compiler():
    import subprocess
    subprocess.run([str(pathlib.Path(__file__).with_name("nvcc"))], check=True)
    return Compiled()

def raises():
    raise ValueError("no such tile")

def crashes():
    print("about to die", file=sys.stderr, flush=True)
    os.kill(os.getpid(), signal.SIGSEGV)

def hangs():
    time.sleep(600)

def empty():
    return None
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "made_entries.py").write_text(ENTRIES)
    return tmp_path


def compile_one(
    root: Path, name: str, *, cache: KernelCache | None = None, timeout_s: float = 60
) -> CompileOutcome:
    request = CompileRequest(entry=f"made_entries:{name}", arch="sm_90a", import_roots=(root,))
    (outcome,) = Compiler(cache=cache, timeout_s=timeout_s).run([request])
    return outcome


def test_an_entry_point_gives_what_it_compiled(root: Path) -> None:
    outcome = compile_one(root, "good")
    assert [(m.ptx, m.cubin) for m in outcome.modules] == [("// made", b"made")]


def test_variants_that_the_compiler_gives_one_name_are_kept_apart(root: Path) -> None:
    outcome = compile_one(root, "variants")
    assert [(m.variant, m.ptx) for m in outcome.modules] == [
        ("batch=1", "// batch=1"),
        ("batch=2", "// batch=2"),
    ]


@pytest.mark.parametrize(
    ("name", "failure", "says"),
    [
        ("raises", Failure.RAISED, "no such tile"),
        ("crashes", Failure.CRASHED, "about to die"),
        ("empty", Failure.EMPTY, ""),
        ("no_such_function", Failure.RAISED, "no_such_function"),
    ],
)
def test_a_failing_entry_point_is_an_outcome_with_its_last_words(
    root: Path, name: str, failure: Failure, says: str
) -> None:
    outcome = compile_one(root, name)
    assert outcome.failure is failure and says in outcome.stderr_tail


def test_what_compiled_before_a_failure_is_kept_beside_it(root: Path) -> None:
    outcome = compile_one(root, "partly")
    assert (outcome.failure, [m.variant for m in outcome.modules]) == (Failure.RAISED, ["first"])


def test_an_entry_point_that_hangs_is_ended_at_its_bound(root: Path) -> None:
    started = time.monotonic()
    outcome = compile_one(root, "hangs", timeout_s=3)
    assert outcome.failure is Failure.TIMED_OUT and time.monotonic() - started < 30


def test_progress_counts_every_request_once(root: Path) -> None:
    requests = [
        CompileRequest(entry=f"made_entries:{n}", arch="sm_90a", import_roots=(root,))
        for n in ("good", "raises")
    ]
    seen: list[tuple[int, int]] = []
    Compiler().run(requests, lambda done, total, _: seen.append((done, total)))
    assert seen == [(1, 2), (2, 2)]


def test_an_unchanged_source_is_not_compiled_again(root: Path, tmp_path: Path) -> None:
    cache = KernelCache(root=tmp_path / "cache")
    outcomes = [compile_one(root, "good", cache=cache) for _ in range(2)]
    assert [o.from_cache for o in outcomes] == [False, True]
    assert outcomes[0].modules == outcomes[1].modules


def test_a_changed_source_is_compiled_again(root: Path, tmp_path: Path) -> None:
    cache = KernelCache(root=tmp_path / "cache")
    compile_one(root, "good", cache=cache)
    (root / "made_entries.py").write_text(ENTRIES.replace("// made", "// made anew"))
    outcome = compile_one(root, "good", cache=cache)
    assert (outcome.from_cache, outcome.modules[0].ptx) == (False, "// made anew")


def test_a_changed_file_that_the_entry_point_reads_is_noticed(root: Path, tmp_path: Path) -> None:
    cache = KernelCache(root=tmp_path / "cache")
    (root / "kernel.txt").write_text("// first")
    compile_one(root, "reads_a_file", cache=cache)
    assert compile_one(root, "reads_a_file", cache=cache).from_cache
    (root / "kernel.txt").write_text("// second")
    assert compile_one(root, "reads_a_file", cache=cache).modules[0].ptx == "// second"


def test_what_a_compiler_made_of_sources_that_nobody_saw_is_not_kept(root: Path, tmp_path: Path) -> None:
    (root / "nvcc").write_text("#!/bin/sh\n")
    (root / "nvcc").chmod(0o755)
    cache = KernelCache(root=tmp_path / "cache")
    assert compile_one(root, "calls_a_compiler", cache=cache).failure is None
    assert not compile_one(root, "calls_a_compiler", cache=cache).from_cache


def test_a_failure_is_never_taken_from_the_cache(root: Path, tmp_path: Path) -> None:
    cache = KernelCache(root=tmp_path / "cache")
    assert [compile_one(root, "partly", cache=cache).from_cache for _ in range(2)] == [False, False]


@pytest.mark.parametrize("arch", ["90", "103"])
def test_a_cubin_says_where_its_parameters_lie(arch: str) -> None:
    (kernel,) = parse_cubin((REAL / f"probe.sm_{arch}a.cubin").read_bytes()).kernels
    assert [(p.offset, p.size) for p in kernel.parameters] == [(0, 8), (8, 8), (16, 8), (24, 4)]
    assert kernel.parameter_base == {"90": 0x210, "103": 0x380}[arch]


def test_a_truncated_cubin_is_an_error_of_its_own_type() -> None:
    data = (REAL / "probe.sm_90a.cubin").read_bytes()
    for length in (0, 4, 40, 200, len(data) - 100):
        with pytest.raises(CubinError):
            parse_cubin(data[:length])


def test_a_cubin_disassembles_into_text_that_reads_without_a_problem() -> None:
    try:
        find_nvdisasm()
    except ToolMissingError as error:
        pytest.skip(error.message)
    (kernel,) = read_sass(collect_sass((REAL / "probe.sm_103a.cubin").read_bytes())).kernels
    assert kernel.problems == () and kernel.uses_dependent_launch


def test_a_missing_disassembler_names_the_extra_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disassembler, "DISTRIBUTION", "no-such-distribution")
    monkeypatch.setenv("PATH", "")
    with pytest.raises(ToolMissingError) as caught:
        find_nvdisasm()
    assert "fasttrack[audit]" in caught.value.advice


def test_the_files_of_one_module_are_found_together(tmp_path: Path) -> None:
    for name in ("a.sm_90a.ptx", "a.sm_90a.cubin", "a.sass", "b.ptx", "notes.txt"):
        (tmp_path / name).write_text("")
    found = collect_dumps((tmp_path,))
    assert [(d.stem, d.arch, d.sass is not None, d.cubin is not None) for d in found] == [
        ("a", "sm_90a", True, True),
        ("b", "", False, False),
    ]


def test_sass_that_could_belong_to_two_architectures_stands_alone(tmp_path: Path) -> None:
    for name in ("a.sm_90a.ptx", "a.sm_103a.ptx", "a.sass"):
        (tmp_path / name).write_text("")
    assert sum(d.sass is not None and d.ptx is None for d in collect_dumps((tmp_path,))) == 1


@pytest.mark.parametrize(
    ("registers", "threads", "shared", "ctas", "limit"),
    [
        (32, 1024, 0, 2, "registers"),
        (128, 128, 0, 4, "registers"),
        (16, 64, 0, 32, "threads"),
        (32, 128, 100 * 1024, 2, "shared memory"),
        (32, 128, 228 * 1024, 0, "shared memory"),
    ],
)
def test_occupancy_is_what_the_scarcest_resource_allows(
    registers: int, threads: int, shared: int, ctas: int, limit: str
) -> None:
    found = occupancy(compute_capability=90, registers=registers, threads=threads, shared_bytes=shared)
    assert found is not None and (found.ctas, found.limited_by) == (ctas, limit)


def test_an_unknown_architecture_has_no_occupancy() -> None:
    assert occupancy(compute_capability=130, registers=32, threads=128, shared_bytes=0) is None


def test_a_manifest_gives_each_variant_the_facts_of_all_entries_that_match() -> None:
    section = KernelsSection.model_validate(
        {
            "entries": [
                {"entry": "m:f", "arches": ["sm_103a"], "roles": {"0": "static"}, "launch": "pdl"},
                {
                    "entry": "m:f",
                    "arches": ["sm_103a"],
                    "variants": "batch=1 *",
                    "roles": {"0": "mailbox:sys"},
                },
            ]
        }
    )
    options = declared_options(section, "m:f", "sm_103a", "batch=1 tp=8")
    assert options is not None
    found = options.for_kernel("any")
    assert (found.launch, found.roles["0"].role, found.roles["0"].is_system_wide) == ("pdl", "mailbox", True)


def test_a_manifest_with_an_unknown_role_does_not_parse() -> None:
    with pytest.raises(ValueError, match="mailbox:sys:rearmed"):
        KernelsSection.model_validate({"entries": [{"entry": "m:f", "roles": {"0": "ready"}}]})
