"""Laws of the process's state: what a change leaves in a process shows by its name, and what has gone does not."""

from __future__ import annotations

import hashlib
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from harness.engine.probe.process_state import (
    GENERATED,
    collect_interpreter,
    collect_registries,
    collect_replaced,
    name_generated,
    origin_of,
)


def other_code(folder: Path) -> dict[str, object]:
    """Functions and a class whose code lies in a file of a change."""
    file = folder / "subject.py"
    file.write_text("def run(*_):\n    return 1\nclass Model:\n    pass\n")
    found: dict[str, object] = {"__name__": "made_subject"}
    exec(compile(file.read_text(), str(file), "exec"), found)
    return found


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """A module of the engine with a class."""
    module = ModuleType("vllm.made")
    module.Runner = type("Runner", (), {"__module__": "vllm.made", "step": staticmethod(len)})  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "vllm.made", module)
    yield module


def replaced(folder: Path) -> dict[str, str]:
    found = collect_replaced({str(folder): "{subject}"})
    return {name: file for name, file in found.items() if name.startswith("vllm.made")}


def test_a_thread_shows_while_it_lives() -> None:
    stop = threading.Event()
    threads = [threading.Thread(target=stop.wait, name=name) for name in ("watcher", "pool-1", "pool-22")]
    for thread in threads:
        thread.start()
    try:
        found = collect_interpreter()
        assert (found["thread watcher"], found["thread pool-#"]) == ("1", "some")
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert not {"thread watcher", "thread pool-#"} & collect_interpreter().keys()


def test_a_signal_handler_shows_with_its_owner() -> None:
    before = signal.signal(signal.SIGUSR2, lambda *_: None)
    try:
        assert collect_interpreter()["handler of SIGUSR2"].startswith(__name__)
    finally:
        signal.signal(signal.SIGUSR2, before)


@pytest.mark.parametrize("wrap", [lambda f: f, staticmethod, property], ids=["plain", "static", "property"])
def test_a_function_put_into_a_class_of_the_engine_shows(
    engine: ModuleType, tmp_path: Path, wrap: type[staticmethod[..., object]]
) -> None:
    assert replaced(tmp_path) == {}
    engine.Runner.step = wrap(other_code(tmp_path)["run"])  # type: ignore[arg-type]
    assert replaced(tmp_path) == {"vllm.made:Runner.step": "{subject}/subject.py"}


def test_a_function_put_into_a_module_of_the_engine_shows(engine: ModuleType, tmp_path: Path) -> None:
    engine.sample = other_code(tmp_path)["run"]  # type: ignore[attr-defined]
    assert replaced(tmp_path) == {"vllm.made.sample": "{subject}/subject.py"}


def test_a_global_of_the_compiler_shows_without_the_address_in_its_name(
    engine: ModuleType, tmp_path: Path
) -> None:
    vars(engine)["__subclass_Weight_680247472_c0"] = other_code(tmp_path)["run"]
    assert replaced(tmp_path) == {"vllm.made.__subclass_Weight_#_c0": "{subject}/subject.py"}


def test_a_class_put_in_anothers_place_shows(
    engine: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    subject = ModuleType("made_subject")
    subject.__file__ = str(tmp_path / "subject.py")
    monkeypatch.setitem(sys.modules, "made_subject", subject)
    engine.Runner = other_code(tmp_path)["Model"]  # type: ignore[attr-defined]
    assert replaced(tmp_path) == {"vllm.made.Runner": "{subject}/subject.py"}


def test_functions_of_installed_packages_do_not_show(engine: ModuleType, tmp_path: Path) -> None:
    engine.sample = pytest.approx  # type: ignore[attr-defined]
    assert replaced(tmp_path) == {}


def test_an_entry_shows_with_the_class_that_it_names(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("vllm.model_executor.models.registry")
    lazy = SimpleNamespace(module_name="vllm.llama", class_name="Llama")
    loaded = SimpleNamespace(model_cls=dict)
    module.ModelRegistry = SimpleNamespace(models={"A": lazy, "B": loaded, "C": "vllm:C"})  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    found = {k: v for k, v in collect_registries().items() if k.startswith("ModelRegistry")}
    assert found == {
        "ModelRegistry.models[A]": "vllm.llama:Llama",
        "ModelRegistry.models[B]": "builtins:dict",
        "ModelRegistry.models[C]": "vllm:C",
    }


def test_an_object_comes_from_where_its_class_does() -> None:
    assert origin_of(SimpleNamespace()) == "types:SimpleNamespace"


def generated(cache: Path, source: str, monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """What is shown of a module that PyTorch's compiler wrote into a cache: its name, and what it holds."""
    text = source.replace("CACHE", str(cache))
    key = f"c{hashlib.sha256(text.encode()).hexdigest()[:8]}"
    file = cache / key[1:3] / f"{key}.py"
    file.parent.mkdir(parents=True)
    file.write_text(text)
    module = ModuleType(GENERATED + key)
    module.__file__ = str(file)
    exec(compile(text, str(file), "exec"), vars(module))
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, module.__name__, module)
        held = {f"{k} from {v}" for k, v in collect_replaced({}).items() if k.startswith(GENERATED)}
        return {name_generated({})[module.__name__], *held}


def test_the_same_compiled_code_is_the_same_in_every_cache_and_other_code_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = "# kernel path: CACHE/ab/kernel.py\nclass Runner:\n    def call(self): return 1\n"
    first, second = (generated(tmp_path / name, source, monkeypatch) for name in ("one", "two"))
    other = generated(tmp_path / "three", source.replace("return 1", "return 2"), monkeypatch)
    assert len(first) > 1
    assert first == second
    assert not first & other
