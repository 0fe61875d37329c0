"""An interleave that is off by one keeps every shape, and breaks the law that each token lives on one rank.

A CPU serves no context parallelism, so the fault is planted in the operator.
"""

import pytest
import torch

from specialized_path.reference import dcp_local_lens


def shifted_rank(lens, *, rank, world_size, interleave):
    return dcp_local_lens(lens, rank=(rank + 1) % world_size, world_size=world_size, interleave=interleave)


def shifted_start(lens, *, rank, world_size, interleave):
    return dcp_local_lens((lens + 1), rank=rank, world_size=world_size, interleave=interleave)


def wider_block(lens, *, rank, world_size, interleave):
    return dcp_local_lens(lens, rank=rank, world_size=world_size, interleave=interleave + 1)


def narrower_rest(lens, *, rank, world_size, interleave):
    whole, rest = lens // (interleave * world_size), lens % (interleave * world_size)
    return whole * interleave + (rest - rank * interleave - 1).clamp(0, interleave)


def counts_tokens_on_their_ranks(local_lens, world_size, interleave):
    """Whether the first n tokens are on the ranks that own them, for every n up to three rounds."""
    n = torch.arange(3 * world_size * interleave + 1)
    owners = n[:-1] // interleave % world_size
    return all(
        torch.equal(
            local_lens(n, rank=rank, world_size=world_size, interleave=interleave),
            torch.cat([torch.zeros(1, dtype=torch.long), (owners == rank).cumsum(0)]),
        )
        for rank in range(world_size)
    )


@pytest.mark.parametrize("interleave", [1, 2, 4])
@pytest.mark.parametrize("world_size", [2, 4, 8])
@pytest.mark.parametrize("fault", [shifted_rank, shifted_start, wider_block, narrower_rest])
def test_an_interleave_that_is_off_by_one_is_noticed_though_every_shape_is_right(
    fault, world_size, interleave
):
    lens = torch.arange(20)
    assert fault(lens, rank=1, world_size=world_size, interleave=interleave).shape == lens.shape
    assert counts_tokens_on_their_ranks(dcp_local_lens, world_size, interleave)
    assert not counts_tokens_on_their_ranks(fault, world_size, interleave)
