"""Laws of ISO005: every planted reach outside is told by kind and line, and its innocent twin passes."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from harness.app.reaching import names_of
from harness.checks.isolation.iso005_reaching_out import ReachingOut
from harness.facts.python_effects.names import search_names
from harness.facts.python_effects.read import CommittedFiles, program_of, read_effects
from harness.model.change import Change
from harness.model.check import CheckContext
from harness.model.effects import EffectKind
from harness.model.evidence import PythonEffectsEvidence, evidence_set
from harness.model.finding import Finding
from harness.model.judgement import worst
from harness.model.manifest import Manifest, Reach
from harness.model.policy import Policy
from harness.model.words import Outcome, Tier
from tests.harness.checks.evidence_builder import MANIFEST
from tests.harness.checks.reach_examples import BREACHES, TWINS, Files, subject
from tests.harness.checks.reach_hostile import HARMLESS, HOSTILE
from tests.harness.checks.reach_records import BESIDE, THROUGH

ENGINE = {
    "vllm/registry.py": b'MODELS = {"DeepseekV3ForCausalLM": ("deepseek_v3", "DeepseekV3ForCausalLM")}\n',
    "vllm/config.py": b'_CONFIG_REGISTRY = {"deepseek_v3": "DeepseekV3Config"}\nif kind == "mentioned": ...\n',
    "vllm/envs.py": b'import os\nVLLM_ATTENTION_BACKEND = os.getenv("VLLM_ATTENTION_BACKEND")\n',
}
POLICY = Policy(schema_version=1, version="made", required={Tier.STATIC: ("ISO005",)})


def run(
    files: Files | dict[str, bytes],
    *,
    declared: Sequence[Reach] = (),
    with_engine: bool = True,
    edited: Files | None = None,
    before: Files | None = None,
    policy: Policy = POLICY,
) -> list[Finding]:
    committed = CommittedFiles(
        owned=encoded(files), edited=encoded(edited or {}), before=encoded(before or {})
    )
    looked_at, effects = read_effects(committed, program_of(committed))
    record = PythonEffectsEvidence(
        tier=Tier.STATIC,
        recorded_at="2026-11-29T00:00:00Z",
        commit="c" * 40,
        files=looked_at,
        effects=effects,
        searched=("vllm 0.33.0",) if with_engine else (),
        searches=search_names(names_of(effects), ENGINE) if with_engine else (),
    )
    manifest: Manifest = MANIFEST.model_copy(update={"reaches": tuple(declared)})
    change = Change(base="b" * 40, merge_base="b" * 40, head="c" * 40, head_subject="x")
    context = CheckContext(change=change, manifest=manifest, policy=policy, evidence=evidence_set([record]))
    return list(ReachingOut().run(context))


def encoded(files: Files | dict[str, bytes]) -> dict[str, bytes]:
    return {p: c if isinstance(c, bytes) else c.encode("latin-1") for p, c in files.items()}


def outcome(findings: Sequence[Finding]) -> Outcome:
    return worst([finding.outcome for finding in findings])


def open_findings(findings: Sequence[Finding]) -> list[str]:
    return [f"{f.outcome}: {f.message}" for f in findings if not f.outcome.lets_through]


@pytest.mark.parametrize("name", BREACHES)
def test_a_planted_breach_fails_with_its_kind_file_and_line(name: str) -> None:
    kind, files = BREACHES[name]
    failed = [f for f in run(files) if f.outcome is Outcome.FAIL]
    assert any(
        f.subject.startswith(f"{kind}: ") and f.location and f.location.line and f.advice for f in failed
    )


@pytest.mark.parametrize("name", TWINS)
def test_an_innocent_twin_passes(name: str) -> None:
    assert open_findings(run(TWINS[name])) == []


@pytest.mark.parametrize("name", HOSTILE | THROUGH)
def test_a_way_around_the_reader_is_not_let_through(name: str) -> None:
    code = (HOSTILE | THROUGH)[name]
    assert not outcome(run(subject(code, compat="from vllm.x import Thing\n"))).lets_through


@pytest.mark.parametrize("name", HARMLESS | BESIDE)
def test_code_that_only_looks_like_a_reach_passes(name: str) -> None:
    code = (HARMLESS | BESIDE)[name]
    assert open_findings(run(subject(code, compat="limit = 1\n"))) == []


@pytest.mark.parametrize(("name", "expected"), [("mentioned", Outcome.INCONCLUSIVE), ("fresh", Outcome.PASS)])
@pytest.mark.parametrize(
    "code",
    [
        "import torch\n@torch.library.custom_op('vllm::{}', mutates_args=())\ndef f(x: int) -> int: ...\n",
        "from vllm.utils.torch_utils import vllm_lib\nvllm_lib.define('{}(Tensor x) -> Tensor')\n",
    ],
    ids=["by name", "by the engine's library"],
)
def test_an_operator_of_the_engines_namespace_passes_only_under_a_name_that_the_engine_does_not_hold(
    code: str, name: str, expected: Outcome
) -> None:
    assert outcome(run(subject(code.format(name), compat="limit = 1\n"))) is expected


@pytest.mark.parametrize("name", ["*", "thing"])
def test_modules_that_import_a_name_from_each_other_in_a_circle_are_read(name: str) -> None:
    files = subject(
        f"from own.other import {name}\nthing()\n", other=f"from own.code import {name}\nthing()\n"
    )
    assert outcome(run(files)) is Outcome.PASS


def test_committed_ptx_is_inconclusive_unless_it_is_declared() -> None:
    files = {**subject("limit = 1\n"), "own/k.ptx": "// made by nvcc\n.version 8.0\n.target sm_90a\n"}
    target = "PTX, which a compiler wrote"
    declared = [reach(EffectKind.NATIVE_CODE, target)]
    assert [outcome(run(files)), outcome(run(files, declared=declared))] == [
        Outcome.INCONCLUSIVE,
        Outcome.PASS,
    ]


def test_an_operator_behind_a_macro_is_inconclusive() -> None:
    files = {
        **subject("limit = 1\n", compat="limit = 1\n"),
        "own/x.cpp": "#define L TORCH_LIBRARY_IMPL\nL(aten, CPU, m) {}\n",
    }
    assert outcome(run(files)) is Outcome.INCONCLUSIVE


def reach(kind: EffectKind, target: str) -> Reach:
    return Reach(kind=kind, target=target, why="kernels are compiled at first use")


NVCC = subject("import subprocess\ndef build():\n    subprocess.run(['nvcc'])\n")


def test_a_declared_process_passes_and_is_shown_with_the_manifests_reason() -> None:
    found = run(NVCC, declared=[reach(EffectKind.PROCESS, "subprocess.run")])
    (shown,) = [f for f in found if f.subject == "process: subprocess.run"]
    assert shown.outcome is Outcome.PASS
    assert "The manifest says: kernels are compiled at first use" in shown.message


def test_a_declaration_covers_its_own_target_only() -> None:
    assert outcome(run(NVCC, declared=[reach(EffectKind.PROCESS, "subprocess.Popen")])) is Outcome.FAIL


def test_a_declaration_that_no_line_needs_fails() -> None:
    found = run(subject("x = 1\n"), declared=[reach(EffectKind.PROCESS, "subprocess.run")])
    assert any(f.outcome is Outcome.FAIL and "no line does it" in f.message for f in found)


@pytest.mark.parametrize(
    ("kind", "target", "code"),
    [
        (EffectKind.ATTRIBUTE, "vllm.utils.cdiv", "import vllm.utils\nvllm.utils.cdiv = None\n"),
        (
            EffectKind.GLOBAL_SETTING,
            "torch.set_num_threads",
            "import torch\ndef f():\n    torch.set_num_threads(1)\n",
        ),
        (EffectKind.OPERATOR, "aten::mm", "import torch\ntorch.library.impl('aten::mm', 'CPU', print)\n"),
        (EffectKind.PROCESS, "subprocess.run", "import subprocess\nsubprocess.run(['x'])\n"),
        (
            EffectKind.ENVIRONMENT,
            "CUDA_VISIBLE_DEVICES",
            "import os\ndef f():\n    os.environ['CUDA_VISIBLE_DEVICES'] = ''\n",
        ),
    ],
)
def test_what_harms_others_cannot_be_declared_away(kind: EffectKind, target: str, code: str) -> None:
    found = run(subject(code), declared=[reach(kind, target)])
    (failed,) = [f for f in found if f.outcome is Outcome.FAIL]
    assert "It is declared, but" in failed.message


def test_the_policy_says_which_kinds_may_be_declared() -> None:
    strict = POLICY.model_copy(update={"declarable": ()})
    found = run(NVCC, declared=[reach(EffectKind.PROCESS, "subprocess.run")], policy=strict)
    assert outcome(found) is Outcome.FAIL


def test_without_the_engines_source_a_name_is_not_known_to_be_new() -> None:
    (shown,) = [f for f in run(TWINS["new model class"], with_engine=False) if "registry" in f.subject]
    assert shown.outcome is Outcome.INCONCLUSIVE


def test_a_name_that_the_engine_only_mentions_stays_open() -> None:
    code = "from vllm import ModelRegistry\nModelRegistry.register_model('mentioned', 'own.code:M')\n"
    assert outcome(run(subject(code))) is Outcome.INCONCLUSIVE


def test_text_that_could_mean_an_own_object_as_well_stays_open() -> None:
    code = "import vllm.utils as u, own\nt = u if own.fast else own\nt.cdiv = 1\n"
    (shown,) = [f for f in run(subject(code)) if not f.outcome.lets_through]
    assert shown.outcome is Outcome.INCONCLUSIVE
    assert "leaves open" in shown.message


def test_code_that_is_no_text_stays_open() -> None:
    assert outcome(run(subject("def f(x):\n    exec(x)\n"))) is Outcome.INCONCLUSIVE


def test_a_file_that_is_no_python_stays_open_and_the_others_are_judged() -> None:
    found = run({**BREACHES["network"][1], "own/broken.py": "def f(:\n"})
    assert {f.outcome for f in found} >= {Outcome.INCONCLUSIVE, Outcome.FAIL}


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff\xfe\x00",
        b"x = '\xff'\n",
        b"a" + b"(" * 5000,
        b"-" * 5000 + b"1",
        b"\x00",
        b"if 1:\n" * 300,
    ],
)
def test_odd_bytes_in_a_python_file_never_break_the_check(content: bytes) -> None:
    assert run({"own/__init__.py": b"", "own/odd.py": content})


def test_an_edited_hook_is_judged_by_what_it_adds() -> None:
    before = "import vllm.utils\nvllm.utils.old = 1\n"
    found = run(
        subject("x = 1\n"),
        edited={"vllm/hook.py": before + "vllm.utils.new = 2\n"},
        before={"vllm/hook.py": before},
    )
    assert [f.subject for f in found if f.outcome is Outcome.FAIL] == ["attribute: vllm.utils.new"]


def test_a_new_plugin_entry_point_is_told_until_it_is_declared() -> None:
    edited = {
        "pyproject.toml": '[project.entry-points."vllm.general_plugins"]\nown = "own.plugin:register"\n'
    }
    target = "vllm.general_plugins: own"
    assert outcome(run(subject("x = 1\n"), edited=edited)) is Outcome.FAIL
    declared = [reach(EffectKind.ENTRY_POINT, target)]
    assert outcome(run(subject("x = 1\n"), edited=edited, declared=declared)) is Outcome.PASS


def test_a_changed_plugin_entry_point_of_others_fails_declared_or_not() -> None:
    head = '[project.entry-points."vllm.general_plugins"]\n'
    found = run(
        subject("x = 1\n"),
        before={"pyproject.toml": head + 'lora = "vllm.lora:register"\n'},
        edited={"pyproject.toml": head + 'lora = "own.plugin:register"\n'},
    )
    assert outcome(found) is Outcome.FAIL


def test_a_subject_without_a_file_shows_nothing() -> None:
    assert outcome(run({})) is Outcome.INCONCLUSIVE


def test_without_a_record_nothing_is_judged() -> None:
    change = Change(base="b" * 40, merge_base="b" * 40, head="c" * 40, head_subject="x")
    context = CheckContext(change=change, manifest=MANIFEST, policy=POLICY, evidence=evidence_set([]))
    assert outcome(ReachingOut().run(context)) is Outcome.NOT_RUN
