"""Outcomes of ISO007."""

from __future__ import annotations

from typing import Literal

import pytest

from harness.checks.isolation.iso007_base_and_head import BaseAndHead, decide_snapshots
from harness.model.evidence import DefaultOffEvidence
from harness.model.finding import Finding
from harness.model.ledger import ImportedFile
from harness.model.manifest import Manifest
from harness.model.probe import EngineSnapshot, ServedAnswer
from harness.model.words import Outcome, Tier
from tests.harness.checks.evidence_builder import CHANGE, MANIFEST, context_of

Model = Literal["subject", "bystander"]
OURS, OTHER = "the subject's model", "another model"


def snapshot(model: Model, **update: object) -> EngineSnapshot:
    answer = ServedAnswer(request="r0", token_ids=(1, 2), logprobs=(-0.5, -1.5))
    made = EngineSnapshot(
        model=model,
        answers=(answer,),
        modules=("os", "vllm", "vllm.engine", *(("subject.model",) if model == "subject" else ())),
        ops={"aten::add": "aa", "_C::gemm": "bb"},
        custom_ops={"op_registry.silu": "vllm:Silu"},
        kv_cache={"num_blocks": "100", "layer 0": "64 KiB"},
        torch_settings={"default dtype": "float32"},
        interpreter={"thread MainThread": "1"},
        replaced={"vllm.runner:Runner.execute_model": "{harness}/tracer.py"},
        registries={"ModelRegistry.models[Llama]": "vllm.llama:Llama"},
        environment={"PATH": "cc"},
        graph_kernels={},
        num_graphs=0,
    )
    return made.model_copy(update=update)


def side(
    name: Literal["base", "head"], *snapshots: EngineSnapshot, has_model: bool = True
) -> DefaultOffEvidence:
    return DefaultOffEvidence(
        tier=Tier.CPU,
        recorded_at="now",
        side=name,
        commit=CHANGE.merge_base if name == "base" else CHANGE.head,
        has_model=has_model,
        imported=(ImportedFile(module="subject.plugin", path="subject/plugin.py", sha256=name * 16),),
        files={
            "subject/plugin.py": name * 16,
            "subject/model.py": "m" * 64,
            "vllm/models/new/decode.py": "d" * 64,
            "vllm/models/new/__init__.py": "i" * 64,
            "vllm/models/__init__.py": "p" * 64,
            "vllm/v1/engine.py": "e" * 64,
        },
        snapshots=snapshots,
    )


BASE = side("base", snapshot("bystander"), snapshot("subject"))


def findings_of(*records: DefaultOffEvidence, manifest: Manifest = MANIFEST) -> dict[str, Finding]:
    return {f.subject: f for f in BaseAndHead().run(context_of(records, manifest))}


def with_head(model: Model, **update: object) -> dict[str, Finding]:
    """The findings when the head's process differs for one model."""
    pair = [snapshot(m, **update if m == model else {}) for m in ("bystander", "subject")]  # type: ignore[arg-type]
    return findings_of(BASE, side("head", *pair))


def failed(found: dict[str, Finding]) -> set[str]:
    return {subject for subject, f in found.items() if f.outcome is Outcome.FAIL}


def test_equal_processes_pass_for_both_models() -> None:
    found = with_head("subject")
    assert {f.outcome for f in found.values()} == {Outcome.PASS, Outcome.NOT_APPLICABLE}
    assert {s for s, f in found.items() if f.outcome is Outcome.NOT_APPLICABLE} == {
        f"captured graphs, {OTHER}",
        f"captured graphs, {OURS}",
    }


