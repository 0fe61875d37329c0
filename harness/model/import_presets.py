"""Named lists of modules of an engine that a subject may not import."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportPreset:
    """Dotted names with what stands behind each; what is below a name counts as the name."""

    packages: tuple[str, ...] = ()
    """Packages whose code every model shares: their private names are out of reach."""
    forbidden: tuple[tuple[str, str], ...] = ()
    public: tuple[str, ...] = ()
    """Modules whose name looks private and which every model calls."""

    def why_forbidden(
        self,
        target: str,
        *,
        further: Sequence[str] = (),
        allowed: Sequence[str] = (),
        own: Sequence[str] = (),
    ) -> str:
        """Why a dotted name may not be imported; empty when it may.

        Args:
            target: the name.
            further: names that are forbidden besides the preset's.
            allowed: names that are free whatever else holds.
            own: packages of the subject's own model, whose private names are not shared.
        """
        if _below(target, allowed):
            return ""
        for name, what in (
            *self.forbidden,
            *((name, "what the policy keeps out of reach") for name in further),
        ):
            if _below(target, (name,)):
                return f"{name} belongs to {what}"
        known = next((name for name in (*self.public, *self.packages) if _below(target, (name,))), None)
        if known is not None and not _below(target, own):
            for part in target.removeprefix(known).split("."):
                if part.startswith("_") and not part.startswith("__"):
                    return f"{part} is private to its module"
        return ""


def _below(target: str, names: Sequence[str]) -> bool:
    return any(target == name or target.startswith(f"{name}.") for name in names)


VLLM_CORE = ImportPreset(
    packages=("vllm",),
    forbidden=(
        ("vllm.v1.core.sched", "the scheduler"),
        ("vllm.v1.core", "KV-cache management"),
        ("vllm.v1.kv_offload", "KV-cache management"),
        ("vllm.v1.simple_kv_offload", "KV-cache management"),
        ("vllm.device_allocator", "KV-cache management"),
        ("vllm.v1.sample", "sampling"),
        ("vllm.v1.worker.gpu.sample", "sampling"),
        ("vllm.v1.structured_output", "sampling"),
        ("vllm.v1.engine", "the engine's core"),
        ("vllm.v1.executor", "the engine's core"),
        ("vllm.v1.worker.gpu_model_runner", "the model runner"),
        ("vllm.v1.worker.gpu.model_runner", "the model runner"),
    ),
    public=("vllm._custom_ops", "vllm._aiter_ops", "vllm._xpu_ops", "vllm._version"),
)
"""Modules of vLLM 0.32 and 0.33. Interfaces that models implement (`kv_cache_interface`, `model_states`) are free."""

IMPORT_PRESETS = {"vllm-core": VLLM_CORE, "none": ImportPreset()}
