"""Named lists of what a change may not own, by the layout of the repository that it targets."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class PathPreset:
    """Globs with what stands behind each, in the order in which they are tried."""

    protected: tuple[tuple[str, str], ...] = ()
    """Out of reach: neither owned paths nor hooks may lie there."""
    shared: tuple[tuple[str, str], ...] = ()
    """Used by every model, reachable by a hook only."""
    build: tuple[tuple[str, str], ...] = ()
    """Build and packaging files."""
    model_folders: tuple[str, ...] = ()
    """Folders that hold files or folders by model: nobody may own one of them whole."""
    package: str = ""
    """The folder of the engine's own package: nothing below it is a test or a document."""


def _described(what: str, *globs: str) -> tuple[tuple[str, str], ...]:
    return tuple((glob, what) for glob in globs)


VLLM_CORE = PathPreset(
    protected=(
        *_described("scheduler and KV-cache management", "vllm/v1/core/**"),
        *_described(
            "KV-cache management",
            "vllm/v1/kv_*/**",
            "vllm/v1/simple_kv_offload/**",
            "vllm/v1/hisparse/**",
            "vllm/v1/pool/**",
            "vllm/distributed/**",
            "vllm/device_allocator/**",
        ),
        *_described(
            "sampling",
            "vllm/v1/sample/**",
            "vllm/v1/spec_decode/**",
            "vllm/v1/structured_output/**",
            "vllm/v1/watermarking/**",
        ),
        *_described("worker and model runner", "vllm/v1/worker/**", "vllm/v1/executor/**"),
        *_described(
            "worker and model runner",
            "vllm/compilation/**",
            "vllm/platforms/**",
            "vllm/plugins/**",
        ),
        *_described(
            "input preparation",
            "vllm/inputs/**",
            "vllm/renderers/**",
            "vllm/multimodal/**",
            "vllm/tokenizers/**",
        ),
        *_described("engine", "vllm/v1/engine/**", "vllm/engine/**", "vllm/entrypoints/**"),
        *_described(
            "engine", "vllm/*.py", "vllm/v1/*.py", "vllm/v1/metrics/**", "vllm/v1/fault_tolerance/**"
        ),
        *_described(
            "engine",
            "vllm/utils/**",
            "vllm/logging_utils/**",
            "vllm/tracing/**",
            "vllm/usage/**",
            "vllm/ray/**",
            "vllm/profiler/**",
            "vllm/snapshot/**",
        ),
        *_described("configuration", "vllm/config/**", "vllm/transformers_utils/*.py"),
        *_described(
            "shared layers and operators",
            "vllm/model_executor/layers/**",
            "vllm/model_executor/kernels/**",
            "vllm/model_executor/hw_agnostic/**",
            "vllm/model_executor/determinism/**",
            "vllm/model_executor/model_loader/**",
            "vllm/model_executor/offloader/**",
            "vllm/model_executor/warmup/**",
            "vllm/model_executor/*.py",
            "vllm/models/common/**",
            "vllm/v1/attention/**",
            "vllm/vllm_flash_attn/**",
            "vllm/kernels/**",
            "vllm/ir/**",
            "vllm/third_party/**",
            "vllm/triton_utils/**",
            "vllm/cute_utils/**",
            "vllm/tilelang_utils/**",
            "vllm/lora/**",
        ),
        *_described("compiled kernels that every model links", "csrc/**"),
        *_described("continuous integration", ".github/**", ".buildkite/**", "codecov.yml"),
    ),
    shared=_described(
        "shared model code",
        "vllm/model_executor/models/__init__.py",
        "vllm/model_executor/models/registry.py",
        "vllm/model_executor/models/interfaces*.py",
        "vllm/model_executor/models/adapters.py",
        "vllm/model_executor/models/config.py",
        "vllm/model_executor/models/utils.py",
        "vllm/model_executor/models/vision.py",
        "vllm/models/*.py",
        "vllm/*parser*/__init__.py",
        "vllm/*parser*/abstract_*.py",
        "vllm/*parser*/utils.py",
        "vllm/*parser*/*manager.py",
        "vllm/parser/engine/**",
        "vllm/reasoning/__init__.py",
        "vllm/reasoning/abs_*.py",
        "vllm/reasoning/basic_*.py",
    ),
    build=_described(
        "build files",
        "setup.py",
        "setup.cfg",
        "pyproject.toml",
        "MANIFEST.in",
        "CMakeLists.txt",
        "cmake/**",
        "requirements/**",
        "requirements*.txt",
        "docker/**",
        "use_existing_torch.py",
        "uv.lock",
        "Makefile",
    ),
    model_folders=(
        "vllm/model_executor/models",
        "vllm/models",
        "vllm/parser",
        "vllm/reasoning",
        "vllm/tool_parsers",
        "vllm/transformers_utils/configs",
        "vllm/transformers_utils/processors",
        "vllm/benchmarks",
        "vllm/assets",
    ),
    package="vllm",
)
"""The layout of vLLM 0.32 and 0.33."""

PRESETS = {"vllm-core": VLLM_CORE, "none": PathPreset()}
