"""The exchange among 8 and 16 ranks on one GPU: each late in turn, a thousand steps, a step that failed replayed."""

import pytest
import torch

from specialized_path.kernels.exchange.boxes import empty_box
from tests.specialized_path.kernels.exchange.payloads import HIDDEN, payload
from tests.specialized_path.kernels.exchange.ranks import (
    FEW_POLLS,
    connect,
    consume,
    exchange,
    exchange_on_streams,
    expect,
    residual_inputs,
    wrong_words_of_many,
)
from tests.specialized_path.kernels.replay import captured
from tests.specialized_path.kernels.tolerance import assert_same_bits

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU"),
]

RANKS = [pytest.param(8, id="tp8"), pytest.param(16, id="tp16")]
SHOTS = [pytest.param(False, id="one-shot"), pytest.param(True, id="two-shot")]


@pytest.mark.parametrize("is_two_shot", SHOTS)
@pytest.mark.parametrize("num_ranks", RANKS)
def test_each_rank_in_turn_may_be_late(num_ranks, is_two_shot):
    x, weight, partials = payload("normal", num_ranks, 1)
    ranks, inputs = connect(num_ranks, is_two_shot), residual_inputs(num_ranks, 1)
    # A kernel is loaded at its first launch, which would wait for the ranks that wait.
    exchange(ranks, x, weight, 1, inputs=inputs)
    torch.cuda._sleep(1)
    wanted = torch.stack(expect(partials, inputs))
    for late in range(num_ranks):
        outs = exchange_on_streams(ranks, x, weight, late % 2, inputs, late)
        assert_same_bits(outs, wanted.expand_as(outs).contiguous())
        assert ranks.full_words() == 0 and not ranks.failed


@pytest.mark.parametrize("is_two_shot", SHOTS)
def test_a_thousand_exchanges_among_16_ranks_of_up_to_64_rows_leave_every_box_empty(is_two_shot):
    ranks = connect(16, is_two_shot)
    assert wrong_words_of_many(ranks, 1000, (1, 64, 2, 33, 8)) == 0
    assert ranks.full_words() == 0 and not ranks.failed


@pytest.mark.parametrize("is_two_shot", SHOTS)
@pytest.mark.parametrize("num_ranks", RANKS)
def test_a_graph_replays_rightly_behind_a_step_that_timed_out(num_ranks, is_two_shot):
    """A rank's rows go astray in one replay, by its table, and come when all have given up."""
    absent, num_rows = num_ranks - 3, 2
    x, weight, partials = payload("normal", num_ranks, num_rows)
    ranks, inputs = connect(num_ranks, is_two_shot), residual_inputs(num_ranks, num_rows)
    out, prefix = (
        torch.empty(num_ranks * num_rows, HIDDEN, dtype=torch.bfloat16, device="cuda") for _ in range(2)
    )

    def step():
        for rank in range(num_ranks):
            ranks.publish(rank, x[rank], weight[rank], 0)
        for rank in range(num_ranks):
            ranks.reduce(rank, num_rows, 0, polls=FEW_POLLS)
        consume(ranks, 0, *inputs, polls=FEW_POLLS, out=out, prefix_out=prefix)

    graph = captured(step)
    table = ranks.tables[0][absent][0]
    here, astray = table.clone(), torch.empty_like(ranks.boxes[0])
    table += astray.data_ptr() - ranks.boxes[0].data_ptr()
    graph.replay()
    gave_up = ranks.errors[:, 0] if is_two_shot else ranks.joint_errors
    assert gave_up.tolist() == [1 + absent] * num_ranks and out.isnan().all()
    table.copy_(here)
    ranks.publish(absent, x[absent], weight[absent], 0)
    assert ranks.full_words() > 0
    for box in ranks.boxes:
        empty_box(box)
    ranks.errors.zero_()
    ranks.joint_errors.zero_()
    wanted = [rows.repeat(num_ranks, 1) for rows in expect(partials, inputs)]
    for _ in range(2):
        out.fill_(float("nan"))
        graph.replay()
        assert_same_bits(torch.stack([out, prefix]), torch.stack(wanted))
        assert ranks.full_words() == 0 and not ranks.failed
