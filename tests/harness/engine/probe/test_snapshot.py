"""Laws of the snapshot: whatever is registered shows, and a line that moves does not."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from types import ModuleType

import pytest
import torch

from harness.engine.probe import snapshot
from harness.engine.probe.snapshot import collect_custom_ops, collect_ops

NAMESPACE = "fasttrack_snapshot_test"


@pytest.fixture
def library() -> Iterator[torch.library.Library]:
    """An operator `double` without an implementation."""
    made = torch.library.Library(NAMESPACE, "DEF")
    made.define("double(Tensor x) -> Tensor")
    yield made
    made._destroy()


def ops() -> dict[str, str]:
    return {name: digest for name, digest in collect_ops({}).items() if name.startswith(NAMESPACE)}


def test_a_new_operator_shows_by_its_name(library: torch.library.Library) -> None:
    before = ops()
    library.define("triple(Tensor x) -> Tensor")
    assert ops().keys() - before.keys() == {f"{NAMESPACE}::triple"}


def test_another_implementation_of_an_operator_shows_in_its_digest(library: torch.library.Library) -> None:
    before = ops()
    library.impl("double", lambda x: x * 2, "CPU")
    assert ops()[f"{NAMESPACE}::double"] != before[f"{NAMESPACE}::double"]


def test_the_same_registrations_give_the_same_digests(library: torch.library.Library) -> None:
    library.impl("double", lambda x: x * 2, "CPU")
    assert ops() == ops()


def test_a_line_that_moves_in_a_python_file_does_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "CPU: registered at /machine/head/subject/ops.py:{} :: (Tensor) -> Tensor"
    monkeypatch.setattr(torch._C, "_dispatch_get_all_op_names", lambda: ["subject::f"])
    digests = []
    for line in (10, 12):
        monkeypatch.setattr(torch._C, "_dispatch_dump", lambda _, line=line: text.format(line))
        digests.append(collect_ops({"/machine/head": "{subject}"}))
    monkeypatch.setattr(torch._C, "_dispatch_dump", lambda _: text.replace("ops.py", "others.py"))
    assert digests[0] == digests[1] != collect_ops({"/machine/head": "{subject}"})


def test_the_folder_of_a_commit_does_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch._C, "_dispatch_get_all_op_names", lambda: ["subject::f"])
    found = []
    for folder in ("/tmp/base", "/tmp/head"):
        monkeypatch.setattr(torch._C, "_dispatch_dump", lambda _, folder=folder: f"CPU: {folder}/ops.py:3")
        found.append(collect_ops({folder: "{subject}"}))
    assert found[0] == found[1]


def test_a_class_that_takes_anothers_place_in_a_registry_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("vllm.model_executor.custom_op")
    module.op_registry = {"silu": dict}  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    before = collect_custom_ops()
    module.op_registry = {"silu": list}  # type: ignore[attr-defined]
    # Other tests of this process may have imported vLLM's own registries.
    assert before["op_registry.silu"] == "builtins:dict"
    assert collect_custom_ops() == before | {"op_registry.silu": "builtins:list"}


def test_a_variable_that_is_set_shows_and_its_value_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUBJECT_TOKEN", "secret-value")
    monkeypatch.setenv("HOME", os.environ.get("HOME", "/"))
    found = snapshot._environment({})
    assert "SUBJECT_TOKEN" in found and "HOME" not in found
    assert "secret-value" not in found["SUBJECT_TOKEN"]
