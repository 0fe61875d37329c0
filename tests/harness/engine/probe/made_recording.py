"""Recordings of a made engine: one state layer and one cache layer in one storage, pages of 64 words."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from harness.engine.probe.cache_memory import runs_of
from harness.engine.probe.recording import Recording, read_recording

NONCE = "made"
PAGES, PAGE_WORDS, BLOCK = 8, 64, 4
STATE, ROWS = "kda", "mla"
STATE_PAGE, ROW_PAGE = 2, 3
"""Pages of the made request `r0`; `r1` has 4 and 5, 6 and 7 are free."""
OWNERS = {"2": ["r0-x", 0], "3": ["r0-x", 1], "4": ["r1-x", 0], "5": ["r1-x", 1]}


def _view(layer: str, index: int, shape: list[int], stride: list[int], offset: int) -> dict[str, Any]:
    fields = {"layer": layer, "index": index, "storage": 0, "dtype": "float32"}
    return fields | {"shape": [PAGES, *shape], "stride": [PAGE_WORDS, *stride], "offset": offset}


LAYOUT = {
    "kind": "layout",
    "engine": "plain",
    "views": [
        _view(STATE, 0, [3, 4], [4, 1], 0),
        _view(STATE, 1, [8], [1], 12),
        _view(ROWS, 0, [BLOCK, 16], [16, 1], 0),
    ],
    "page_words": [PAGE_WORDS],
    "num_words": [PAGES * PAGE_WORDS],
    "groups": [[STATE], [ROWS]],
    "num_spec": 0,
    "windows_last": False,
    "model_dtype": "float32",
    "seed": 5,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class MadeStep:
    """A decode of `r0`; writes by word of the storage."""

    computed: int
    writes: Mapping[int, float] = field(default_factory=dict)
    engine_writes: Mapping[int, float] = field(default_factory=dict)
    scheduled: int = 1
    token: int = 7
    likeliest: int | None = None
    """What it would have sampled; None: `token`."""
    gap: float = 1.0
    scenario: str = "s"
    start: tuple[int, int, int] = (STATE_PAGE, STATE_PAGE, 0)
    """Pages of state and window, and the window's first entry."""
    buffers: Sequence[Mapping[str, Any]] = ()
    owners: Mapping[str, Any] = field(default_factory=lambda: OWNERS)


def state_word(offset: int, page: int = STATE_PAGE) -> int:
    """A word of the recurrent state."""
    return page * PAGE_WORDS + 12 + offset


def row_word(token: int, offset: int = 0) -> int:
    """A word of the cache row of a token in the block."""
    return ROW_PAGE * PAGE_WORDS + 16 * token + offset


def write_recording(folder: Path, steps: Sequence[MadeStep]) -> Recording:
    """Writes what a probe of these steps writes, and reads it back."""
    folder.mkdir(parents=True)
    rows = [{"kind": "header", "nonce": NONCE, "pid": 1}]
    records: list[dict[str, Any]] = [LAYOUT]
    with (folder / "changes-plain.bin").open("wb") as changes:
        for number, step in enumerate(steps):
            rows.append({"kind": "row"} | _row(number, step))
            records.append(_record(number, step))
            for words in (step.engine_writes, step.writes):
                where = torch.tensor(sorted(words), dtype=torch.int32)
                values = np.array([words[w] for w in sorted(words)], dtype=np.float32)
                begins, lengths = (found.numpy() for found in runs_of(where))
                changes.write(np.array([len(begins), len(values)], dtype=np.int64).tobytes())
                changes.write(begins.tobytes() + lengths.tobytes() + values.tobytes())
    (folder / "1.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    (folder / "probe.records").write_text("".join(json.dumps(r) + "\n" for r in [*records, {"kind": "end"}]))
    return read_recording(folder, NONCE)


def _row(number: int, step: MadeStep) -> dict[str, Any]:
    request = {
        "request_id": "r0-x",
        "num_scheduled_tokens": step.scheduled,
        "num_prefill_tokens": 0,
        "num_emitted_tokens": 1,
        "num_computed_tokens": step.computed,
        "num_draft_tokens": 0,
    }
    return {
        "step": number,
        "started_ns": number,
        "duration_ns": 1,
        "num_reqs": 1,
        "requests": [request],
        "decisions": [],
        "ran": {},
    }


def _record(number: int, step: MadeStep) -> dict[str, Any]:
    observed = {
        "writable": {STATE: [STATE_PAGE], ROWS: [ROW_PAGE]},
        "starts": {STATE: [list(step.start)]},
        "history": {ROWS: [ROW_PAGE]},
        "owners": step.owners,
        "buffers": list(step.buffers),
    }
    return {
        "kind": "step",
        "engine": "plain",
        "scenario": step.scenario,
        "position": number,
        "ledger_step": number,
        "names": {"r0-x": "r0", "r1-x": "r1"},
        "tokens": {"r0": [step.token]},
        "likeliest": {"r0": [step.token if step.likeliest is None else step.likeliest]},
        "gaps": {"r0": [step.gap]},
        "observed": observed,
    }
