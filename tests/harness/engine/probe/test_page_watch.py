"""Laws of the page watch: a page that a step changes is told, with the owner that the scheduler gave it to."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from harness.engine.probe.page_watch import PageWatch

PAGES, PAGE_WORDS = 6, 64
GROUPS = (("kda.0",), ("attn.1",))
OWNED = {"a": [[1], [2, 3]], "b": [[4], []]}


class MadeScheduler:
    """Two requests run; a step computes the first of them."""

    def __init__(self) -> None:
        self.running = [SimpleNamespace(request_id="a"), SimpleNamespace(request_id="b")]

    def schedule(self) -> Any:
        return SimpleNamespace(num_scheduled_tokens={"a": 1})


def watched() -> tuple[torch.Tensor, MadeScheduler, PageWatch]:
    """A storage [pages, words] that both layers share, and the watch over it."""
    raw = torch.zeros(PAGES, PAGE_WORDS)
    layers = {name: SimpleNamespace(kv_cache=raw.view(PAGES, 4, 16)) for group in GROUPS for name in group}
    scheduler = MadeScheduler()
    watch = PageWatch(layers, GROUPS, seed=1)
    watch.follow(scheduler, OWNED.__getitem__)
    return raw, scheduler, watch


@pytest.mark.parametrize(
    ("page", "buffer", "place", "owner"),
    [
        (1, "kda.0", "own slot", "a"),
        (3, "attn.1", "own slot", "a"),
        (4, "kda.0", "another request's slot", "b"),
        (5, "block 5", "a slot that no request owns", ""),
        (0, "the null block", "a slot that no request owns", ""),
    ],
)
def test_a_page_that_a_step_changes_is_told_by_its_owner(
    page: int, buffer: str, place: str, owner: str
) -> None:
    raw, scheduler, watch = watched()
    watch.begin()
    scheduler.schedule()
    raw[page, 7:9] = 0.0
    assert watch.end() == [{"buffer": buffer, "place": place, "owner": owner, "num_bytes": 8}]


def test_what_changed_before_the_step_is_not_the_steps() -> None:
    raw, scheduler, watch = watched()
    raw[5] = 0.0
    watch.begin()
    scheduler.schedule()
    assert watch.end() == []


def test_pages_are_those_of_the_plan_and_not_of_the_one_before() -> None:
    raw, scheduler, watch = watched()
    scheduler.schedule()
    scheduler.running = scheduler.running[1:]
    watch.begin()
    scheduler.schedule()
    raw[1] = 0.0
    assert [write["place"] for write in watch.end()] == ["a slot that no request owns"]


@pytest.mark.parametrize(("layer", "buffer"), [(0, "kda.0"), (1, "attn.1")])
def test_of_layers_that_lie_one_behind_the_other_each_has_its_own_pages(layer: int, buffer: str) -> None:
    raw = torch.zeros(2 * PAGES, PAGE_WORDS)
    layers = {
        "kda.0": SimpleNamespace(kv_cache=raw[:PAGES].view(PAGES, 4, 16)),
        "attn.1": SimpleNamespace(kv_cache=raw[PAGES:].view(PAGES, 4, 16)),
    }
    watch = PageWatch(layers, (("kda.0", "attn.1"),), seed=1)
    watch.note({"b": [[3]]})
    watch.begin()
    raw[layer * PAGES + 3] = 0.0
    (found,) = watch.end()
    assert (found["buffer"], found["owner"]) == (buffer, "b")


def test_a_storage_that_is_no_whole_number_of_pages_is_refused() -> None:
    raw = torch.zeros(PAGES * PAGE_WORDS + 4)
    views = raw.as_strided((PAGES, PAGE_WORDS), (PAGE_WORDS, 1))
    with pytest.raises(ValueError, match="388 words has pages of 64"):
        PageWatch({"kda.0": SimpleNamespace(kv_cache=views)}, GROUPS, seed=1)
