"""Laws of path classes: what is protected stays so whatever a manifest claims to own."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.model.manifest import Hook, PathsSection
from harness.model.path_presets import VLLM_CORE
from harness.model.paths import PathClass, PathRules, is_plain, link_destination

SECTION = PathsSection(
    owned=("specialized_path/**", "vllm/models/kimi_k3/**"),
    hooks=(Hook(file="vllm/model_executor/models/registry.py", max_added_lines=2, why="registers"),),
    protected=("harness/**", "specialized_path/locked/**"),
    tests=("tests/specialized_path/**",),
    docs=("docs/**", "README.md"),
    import_roots=("specialized_path",),
)
RULES = PathRules(SECTION)
_PATHS = st.lists(
    st.sampled_from([".", "..", "", "a", "harness", "vllm", "v1", "core", "docs", "x.py"]), max_size=5
)


_KNOWN = (
    "specialized_path/a.py",
    "specialized_path/locked/a.py",
    "vllm/models/kimi_k3/nvidia/a.py",
    "vllm/models/other/a.py",
    "vllm/model_executor/models/registry.py",
    "vllm/v1/core/a.py",
    "tests/specialized_path/t.py",
    "docs/../README.md",
    "README.md",
)


@pytest.mark.parametrize("path", _KNOWN)
def test_a_path_is_a_class_exactly_when_it_is_classified_so(path: str) -> None:
    assert [wanted for wanted in PathClass if RULES.is_a(path, wanted)] == [class_of(path)]


def class_of(path: str) -> PathClass:
    return RULES.classify(path).path_class


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("specialized_path/a.py", PathClass.OWNED),
        ("specialized_path/locked/a.py", PathClass.PROTECTED),
        ("specialized_path_evil/x.py", PathClass.SHARED),
        ("Specialized_path/a.py", PathClass.SHARED),
        ("specialized_path", PathClass.SHARED),
        ("harness/checks/x.py", PathClass.PROTECTED),
        ("docs/../harness/x.py", PathClass.PROTECTED),
        ("docs/./x.md", PathClass.PROTECTED),
        ("/specialized_path/a.py", PathClass.PROTECTED),
        ("specialized_path/.git/hooks/x", PathClass.PROTECTED),
        ("docs/guide.md", PathClass.DOCS),
        ("README.md", PathClass.DOCS),
        ("docs2/README.md", PathClass.SHARED),
        ("tests/specialized_path/test_a.py", PathClass.TEST),
        ("tests/other/test_a.py", PathClass.SHARED),
        ("vllm/models/kimi_k3/nvidia/model.py", PathClass.OWNED),
        ("vllm/models/deepseek_v4/model.py", PathClass.OTHER_MODEL),
        ("vllm/model_executor/models/llama.py", PathClass.OTHER_MODEL),
        ("vllm/model_executor/models/registry.py", PathClass.HOOK),
        ("vllm/model_executor/models/interfaces.py", PathClass.SHARED),
        ("vllm/models/common/ops.py", PathClass.PROTECTED),
        ("vllm/v1/core/sched/scheduler.py", PathClass.PROTECTED),
        ("vllm/v1/core/kv_cache_manager.py", PathClass.PROTECTED),
        ("vllm/v1/kv_cache_interface.py", PathClass.PROTECTED),
        ("vllm/v1/sample/sampler.py", PathClass.PROTECTED),
        ("vllm/v1/worker/gpu_model_runner.py", PathClass.PROTECTED),
        ("vllm/v1/worker/gpu/input_batch.py", PathClass.PROTECTED),
        ("vllm/v1/engine/input_processor.py", PathClass.PROTECTED),
        ("vllm/config/vllm.py", PathClass.PROTECTED),
        ("vllm/envs.py", PathClass.PROTECTED),
        ("vllm/model_executor/layers/linear.py", PathClass.PROTECTED),
        ("vllm/_custom_ops.py", PathClass.PROTECTED),
        ("csrc/attention/x.cu", PathClass.PROTECTED),
        (".github/workflows/ci.yml", PathClass.PROTECTED),
        ("setup.py", PathClass.BUILD),
        ("requirements/cuda.txt", PathClass.BUILD),
        ("vllm/new_folder/x.py", PathClass.SHARED),
        ("somewhere/else.py", PathClass.SHARED),
    ],
)
def test_each_path_has_the_class_of_its_place(path: str, expected: PathClass) -> None:
    assert class_of(path) is expected


@settings(deadline=None)
@given(_PATHS.map("/".join))
def test_no_path_with_a_dot_part_is_ever_free(path: str) -> None:
    if not is_plain(path):
        assert class_of(path) is PathClass.PROTECTED


@settings(deadline=None)
@given(st.sampled_from([glob for glob, _ in VLLM_CORE.protected]), st.text("ab", min_size=1, max_size=3))
def test_what_the_preset_protects_cannot_be_owned_or_called_a_test(glob: str, name: str) -> None:
    path = glob.replace("**", name).replace("*", name)
    greedy = PathsSection(
        owned=("**", glob),
        hooks=(Hook(file=path, max_added_lines=999, why="all"),),
        tests=("**",),
        docs=("**",),
        import_roots=("vllm",),
    )
    assert PathRules(greedy).classify(path).path_class is PathClass.PROTECTED


@settings(deadline=None)
@given(st.sampled_from([glob for glob, _ in VLLM_CORE.protected + VLLM_CORE.shared + VLLM_CORE.build]))
def test_no_manifest_may_own_what_everyone_uses(glob: str) -> None:
    assert RULES.why_not_owned(glob)


@pytest.mark.parametrize(
    "glob",
    ["**", "*/x", "vllm/**", "vllm/models/**", "vllm/models/*/x.py", "vllm/reasoning/k*.py", "harness/a.py"],
)
def test_a_glob_that_reaches_others_files_may_not_be_owned(glob: str) -> None:
    assert RULES.why_not_owned(glob)


@pytest.mark.parametrize(
    "glob", ["specialized_path/nano/**", "vllm/models/kimi_k3/**", "vllm/model_executor/models/kimi_k3.py"]
)
def test_the_models_own_folder_may_be_owned(glob: str) -> None:
    assert RULES.why_not_owned(glob) is None


def test_the_engines_package_holds_no_documents_and_no_tests() -> None:
    section = PathsSection(owned=("own/**",), tests=("vllm/**",), docs=("vllm/**",), import_roots=("own",))
    assert PathRules(section).classify("vllm/transformers_utils/x/y.jinja").path_class is PathClass.SHARED


def test_a_hook_in_a_protected_file_is_refused() -> None:
    assert RULES.why_not_hook("vllm/v1/core/sched/scheduler.py")
    assert RULES.why_not_hook("vllm/models/*.py")
    assert RULES.why_not_hook("vllm/model_executor/models/registry.py") is None


@pytest.mark.parametrize(
    ("path", "target", "expected"),
    [
        ("a/b/link", "c.py", "a/b/c.py"),
        ("a/b/link", "../c.py", "a/c.py"),
        ("a/b/link", "./../c/d", "a/c/d"),
        ("a/b/link", "../../../etc", None),
        ("a/link", "/etc/passwd", None),
        ("a/link", "b/../c", None),
        ("a/link", "..", None),
        ("link", "", None),
        ("link", "a//b", None),
    ],
)
def test_a_links_destination_is_read_from_its_text_or_not_at_all(
    path: str, target: str, expected: str | None
) -> None:
    assert link_destination(path, target) == expected


@settings(deadline=None)
@given(st.lists(st.sampled_from(["..", ".", "a", "b", ""]), min_size=1, max_size=6).map("/".join))
def test_a_links_destination_never_leaves_the_repository(target: str) -> None:
    destination = link_destination("x/y/link", target)
    assert destination is None or is_plain(destination)
