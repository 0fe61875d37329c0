"""The mailbox protocol: every interleaving of small runs, and runs in which one of its rules is broken."""

import pytest

from specialized_path.kernels.exchange.model_check import Exchange, Protocol, find_violation
from specialized_path.kernels.exchange.protocol import BoxLayout, copy_schedule


def run(copies, rows=None, *, ranks=2, two_shot=False, **rules):
    rows = rows or [1] * len(copies)
    exchanges = tuple(
        Exchange(copy=c, rows=r, is_reduced=two_shot and i % 2 == 1)
        for i, (c, r) in enumerate(zip(copies, rows, strict=True))
    )
    return find_violation(Protocol(num_ranks=ranks, exchanges=exchanges, **rules))


def kind_of(*args, **kwargs):
    violation, _ = run(*args, **kwargs)
    return None if violation is None else violation.kind


@pytest.mark.parametrize(("layers", "states"), [(2, 1809), (3, 2833), (4, 3857), (5, 4881)])
def test_the_schedule_of_a_step_is_safe_over_two_steps_in_every_interleaving(layers, states):
    # The number of states is the model's own: with fewer, some interleaving is no longer looked at.
    assert run(copy_schedule(layers) * 2) == (None, states)


# The boxes of a two-shot exchange, chunks and results, are further copies to the model: 0 and 2, 1 and 3.
def test_an_owners_sum_may_overtake_its_emptying_so_one_copy_of_the_chunk_box_loses_data():
    violation, _ = run([0, 1, 0, 1], two_shot=True)
    assert violation.kind == "lost data"
    assert violation.trace[-1].endswith("becomes exchange 2 while it holds exchange 0")


def test_two_copies_of_both_boxes_are_safe_for_a_two_shot_exchange_over_two_steps_in_every_interleaving():
    assert run([0, 1, 2, 3] * 2, two_shot=True) == (None, 23121)


def test_one_result_copy_is_safe_behind_chunks_of_two_copies():
    assert kind_of([0, 1, 2, 1, 0, 1], two_shot=True) is None


def test_a_rows_sum_is_on_its_way_before_the_other_rows_have_been_read():
    # Chunks and sums in one copy: the shortest run that loses data loses the chunk under the first sum.
    violation, _ = run([0, 0], [2, 2], two_shot=True)
    assert violation.kind == "lost data" and not any("reads" in e and "row 1" in e for e in violation.trace)


def test_a_wait_between_emptying_and_sum_would_make_one_copy_of_each_box_enough():
    # What the model once took for the kernel: the sum as an exchange of its own, behind a dependency wait.
    assert kind_of([0, 1, 0, 1]) is None


@pytest.mark.parametrize("before", [(), (Exchange(copy=0, rows=2),)])
def test_a_sum_without_chunks_of_as_many_rows_before_it_is_no_protocol(before):
    with pytest.raises(ValueError, match="before it"):
        Protocol(num_ranks=2, exchanges=(*before, Exchange(copy=1, rows=1, is_reduced=True)))


def test_among_three_ranks_too_a_copy_used_twice_in_a_row_loses_data():
    assert kind_of([0, 0], ranks=3) == "lost data"


@pytest.mark.parametrize("rows", [[2, 1, 2], [1, 2, 1], [2, 1, 1, 2]])
def test_a_batch_that_shrinks_and_grows_is_safe(rows):
    assert kind_of([0, 1, 0, 1][: len(rows)], rows) is None


def test_one_copy_is_overwritten_by_a_rank_that_is_an_exchange_ahead():
    violation, _ = run([0, 0])
    assert violation.kind == "lost data"
    assert "holds exchange 0" in violation.trace[-1]


def test_one_copy_gives_a_slow_reader_what_the_exchange_after_its_own_published():
    violation, _ = find_violation(
        Protocol(num_ranks=2, exchanges=(Exchange(copy=0, rows=1),) * 2), sought="stale read"
    )
    assert violation.trace[-1].endswith("for exchange 0 and finds exchange 1")


def test_a_violation_of_another_kind_than_the_one_sought_is_passed_over():
    protocol = Protocol(num_ranks=2, exchanges=(Exchange(copy=0, rows=1),) * 2)
    assert find_violation(protocol, sought="not empty at the end")[0] is None


def test_an_exchange_over_another_box_between_makes_one_copy_safe():
    # The other box is copy 9: complete exchanges take turns over the two.
    assert kind_of([0, 9, 0, 9, 0, 9]) is None


@pytest.mark.parametrize("layers", [3, 5])
def test_taking_turns_by_layer_parity_fails_where_a_step_has_an_odd_number_of_exchanges(layers):
    assert kind_of([i % 2 for i in range(layers)] * 2) == "lost data"


def test_publishing_before_the_own_box_is_emptied_fails():
    assert kind_of([0, 1, 0, 1], emptied_before_publishing=False) == "lost data"


def test_waiting_for_the_first_row_only_reads_rows_that_have_not_come():
    violation, _ = run([0, 1], [2, 2], checks_every_row=False)
    assert violation.kind == "stale read" and "finds nothing" in violation.trace[-1]


def test_emptying_the_first_row_only_loses_the_next_use_of_the_copy():
    assert kind_of([0, 1, 0, 1], [2, 2, 2, 2], empties_every_row=False) == "lost data"


def test_a_box_that_is_not_emptied_is_seen_at_the_end_of_a_run_too_short_to_use_it_again():
    assert kind_of([0, 1], [2, 1], empties_every_row=False) == "not empty at the end"


def test_a_rank_that_never_arrives_leaves_the_others_waiting_and_nothing_worse():
    violation, _ = run([0, 1], absent_rank=1)
    assert violation.kind == "stuck"


def test_a_run_too_large_to_explore_is_an_error_and_not_a_proof():
    exchanges = tuple(Exchange(copy=i % 2, rows=2) for i in range(4))
    with pytest.raises(ValueError, match="make the run smaller"):
        find_violation(Protocol(num_ranks=3, exchanges=exchanges), max_states=1000)


@pytest.mark.parametrize("layers", [2, 3, 92, 93])
def test_neighbouring_exchanges_use_different_copies_around_the_step(layers):
    schedule = copy_schedule(layers)
    assert len(schedule) == layers
    assert all(a != b for a, b in zip(schedule, (*schedule[1:], schedule[0]), strict=True))


def test_exchanges_apart_need_one_copy_and_a_lone_one_is_refused():
    assert copy_schedule(93, between=1) == (0,) * 93
    with pytest.raises(ValueError, match="follows itself"):
        copy_schedule(1)
    with pytest.raises(ValueError, match="at least 1"):
        copy_schedule(0)


@pytest.mark.parametrize("width", [0, 4, 12])
def test_rows_that_are_not_whole_fragments_are_refused(width):
    with pytest.raises(ValueError, match="multiple of 8"):
        BoxLayout(num_ranks=2, max_rows=4, width=width, copies=2)
