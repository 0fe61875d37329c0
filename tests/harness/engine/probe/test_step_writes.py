"""Laws of the sorting: every changed word counts for exactly one place."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.engine.probe.cache_layout import parse_layout
from harness.engine.probe.step_writes import sort_writes
from harness.model.probe import Place, Write
from tests.harness.engine.probe.made_recording import (
    LAYOUT,
    PAGE_WORDS,
    PAGES,
    ROW_PAGE,
    STATE_PAGE,
    MadeStep,
    row_word,
    state_word,
    write_recording,
)


def sorted_writes(folder: Path, step: MadeStep) -> tuple[Write, ...]:
    recording = write_recording(folder, [step])
    ((_, by_call),) = recording.changes_of("plain")
    return sort_writes(recording.steps[0], by_call, parse_layout(LAYOUT))


@pytest.mark.parametrize(
    ("word", "place", "buffer", "owner"),
    [
        (state_word(3), Place.OWN_SLOT, "kda", "r0"),
        (row_word(2), Place.OWN_SLOT, "mla", "r0"),
        (STATE_PAGE * PAGE_WORDS + 40, Place.BEYOND_TOKENS, "kda", "r0"),
        (state_word(3, page=4), Place.OTHER_REQUEST, "kda", "r1"),
        (5 * PAGE_WORDS, Place.OTHER_REQUEST, "mla", "r1"),
        (7 * PAGE_WORDS, Place.FREE_SLOT, "block 7", ""),
        (0, Place.FREE_SLOT, "the null block", ""),
    ],
)
def test_a_write_belongs_to_whoever_owns_the_page(
    word: int, place: Place, buffer: str, owner: str, tmp_path: Path
) -> None:
    (write,) = sorted_writes(tmp_path / "r", MadeStep(computed=1, writes={word: 3.5}))
    assert (write.place, write.buffer, write.owner, write.num_bytes) == (place, buffer, owner, 4)


def test_another_slot_of_the_steps_own_request_is_not_its_own_slot(tmp_path: Path) -> None:
    owners = {"2": ["r0-x", 0], "6": ["r0-x", 0]}
    step = MadeStep(computed=1, writes={6 * PAGE_WORDS + 12: 3.5}, owners=owners)
    (write,) = sorted_writes(tmp_path / "r", step)
    assert (write.place, write.owner) == (Place.OTHER_SLOT, "r0")


def test_other_buffers_are_told_beside_the_cache(tmp_path: Path) -> None:
    told = {"buffer": "model.executor.scratch", "place": "a buffer", "num_bytes": 12}
    step = replace(MadeStep(computed=1, writes={state_word(0): 1.0}), buffers=[told])
    assert sorted_writes(tmp_path / "r", step)[-1] == Write.model_validate(told)


@settings(max_examples=25, deadline=None)
@given(words=st.sets(st.integers(0, PAGES * PAGE_WORDS - 1), max_size=40))
def test_every_changed_word_is_counted_once(
    words: set[int], tmp_path_factory: pytest.TempPathFactory
) -> None:
    step = MadeStep(computed=1, writes=dict.fromkeys(words, 3.5))
    writes = sorted_writes(tmp_path_factory.mktemp("r") / "r", step)
    assert sum(w.num_bytes for w in writes) == 4 * len(words)
    own = {w for w in words if w // PAGE_WORDS in (STATE_PAGE, ROW_PAGE)}
    mine = (Place.OWN_SLOT, Place.BEYOND_TOKENS)
    assert sum(w.num_bytes for w in writes if w.place in mine) == 4 * len(own)