@pytest.mark.parametrize(("model", "what"), [("bystander", OTHER), ("subject", OURS)])
@pytest.mark.parametrize(
    ("aspect", "update"),
    [
        ("answers", {"answers": (ServedAnswer(request="r0", token_ids=(1, 3), logprobs=(-0.5, -1.5)),)}),
        ("answers", {"answers": (ServedAnswer(request="r0", token_ids=(1, 2), logprobs=(-0.5, -1.4999)),)}),
        ("answers", {"answers": ()}),
        ("loaded modules", {"modules": ("os", "vllm", "vllm.engine", "subject.model", "ctypes")}),
        ("loaded modules", {"modules": ("os", "vllm", "subject.model")}),
        (
            "loaded modules",
            {"modules": ("os", "vllm", "vllm.engine", "subject.model", "subject.kernels.gemm")},
        ),
        ("registered operators", {"ops": {"aten::add": "other", "_C::gemm": "bb"}}),
        ("registered operators", {"ops": {"aten::add": "aa", "_C::gemm": "bb", "subject::fused": "dd"}}),
        ("registered operators", {"ops": {"aten::add": "aa"}}),
        ("registered operators", {"custom_ops": {"op_registry.silu": "subject:Silu"}}),
        ("cache blocks", {"kv_cache": {"num_blocks": "99", "layer 0": "64 KiB"}}),
        ("process settings", {"torch_settings": {"default dtype": "bfloat16"}}),
        ("process settings", {"interpreter": {"thread MainThread": "1", "thread watcher": "1"}}),
        (
            "engine functions",
            {
                "replaced": {
                    "vllm.runner:Runner.execute_model": "{harness}/tracer.py",
                    "vllm.f": "{subject}/a.py",
                }
            },
        ),
        ("engine functions", {"replaced": {"vllm.runner:Runner.execute_model": "{subject}/a.py"}}),
        ("registries", {"registries": {"ModelRegistry.models[Llama]": "subject.model:Llama"}}),
        ("registries", {"registries": {}}),
        (
            "registries",
            {"registries": {"ModelRegistry.models[Llama]": "vllm.llama:Llama", "parsers[x]": "elsewhere:X"}},
        ),
        ("process settings", {"environment": {"PATH": "cc", "VLLM_X": "dd"}}),
    ],
)
def test_whatever_differs_fails_its_own_aspect(
    model: Model, what: str, aspect: str, update: dict[str, object]
) -> None:
    assert failed(with_head(model, **update)) == {f"{aspect}, {what}"}


def test_a_module_of_the_change_that_is_loaded_only_by_the_head_fails_for_its_model_and_not_for_another() -> (
    None
):
    modules = ("os", "vllm", "vllm.engine", "subject.plugin")
    assert failed(with_head("bystander", modules=modules)) == set()
    assert failed(with_head("subject", modules=(*modules, "subject.model"))) == {f"loaded modules, {OURS}"}


def test_a_class_of_its_own_may_be_registered_under_a_new_name() -> None:
    tables = {
        "ModelRegistry.models[Llama]": "vllm.llama:Llama",
        "ModelRegistry.models[New]": "subject.model:New",
    }
    found = with_head("bystander", registries=tables)
    assert failed(found) == set()
    assert found[f"registries, {OTHER}"].details == ("added: ModelRegistry.models[New]: subject.model:New",)


INSIDE = MANIFEST.model_copy(
    update={
        "paths": MANIFEST.paths.model_copy(
            update={"owned": ("vllm/models/new/**",), "import_roots": ("vllm",), "preset": "vllm-core"}
        )
    }
)
"""A change inside the engine: all of the engine lies below its import root, one folder is its own."""


@pytest.mark.parametrize(
    ("modules", "outcome"),
    [
        (("os", "vllm", "vllm.engine", "vllm.models.new", "vllm.models.new.decode"), Outcome.PASS),
        (("os", "vllm", "vllm.engine", "vllm.v1", "vllm.v1.engine"), Outcome.FAIL),
        (("os", "vllm", "vllm.engine", "vllm.models.new.unwritten"), Outcome.FAIL),
        (("os", "vllm", "vllm.engine", "vllm.models"), Outcome.FAIL),
        (("os", "vllm"), Outcome.FAIL),
    ],
    ids=["its own", "the engine's", "one without a file", "a package around it", "one of the engine's lost"],
)
def test_a_change_inside_the_engine_may_load_for_another_model_what_it_owns_alone(
    modules: tuple[str, ...], outcome: Outcome
) -> None:
    head = side("head", snapshot("bystander", modules=modules), snapshot("subject"))
    found = findings_of(BASE, head, manifest=INSIDE)
    assert found[f"loaded modules, {OTHER}"].outcome is outcome


@pytest.mark.parametrize(
    ("target", "outcome"),
    [("vllm.models.new.decode:New", Outcome.PASS), ("vllm.v1.engine:New", Outcome.FAIL)],
)
def test_a_change_inside_the_engine_may_register_what_it_owns_alone(target: str, outcome: Outcome) -> None:
    tables = {"ModelRegistry.models[Llama]": "vllm.llama:Llama", "ModelRegistry.models[New]": target}
    head = side("head", snapshot("bystander", registries=tables), snapshot("subject"))
    assert findings_of(BASE, head, manifest=INSIDE)[f"registries, {OTHER}"].outcome is outcome


