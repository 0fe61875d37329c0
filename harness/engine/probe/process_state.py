"""What a change could leave in a process beside answers: threads, handlers, replaced functions, overridden entries."""

from __future__ import annotations

import gc
import hashlib
import logging
import os
import re
import resource
import signal
import sys
import sysconfig
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cached_property, partial
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

ENGINE_PACKAGES = ("vllm", "torch")
"""Whose modules and classes are searched for functions of others."""
REGISTRIES = (
    ("vllm.model_executor.models.registry", "ModelRegistry.models"),
    ("vllm.model_executor.models.config", "MODELS_CONFIG_MAP"),
    ("vllm.transformers_utils.config", "_CONFIG_REGISTRY"),
    ("vllm.transformers_utils.config", "_CONFIG_FORMAT_TO_CONFIG_PARSER"),
    ("vllm.v1.attention.backends.registry", "_ATTN_OVERRIDES"),
    ("vllm.v1.attention.backends.registry", "_MAMBA_ATTN_OVERRIDES"),
    ("vllm.model_executor.layers.quantization", "_CUSTOMIZED_METHOD_TO_QUANT_CONFIG"),
    ("vllm.v1.kv_cache_spec_registry", "_REGISTRY_ROLE_MANAGERS"),
    ("vllm.distributed.kv_transfer.kv_connector.factory", "KVConnectorFactory._registry"),
    ("vllm.tool_parsers.abstract_tool_parser", "ToolParserManager.tool_parsers"),
    ("vllm.reasoning.abs_reasoning_parsers", "ReasoningParserManager.reasoning_parsers"),
)
"""vLLM's tables of classes by name (0.32; one that a version lacks is left out)."""
GENERATED = "torch._inductor.runtime.compile_tasks."
"""Where PyTorch's compiler keeps the modules that it wrote, each named by a digest of its source."""
_DIGITS = re.compile(r"\d+")
_MADE = re.compile(r"<.*>")
_ADDRESS = re.compile(r"_\d+(?=_c\d+$)")
"""In the name of a global that PyTorch's compiler puts into a module: the address of a class, then the compilation."""


def collect_interpreter() -> dict[str, str]:
    """Threads by name, handlers, and the interpreter's and the process's settings."""
    names = Counter(_DIGITS.sub("#", thread.name) for thread in threading.enumerate())
    # How many threads a pool has come to depends on how fast they were.
    found = {f"thread {name}": "some" if "#" in name else str(count) for name, count in names.items()}
    for number in sorted(signal.valid_signals()):
        handler = signal.getsignal(number)
        if callable(handler):
            found[f"handler of {signal.Signals(number).name}"] = origin_of(handler)
    for name in ("excepthook", "unraisablehook", "displayhook"):
        found[name] = origin_of(getattr(sys, name))
    found["threads' excepthook"] = origin_of(threading.excepthook)
    found |= {f"import hook {i}": origin_of(finder) for i, finder in enumerate(sys.meta_path)}
    found["audit of garbage"] = f"{gc.isenabled()}, {gc.get_threshold()}, {gc.get_debug()}"
    found["recursion limit"] = str(sys.getrecursionlimit())
    found["switch interval"] = str(sys.getswitchinterval())
    found["trace function"] = f"{sys.gettrace()}, {sys.getprofile()}"
    found["cores"] = str(len(os.sched_getaffinity(0)))
    found["priority"] = str(os.getpriority(os.PRIO_PROCESS, 0))
    limits = {"files": resource.RLIMIT_NOFILE, "stack": resource.RLIMIT_STACK, "memory": resource.RLIMIT_AS}
    found |= {f"limit of {name}": str(resource.getrlimit(limit)) for name, limit in limits.items()}
    for name in ("", "vllm", "torch"):
        logger = logging.getLogger(name)
        handlers = ", ".join(origin_of(handler) for handler in logger.handlers)
        found[f"log of {name or 'everything'}"] = f"{logger.level}, {logger.disabled}: {handlers}"
    return found


