"""Shards of a context: latents and LSE of a group's ranks, as `dcp_merge` gets them."""

import torch
from torch import Tensor

NAN = float("nan")
EMPTY = -3e38
LSES = {
    "ordinary": [3.0, -2.0, 0.5, 1.0],
    "one rank": [EMPTY, 7.0, EMPTY, EMPTY],
    "all equal": [5.0] * 4,
    "differing by 200": [200.0, 0.0, -1.0, 199.0],
    "no rank": [EMPTY] * 4,
    "not finite": [NAN, float("inf"), -float("inf"), 2.0],
    "far from zero": [4e4, 4e4 - 1, -4e4, 0.0],
}


def normal(*shape: int, seed: int = 0, scale: float = 1.0, device: str = "cuda") -> Tensor:
    """Random BF16."""
    generator = torch.Generator(device).manual_seed(seed)
    return (scale * torch.randn(shape, generator=generator, device=device)).bfloat16()


def shards(
    lse: list[float], num_rows: int = 18, num_heads: int = 12, device: str = "cuda"
) -> tuple[Tensor, Tensor]:
    """Latents and LSE of each rank; where a shard is empty its latent holds NaN."""
    latents = normal(len(lse), num_rows, num_heads, 512, seed=4, device=device)
    lses = torch.tensor(lse, device=device)[:, None, None].repeat(1, num_rows, num_heads)
    lses += torch.linspace(0, 1, num_rows * num_heads, device=device).view(num_rows, num_heads)
    for rank, value in enumerate(lse):
        if not -1e38 < value < float("inf"):
            latents[rank], lses[rank] = NAN, value
    return latents, lses
