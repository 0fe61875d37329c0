"""Importing vLLM's kernel folders from its Python files, without a GPU and without vLLM's dependencies.

Importing this module puts a finder in front: modules of the kernel folders below are the real ones, everything
else of vLLM and of the packages that it builds on is an empty stand-in. The real ones are looked for along the import
path: a clone of vLLM, an unpacked wheel, or what is installed.
"""

from __future__ import annotations

import contextlib
import importlib.abc
import importlib.machinery
import os
import re
import sys
import types
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import torch

REAL = (
    "vllm.models.kimi_k3.nvidia.specialized_decode",
    "vllm.models.kimi_k3.nvidia.ops.cute_dsl",
    "vllm.models.deepseek_v41.nvidia.specialized_decode",
    "vllm.models.deepseek_v41.nvidia.ops.cute_dsl",
    "vllm.model_executor.kernels.linear.cute_dsl",
    "vllm.models.deepseek_v41.common.ops",
    "vllm.models.deepseek_v4.common.ops",
    "vllm.model_executor.kernels.attention.dsa.candidate_blocks",
    "flashinfer.gemm.kernels.cute_dsl",
    "flashinfer.gemm.kernels.dense_bf16_gemm_sm100_splitk",
    "flashinfer.cute_dsl.fp4_common",
    "flashinfer.quantization.quantization_cute_dsl_utils",
    "flashinfer.quantization.nvfp4_quantization_utils",
)
STAND_INS = ("vllm", "flashinfer", "tokenspeed_mla", "transformers", "deep_gemm", "tilelang")


def _folder_of(package: str) -> Path:
    """Where on the import path a package of Python files lies; raises ImportError."""
    for place in sys.path:
        if (Path(place) / package / "__init__.py").is_file():
            return Path(place)
    raise ImportError(
        f"{package} is not on the import path: name the folder that holds it (a clone, an unpacked wheel) with "
        "--import-root"
    )


def _is_real(name: str) -> bool:
    return any(name == folder or name.startswith(folder + ".") for folder in REAL)


class _StandIn(types.ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if _is_real(f"{self.__name__}.{name}"):
            return importlib.import_module(f"{self.__name__}.{name}")
        value = MagicMock(name=f"{self.__name__}.{name}")
        setattr(self, name, value)
        return value


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,  # noqa: ARG002
        target: types.ModuleType | None = None,  # noqa: ARG002
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname.split(".")[0] not in STAND_INS:
            return None
        if _is_real(fullname):
            package, *folders = fullname.split(".")[:-1]
            parent = _folder_of(package).joinpath(package, *folders)
            return importlib.machinery.PathFinder.find_spec(fullname, [str(parent)])
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        module = _StandIn(spec.name)
        module.__path__ = []
        return module

    def exec_module(self, module: types.ModuleType) -> None:
        """Nothing to run."""


class _NoDevice(contextlib.nullcontext[None]):
    def __init__(self, *_: object) -> None:
        super().__init__()


def _capability(*_: object) -> tuple[int, int]:
    match = re.match(r"sm_(\d+)(\d)", os.environ.get("CUTE_DSL_ARCH", "sm_103a"))
    if match is None:
        raise ValueError("CUTE_DSL_ARCH names no architecture")
    return int(match.group(1)), int(match.group(2))


sys.meta_path.insert(0, _Finder())
torch.cuda.get_device_capability = _capability
torch.accelerator.device_index = _NoDevice  # type: ignore[misc, assignment]
try:
    import triton
    import triton.language
except ImportError:
    pass
else:
    sys.modules["vllm.triton_utils"] = _StandIn("vllm.triton_utils")
    vars(sys.modules["vllm.triton_utils"]).update(triton=triton, tl=triton.language)

_host = importlib.import_module("vllm.models.kimi_k3.nvidia.specialized_decode.cutedsl.common.host")
_host.prepare_shared_carveout = lambda compiled, *_: compiled


def _shared_memory_per_sm(*_: object) -> int:
    """The one attribute that the DSL asks the driver for while it compiles; 228 KiB on 9.0, 10.0 and 10.3."""
    return 228 * 1024


importlib.import_module("cutlass.base_dsl.runtime.cuda").get_device_attribute = _shared_memory_per_sm
