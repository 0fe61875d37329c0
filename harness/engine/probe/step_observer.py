"""Stands around the model's forward call of an engine's runner: what it is given, and what it writes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from harness.engine.probe.cache_memory import CacheMemory, describe_layout
from harness.engine.probe.live_tensors import LiveTensors
from harness.engine.probe.step_slots import LiveBlocks, read_step_slots
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
        return describe_layout(self._memory, self._runner)

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
            self.last = {**slots.as_record(), "buffers": [*kept, *self._buffer_writes(result)]}
            return result

        return model_forward

    def _write_changes(self) -> None:
        self._memory.write_changes(self._changes)

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
