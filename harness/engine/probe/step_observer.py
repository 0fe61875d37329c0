"""Stands around the model's forward call of an engine's runner: what it is given, and what it writes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from harness.engine.probe.cache_memory import CacheMemory
from harness.engine.probe.live_tensors import LiveTensors
from harness.engine.probe.step_slots import LiveBlocks, StepSlots, read_step_slots
from harness.model.probe import Place


class StepObserver:
    """Watches one engine's cache and, where asked, every other tensor of the process.

    Changes of the cache go to a file, step by step: first those that the engine made since the last forward call, then
    those that the call made; for each storage their number (int64), their indices and the new words (int32).
    """

    def __init__(
        self,
        runner: Any,
        changes_path: Path,
        *,
        live_blocks: Callable[[], LiveBlocks],
        seed: int,
        watches_buffers: bool,
    ) -> None:
        self._live_blocks = live_blocks
        self._runner = runner
        self._layers = runner.compilation_config.static_forward_context
        self._memory = CacheMemory(self._layers)
        self._memory.fill(seed)
        self._changes = changes_path.open("wb")
        roots = {"model": runner.model, "runner": runner}
        self._buffers = LiveTensors(roots, self._memory.pointers) if watches_buffers else None
        self.last: dict[str, Any] | None = None
        """What the last step was given and wrote; None once it was taken."""
        runner._model_forward = self._around(runner._model_forward)

    def layout(self) -> dict[str, Any]:
        """How the cache lies in memory, for whoever reads the file of changes."""
        from vllm.model_executor.layers.mamba.mamba_utils import is_conv_state_dim_first

        return {
            "views": [asdict(view) for view in self._memory.views],
            "page_words": self._memory.page_words,
            "num_words": self._memory.num_words,
            "groups": [g.layer_names for g in self._runner.kv_cache_config.kv_cache_groups],
            "num_spec": self._runner.vllm_config.num_speculative_tokens,
            "model_dtype": str(self._runner.vllm_config.model_config.dtype).removeprefix("torch."),
            "windows_last": is_conv_state_dim_first(),
        }

    def close(self) -> None:
        """Ends the file of changes."""
        self._changes.close()

    def _around(self, forward: Callable[..., Any]) -> Callable[..., Any]:
        from vllm.forward_context import get_forward_context

        def model_forward(*args: Any, **kwargs: Any) -> Any:
            context = get_forward_context()
            rows = getattr(context, "slot_mapping", None)
            slots = read_step_slots(self._runner, context.attn_metadata, rows, self._live_blocks())
            self._write_changes()
            kept = self._kept_results()
            result = forward(*args, **kwargs)
            self._write_changes()
            self.last = {**_describe(slots), "buffers": [*kept, *self._buffer_writes(result)]}
            return result

        return model_forward

    def _write_changes(self) -> None:
        for where, values in self._memory.take_changes():
            self._changes.write(np.int64(len(where)).tobytes() + where.tobytes() + values.tobytes())

    def _kept_results(self) -> list[dict[str, Any]]:
        """What the step before returned and an attribute of the model still leads to; the engine has let go of it."""
        if self._buffers is None:
            return []
        kept = self._buffers.look()
        names = self._buffers.names(kept) if kept else {}
        return [
            {"buffer": name, "place": Place.NEW_BUFFER.value, "num_bytes": kept[pointer]}
            for pointer, name in names.items()
            if name.startswith("model.")
        ]

    def _buffer_writes(self, result: Any) -> list[dict[str, Any]]:
        if self._buffers is None:
            return []
        written, left = self._buffers.take_writes(result)
        if not written and not left:
            return []
        names = self._buffers.names(pointer for pointer, _ in (*written, *left))
        found = [(Place.BUFFER, *pair) for pair in written] + [(Place.NEW_BUFFER, *pair) for pair in left]
        return [
            {"buffer": names.get(pointer, ""), "place": place.value, "num_bytes": size}
            for place, pointer, size in found
        ]


def _describe(slots: StepSlots) -> Mapping[str, Any]:
    fields = asdict(slots)
    fields["owners"] = {str(page): owner for page, owner in slots.owners.items()}  # JSON's keys are text
    return fields
