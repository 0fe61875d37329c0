"""Describes a process that serves a model, as far as a change to another model could alter it."""

from __future__ import annotations

import hashlib
import os
import re
import sys
from collections.abc import Mapping
from typing import Any

import torch

from harness.engine.probe.graph_watch import GraphWatch
from harness.engine.probe.process_state import (
    collect_interpreter,
    collect_registries,
    collect_replaced,
    name_generated,
)

_PYTHON_LINE = re.compile(r"(\.py):\d+")
_PROCESS_OWN = (
    "FASTTRACK_TRACE",
    "HOME",
    "TMPDIR",
    "VLLM_RPC_BASE_PATH",
    "VLLM_DIST_IDENT",
    "VLLM_OBJECT_STORAGE_SHM_BUFFER_NAME",
)
"""Variables that hold folders of the process itself, or a random name that vLLM gives each process."""


def describe_process(
    vllm_config: Any, runner: Any, names: Mapping[str, str], graphs: GraphWatch | None = None
) -> dict[str, Any]:
    """The fields of an `EngineSnapshot` but its model and answers.

    Args:
        vllm_config: The engine's configuration.
        runner: Its model runner.
        names: What to write for folders of this machine.
        graphs: The watch over its captured graphs; without one their kernels stay unknown, which the check takes as
            open.
    """
    generated = name_generated(names)
    return {
        "modules": sorted(generated.get(name, name) for name in sys.modules),
        "ops": collect_ops(names),
        "custom_ops": collect_custom_ops(),
        "kv_cache": _describe_cache(vllm_config, runner),
        "torch_settings": _torch_settings(),
        "interpreter": collect_interpreter(),
        "replaced": collect_replaced(names),
        "registries": collect_registries(),
        "environment": _environment(names),
        "graph_kernels": dict(graphs.kernels) if graphs is not None else {},
        "num_graphs": graphs.num_graphs if graphs is not None else _num_graphs(),
    }


def collect_ops(names: Mapping[str, str]) -> dict[str, str]:
    """Every operator of torch's dispatcher, with a digest of its schema and of what each key dispatches to.

    Line numbers of Python files are left out: an operator that moves within its file is the same.
    """
    found = {}
    for name in torch._C._dispatch_get_all_op_names():
        text = torch._C._dispatch_dump(name)
        for folder, word in names.items():
            text = text.replace(folder, word)
        found[name] = _digest(_PYTHON_LINE.sub(r"\1", text))
    return found


def collect_custom_ops() -> dict[str, str]:
    """The classes that serve vLLM's named layers and operators, by registry and name."""
    found = {}
    for module_name, registry in _REGISTRIES:
        table = getattr(sys.modules.get(module_name), registry, None)
        if isinstance(table, Mapping):
            for name, entry in table.items():
                owner = getattr(entry, "__module__", type(entry).__module__)
                what = getattr(entry, "__qualname__", type(entry).__qualname__)
                found[f"{registry}.{name}"] = f"{owner}:{what}"
    return found


_REGISTRIES = (
    ("vllm.model_executor.custom_op", "op_registry"),
    ("vllm.model_executor.custom_op", "op_registry_oot"),
    ("vllm.model_executor.model_loader", "_LOAD_FORMAT_TO_MODEL_LOADER"),
)


def _num_graphs() -> int:
    """Graphs that vLLM says it captured in this process."""
    counter = getattr(sys.modules.get("vllm.compilation.counter"), "compilation_counter", None)
    return int(getattr(counter, "num_cudagraph_captured", 0))


def _describe_cache(vllm_config: Any, runner: Any) -> dict[str, str]:
    config = runner.kv_cache_config
    found = {"num_blocks": str(config.num_blocks), "block_size": str(vllm_config.cache_config.block_size)}
    for index, group in enumerate(config.kv_cache_groups):
        for layer in group.layer_names:
            found[layer] = f"group {index}: {group.kv_cache_spec}"
    for tensor in config.kv_cache_tensors:
        found[f"memory of {', '.join(getattr(tensor, 'layers', getattr(tensor, 'shared_by', ())))}"] = str(
            tensor
        )
    return found


def _torch_settings() -> dict[str, str]:
    return {
        "default dtype": str(torch.get_default_dtype()),
        "default device": str(torch.get_default_device()),
        "threads": str(torch.get_num_threads()),
        "float32 matmul precision": torch.get_float32_matmul_precision(),
        "deterministic algorithms": str(torch.are_deterministic_algorithms_enabled()),
        "grad enabled": str(torch.is_grad_enabled()),
        "mkldnn": str(torch.backends.mkldnn.enabled),
        "interop threads": str(torch.get_num_interop_threads()),
        "initial seed": str(torch.initial_seed()),
        "anomaly detection": str(torch.is_anomaly_enabled()),
        "tf32": f"{torch.backends.cuda.matmul.allow_tf32}, {torch.backends.cudnn.allow_tf32}",
        "cudnn": f"{torch.backends.cudnn.enabled}, {torch.backends.cudnn.benchmark}",
        "attention kernels": f"{torch.backends.cuda.flash_sdp_enabled()}, {torch.backends.cuda.math_sdp_enabled()}",
        "flush denormal": str(bool(torch.tensor(1e-310, dtype=torch.float64) * 1 == 0)),
    }


def _environment(names: Mapping[str, str]) -> dict[str, str]:
    found = {}
    for name, value in os.environ.items():
        if name not in _PROCESS_OWN:
            for folder, word in names.items():
                value = value.replace(folder, word)
            found[name] = _digest(value)
    return found


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
