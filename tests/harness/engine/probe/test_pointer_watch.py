"""Laws of the pointer watch, with a made allocator that gives addresses out again."""

from __future__ import annotations

from harness.engine.pointer_watch import PointerWatch


class MadeAllocator:
    """First fit over one gibibyte at an address such as a GPU's; tells a watch what it does."""

    BASE = 0x7F00_0000_0000

    def __init__(self, watch: PointerWatch) -> None:
        self._watch = watch
        self._live: dict[int, int] = {}

    def take(self, size: int) -> int:
        at = self.BASE
        for start, length in sorted(self._live.items()):
            if start - at >= size:
                break
            at = start + length
        self._live[at] = size
        self._watch.allocated(at, size)
        return at

    def give_back(self, address: int) -> None:
        del self._live[address]
        self._watch.freed(address)


def made() -> tuple[PointerWatch, MadeAllocator]:
    watch = PointerWatch()
    return watch, MadeAllocator(watch)


def test_memory_that_stays_is_never_lost() -> None:
    watch, allocator = made()
    weights, workspace = allocator.take(4096), allocator.take(512)
    watch.captured("decode 8", {"gemm": [weights + 64, workspace], "norm": [3, 17]}, 8)
    watch.stepped_eagerly()
    assert watch.replayed("decode 8") == ()
    assert watch.losses == []


def test_a_workspace_that_grows_at_a_larger_capture_is_lost_to_the_earlier_graph() -> None:
    watch, allocator = made()
    small = allocator.take(512)
    watch.captured("decode 1", {"merge": [small + 8]}, 1)
    allocator.give_back(small)
    large = allocator.take(8192)
    watch.captured("decode 8", {"merge": [large + 8]}, 8)
    (loss,) = watch.replayed("decode 1")
    assert (loss.kernel, loss.address, loss.block_bytes) == ("merge", small + 8, 512)
    assert watch.replayed("decode 8") == ()


def test_the_same_address_given_out_again_is_another_ones_memory() -> None:
    watch, allocator = made()
    first = allocator.take(512)
    watch.captured("g", {"k": [first]}, 1)
    allocator.give_back(first)
    assert allocator.take(512) == first
    (loss,) = watch.replayed("g")
    assert loss.reused


def test_memory_that_nobody_has_yet_is_lost_and_not_reused() -> None:
    watch, allocator = made()
    first = allocator.take(512)
    watch.captured("g", {"k": [first]}, 1)
    allocator.give_back(first)
    (loss,) = watch.replayed("g")
    assert not loss.reused


def test_a_loss_is_told_at_the_first_replay_after_it_and_once() -> None:
    watch, allocator = made()
    first = allocator.take(512)
    watch.captured("g", {"k": [first]}, 1)
    watch.replayed("g")
    allocator.give_back(first)
    assert [loss.replay for loss in watch.replayed("g")] == [1]
    assert watch.replayed("g") == ()


def test_a_number_that_lies_in_no_memory_is_no_address() -> None:
    watch, allocator = made()
    block = allocator.take(512)
    watch.captured("g", {"k": [0, 1, block - 1, block + 512, block + 511]}, 1)
    assert watch.graphs[0].num_addresses == 1


def test_replays_after_the_largest_capture_and_after_eager_steps_are_counted() -> None:
    watch, allocator = made()
    block = allocator.take(512)
    watch.captured("one", {"k": [block]}, 1)
    watch.replayed("one")
    watch.captured("eight", {"k": [block]}, 8)
    watch.captured("two", {"k": [block]}, 2)
    watch.stepped_eagerly()
    watch.replayed("eight")
    watch.replayed("one")
    watch.replayed("one")
    graphs = {g.name: g for g in watch.graphs}
    one = graphs["one"]
    assert (one.num_replays, one.num_replays_after_largest, one.num_replays_after_eager) == (3, 2, 1)
    assert graphs["eight"].num_replays_after_eager == 1
    assert graphs["two"].num_replays == 0
