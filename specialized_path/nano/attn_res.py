"""AttnRes: a layer reads a learned softmax mixture of earlier residual blocks instead of one residual sum."""

import torch
from torch import Tensor, nn

from specialized_path.nano.norm import RmsNorm


class Query(nn.Module):
    """The learned query vector, under its checkpoint name."""

    def __init__(self, size: int, dtype: torch.dtype) -> None:
        """Holds one vector of `size`."""
        super().__init__()
        self.weight = nn.Parameter(torch.empty(size, dtype=dtype), requires_grad=False)


def mix_sources(sources: list[Tensor], norm: RmsNorm, query: Query) -> Tensor:
    """Returns the float32 mixture [T, hidden] of the un-normalised sources.

    Each source is scored by its RMS-normalised dot product with the query; the shares are a softmax over
    the sources, per token. A single source returns unchanged.

    Args:
        sources: n >= 1 tensors [T, hidden].
        norm: Weight of the normalisation before scoring.
        query: The learned query.
    """
    stacked = torch.stack(sources).float()
    direction = norm.weight.float() * query.weight.float()
    scores = (stacked @ direction) * torch.rsqrt(stacked.square().mean(-1) + norm.eps)
    shares = torch.softmax(scores, dim=0)
    return (shares.unsqueeze(-1) * stacked).sum(0)
