"""Laws of a step's slots: read from the engine's metadata, null and padding left out."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from harness.engine.probe.step_slots import read_step_slots

BLOCK = 16


class Table:
    def __init__(self, rows: list[list[int]]) -> None:
        self._rows = np.array(rows, dtype=np.int32)

    def get_numpy_array(self) -> np.ndarray:
        return self._rows


def runner(computed: list[int]) -> Any:
    """Two groups: state layer `kda`, cache layer `mla`; two requests."""
    spec = SimpleNamespace(block_size=BLOCK)
    groups = [SimpleNamespace(layer_names=[n], kv_cache_spec=spec) for n in ("kda", "mla")]
    tables = [Table([[3, 0, 0], [4, 0, 0]]), Table([[5, 6, 0], [7, 8, 9]])]
    batch = SimpleNamespace(
        block_table=tables, num_reqs=len(computed), num_computed_tokens_cpu=np.array(computed)
    )
    return SimpleNamespace(input_batch=batch, kv_cache_config=SimpleNamespace(kv_cache_groups=groups))


def tensor(*values: Any) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int32)


def decode(**update: Any) -> Any:
    fields = {"num_spec_decodes": 0, "has_initial_state": None, "non_spec_state_indices_tensor": tensor(3, 4)}
    return SimpleNamespace(**fields | update)


def mla() -> Any:
    return SimpleNamespace(slot_mapping=tensor(5 * BLOCK + 3, 9 * BLOCK))


def test_a_decode_writes_its_requests_slots_and_starts_from_them() -> None:
    slots = read_step_slots(runner([19, 32]), {"kda": decode(), "mla": mla()}, None, {})
    assert slots.writable == {"kda": [3, 4], "mla": [5, 9]}
    assert slots.starts == {"kda": [(3, 3, 0), (4, 4, 0)]}


def test_the_history_is_the_blocks_of_the_tokens_before() -> None:
    slots = read_step_slots(runner([19, 32]), {"kda": decode(), "mla": mla()}, None, {})
    assert slots.history == {"mla": [5, 6, 7, 8]}


def test_a_verify_starts_behind_the_last_accepted_token() -> None:
    verify = SimpleNamespace(
        num_spec_decodes=2,
        spec_state_indices_tensor=tensor([3, 10, 11], [4, 12, 13]),
        num_accepted_tokens=tensor(1, 3),
        non_spec_state_indices_tensor=None,
    )
    slots = read_step_slots(runner([19, 32]), {"kda": verify}, None, {})
    assert slots.starts == {"kda": [(3, 3, 0), (13, 4, 2)]}
    assert slots.writable == {"kda": [3, 10, 11, 4, 12, 13]}


def test_null_and_padding_are_no_slots() -> None:
    padded = decode(non_spec_state_indices_tensor=tensor(3, 0, -1))
    rows = {"mla": tensor(5 * BLOCK, 0, 2, -1)}
    slots = read_step_slots(runner([19]), {"kda": padded, "mla": mla()}, rows, {})
    assert slots.writable == {"kda": [3], "mla": [5]}
    assert slots.starts == {"kda": [(3, 3, 0)]}


def test_a_request_without_prior_state_starts_from_nothing() -> None:
    fresh = decode(has_initial_state=torch.tensor([False, True]))
    slots = read_step_slots(runner([0, 32]), {"kda": fresh}, None, {})
    assert slots.starts == {"kda": [(4, 4, 0)]}


def test_owners_are_those_that_the_scheduler_names() -> None:
    live = {"a": ([3], [5, 6]), "b": ([4, 0], [7])}
    slots = read_step_slots(runner([1, 1]), {}, None, live)
    assert slots.owners == {3: ("a", 0), 5: ("a", 1), 6: ("a", 1), 4: ("b", 0), 7: ("b", 1)}


def test_a_dry_run_has_no_slots() -> None:
    assert read_step_slots(runner([1]), None, None, {"a": ([3],)}).owners == {}