def test_a_module_that_is_declared_to_be_imported_when_off_passes() -> None:
    dispatch = MANIFEST.dispatch.model_copy(update={"imported_when_off": ("subject.plugin",)})
    head = snapshot("subject", modules=("os", "vllm", "vllm.engine", "subject.model", "subject.plugin"))
    manifest = MANIFEST.model_copy(update={"dispatch": dispatch})
    found = findings_of(BASE, side("head", snapshot("bystander"), head), manifest=manifest)
    assert failed(found) == set()


def test_a_package_is_imported_with_a_module_of_it_that_is_declared() -> None:
    dispatch = MANIFEST.dispatch.model_copy(update={"imported_when_off": ("subject.plugin",)})
    base, head = snapshot("subject"), snapshot("subject")
    for module, outcome in (("subject", Outcome.PASS), ("subject.other", Outcome.FAIL)):
        more = head.model_copy(update={"modules": (*head.modules, module)})
        assert decide_snapshots(base, more, dispatch, ())["loaded modules"].outcome is outcome


def test_a_base_without_the_model_is_compared_by_the_other_model_alone() -> None:
    base = side("base", snapshot("bystander"), has_model=False)
    found = findings_of(base, side("head", snapshot("bystander")))
    assert found[OURS].outcome is Outcome.NOT_APPLICABLE
    assert found[f"answers, {OTHER}"].outcome is Outcome.PASS


def test_a_head_that_does_not_serve_the_bases_model_is_an_error() -> None:
    found = findings_of(BASE, side("head", snapshot("bystander")))
    assert found[OURS].outcome is Outcome.ERROR


def test_a_process_that_imported_the_other_commits_files_does_not_count() -> None:
    head = side("head", snapshot("bystander"), snapshot("subject"))
    (finding,) = findings_of(BASE.model_copy(update={"imported": head.imported}), head).values()
    assert finding.outcome is Outcome.ERROR
    assert finding.details == ("base: subject.plugin (subject/plugin.py)",)


def test_processes_of_other_commits_do_not_count() -> None:
    base = BASE.model_copy(update={"commit": "c" * 40})
    (finding,) = findings_of(base, side("head", snapshot("bystander"), snapshot("subject"))).values()
    assert finding.outcome is Outcome.ERROR


@pytest.mark.parametrize("records", [(), (BASE,)], ids=["none", "the base alone"])
def test_a_side_that_was_not_run_leaves_it_open(records: tuple[DefaultOffEvidence, ...]) -> None:
    (finding,) = findings_of(*records).values()
    assert finding.outcome is Outcome.NOT_RUN


@pytest.mark.parametrize(
    ("update", "outcome"),
    [
        ({"num_graphs": 2, "graph_kernels": {"gemm": 4}}, Outcome.PASS),
        ({"num_graphs": 3, "graph_kernels": {"gemm": 4}}, Outcome.FAIL),
        ({"num_graphs": 2, "graph_kernels": {"gemm": 5}}, Outcome.FAIL),
        ({"num_graphs": 2, "graph_kernels": {"gemm": 4, "fused": 1}}, Outcome.FAIL),
    ],
)
def test_captured_graphs_are_compared_by_kernel_and_count(
    update: dict[str, object], outcome: Outcome
) -> None:
    graphs = {"num_graphs": 2, "graph_kernels": {"gemm": 4}}
    base = side("base", snapshot("bystander", **graphs), has_model=False)
    found = findings_of(base, side("head", snapshot("bystander", **update)))
    assert found[f"captured graphs, {OTHER}"].outcome is outcome


@pytest.mark.parametrize(
    ("field", "empty", "aspect"),
    [
        ("modules", (), "loaded modules"),
        ("ops", {}, "registered operators"),
        ("torch_settings", {}, "process settings"),
        ("interpreter", {}, "process settings"),
        ("replaced", {}, "engine functions"),
        ("registries", {}, "registries"),
    ],
)
def test_what_neither_process_shows_is_not_the_same(field: str, empty: object, aspect: str) -> None:
    both = [
        side(name, *(snapshot(m, **{field: empty}) for m in ("bystander", "subject")))  # type: ignore[arg-type]
        for name in ("base", "head")
    ]
    assert findings_of(*both)[f"{aspect}, {OURS}"].outcome is Outcome.INCONCLUSIVE