def origin_of(thing: Any) -> str:
    """Where a function, a class or an object comes from: `module:name`."""
    while isinstance(thing, partial):
        thing = thing.func
    named = thing if hasattr(thing, "__qualname__") else type(thing)
    return f"{getattr(named, '__module__', '')}:{named.__qualname__}"


def name_generated(names: Mapping[str, str]) -> dict[str, str]:
    """What to write for each module that PyTorch's compiler wrote, by its name and by its file: a digest of its source
    without folders.

    The source mentions the folder of the compiler's cache, and its own name digests that, too: the same code has
    another name in every process that has a cache of its own.
    """
    found: dict[str, str] = {}
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None) if name.startswith(GENERATED) else None
        if file is None:
            continue
        text = Path(file).read_text(encoding="utf-8")
        for folder, word in ({str(Path(file).parents[1]): "{cache}"} | dict(names)).items():
            text = text.replace(folder, word)
        digest = hashlib.sha256(text.encode()).hexdigest()[:16]
        found |= {name: f"{GENERATED}{digest}", file: f"{{cache}}/{digest}.py"}
    return found


def collect_replaced(names: Mapping[str, str]) -> dict[str, str]:
    """Functions and classes held by the engine's modules and classes that come neither from it nor from what it is
    built on: where each is held, and the file or module that it comes from.

    The tracer's own are among them, which shows that others would be. `names` says what to write for folders of this
    machine; one of them must be that of the installed packages.
    """
    names = name_generated(names) | dict(names)
    ours = (sys.prefix, sysconfig.get_paths()["stdlib"])
    found = {}
    for module_name, module in sorted(sys.modules.items()):
        if isinstance(module, ModuleType) and module_name.partition(".")[0] in ENGINE_PACKAGES:
            for holder, owner in _holders(module_name, names.get(module_name, module_name), module):
                for name, value in list(vars(owner).items()):
                    source = _source_of(value)
                    if source and not source.startswith(ours) and not _MADE.fullmatch(source):
                        for folder, word in names.items():
                            source = source.replace(folder, word)
                        found[f"{holder}.{_ADDRESS.sub('_#', name)}"] = source
    return found


def _holders(name: str, shown: str, module: ModuleType) -> Iterator[tuple[str, Any]]:
    yield shown, module
    for key, value in list(vars(module).items()):
        if issubclass(type(value), type) and value.__module__ == name:
            yield f"{shown}:{key}", value


def _source_of(value: Any) -> str:
    """The file of a function's code, of a class, or of another thing's class; empty where there is none.

    Asks for types only: some of the engine's things act when an attribute of theirs is read.
    """
    while (kind := type(value)) in _AROUND:
        value = getattr(value, _AROUND[kind])
    if kind is FunctionType:
        return str(value.__code__.co_filename)
    owner = value if issubclass(kind, type) else kind
    module = sys.modules.get(owner.__module__) if isinstance(owner.__module__, str) else None
    return str(vars(module).get("__file__") or "") if isinstance(module, ModuleType) else ""


_AROUND = {
    staticmethod: "__func__",
    classmethod: "__func__",
    property: "fget",
    cached_property: "func",
    partial: "func",
}
"""Where what stands around a function keeps it."""


def collect_registries() -> dict[str, str]:
    """Entries of vLLM's registries: registry and key, and the class that the entry names."""
    found: dict[str, str] = {}
    for module_name, path in REGISTRIES:
        table: Any = sys.modules.get(module_name)
        for part in path.split("."):
            table = getattr(table, part, None)
        if isinstance(table, Mapping):
            # Iterating would import the classes of a table that loads them on demand.
            entries = dict.items(table) if isinstance(table, dict) else table.items()
            found |= {f"{path}[{key}]": _entry(value) for key, value in entries}
    return found


def _entry(value: Any) -> str:
    module, name = getattr(value, "module_name", None), getattr(value, "class_name", None)
    if module is not None and name is not None:
        return f"{module}:{name}"
    inner = getattr(value, "model_cls", value)
    return inner if isinstance(inner, str) else origin_of(inner)
