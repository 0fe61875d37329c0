"""Records what each step starts from and what it leaves, by the scheduler's word: of any runner, graphs or not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.engine.probe.cache_memory import CacheMemory, describe_layout
from harness.engine.probe.page_watch import NULL_PAGE, BlockIds
from harness.engine.probe.step_slots import StepSlots


class HandoverWatch:
    """Compares the whole cache before and after each step of the engine, and writes every changed word.

    What `StepObserver` learns from a runner's attention metadata is taken from the scheduler's plan: whose the pages
    are, and how many tokens of a request are computed. That says where a step starts only without drafts and without
    shared states, so one page holds all of a request's state in a layer.
    """

    def __init__(self, runner: Any, changes_path: Path, *, seed: int) -> None:
        """Fills the cache with seeded numbers, so that what nobody wrote does not look like a state.

        Args:
            runner: vLLM's model runner, the first or the second.
            changes_path: The file of changes, as `StepObserver` writes it.
            seed: Of the numbers.

        Raises:
            ValueError: the engine drafts, keeps several states of a request, or its pages are not of one size.
        """
        self._groups = runner.kv_cache_config.kv_cache_groups
        modes = {getattr(group.kv_cache_spec, "mamba_cache_mode", "none") for group in self._groups}
        if runner.vllm_config.num_speculative_tokens or modes != {"none"}:
            raise ValueError("with drafts or cached states a request has more than one state")
        self._memory = CacheMemory(runner.vllm_config.compilation_config.static_forward_context)
        self._memory.fill(seed)
        self._first_page = {view.layer: view.offset // view.stride[0] for view in self._memory.views}
        self.layout = describe_layout(self._memory, runner)
        self._changes = changes_path.open("wb")
        self._slots: StepSlots | None = None

    def follow(self, scheduler: Any, block_ids: BlockIds) -> None:
        """Lets the watch hear of every step that the scheduler plans."""
        schedule = scheduler.schedule

        def scheduled(*args: Any, **kwargs: Any) -> Any:
            output = schedule(*args, **kwargs)
            if output.num_scheduled_tokens:
                blocks = {request.request_id: block_ids(request.request_id) for request in scheduler.running}
                self._slots = self._read_slots(_computed_tokens(output), blocks)
                self._write_changes()
            return output

        scheduler.schedule = scheduled

    def end(self) -> dict[str, Any] | None:
        """A step has ended: what it was given, with its changes in the file; None when the scheduler planned none."""
        slots, self._slots = self._slots, None
        if slots is None:
            return None
        self._write_changes()
        return {**slots.as_record(), "buffers": []}

    def close(self) -> None:
        """Ends the file of changes."""
        self._changes.close()

    def _write_changes(self) -> None:
        self._memory.write_changes(self._changes)

    def _read_slots(
        self, computed: Mapping[str, int], blocks: Mapping[str, Sequence[Sequence[int]]]
    ) -> StepSlots:
        """Pages by layer, numbered from the beginning of the storage.

        Args:
            computed: Tokens before the step, by request of the step, in its order.
            blocks: Pages that the scheduler holds for every running request, by group.
        """
        slots = StepSlots()
        for index, group in enumerate(self._groups):
            is_state = hasattr(group.kv_cache_spec, "mamba_cache_mode")
            for layer in group.layer_names:
                if layer not in self._first_page:
                    continue
                first = self._first_page[layer]
                held = {request: [first + p for p in found[index]] for request, found in blocks.items()}
                for request, pages in held.items():
                    slots.owners.update(
                        {page: (request, index) for page in pages if page != first + NULL_PAGE}
                    )
                slots.writable[layer] = [page for request in computed for page in held[request]]
                continued = {request: count for request, count in computed.items() if count}
                if is_state:
                    slots.starts[layer] = [(page, page, 0) for r in continued for page in held[r]]
                else:
                    size = group.kv_cache_spec.block_size
                    slots.history[layer] = [
                        page for r, count in continued.items() for page in held[r][: -(-count // size)]
                    ]
        return slots


def _computed_tokens(output: Any) -> dict[str, int]:
    """Tokens of each request that were computed before the step that vLLM's scheduler planned, in the plan's order."""
    cached = output.scheduled_cached_reqs
    known = dict(zip(cached.req_ids, cached.num_computed_tokens, strict=True))
    known.update({request.req_id: request.num_computed_tokens for request in output.scheduled_new_reqs})
    return {request: known[request] for request in output.num_scheduled_tokens}
