"""Adversarial values of the attention residuals' contracts, as data: what each makes of random inputs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from specialized_path.kernels.attn_res.variants import HIDDEN

MAX_BLOCKS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class AttnResInputs:
    """Inputs of one boundary; `num_blocks` blocks are finished, the others hold NaN."""

    prefix: Tensor
    blocks: Tensor
    delta: Tensor
    res_norm: Tensor
    res_proj: Tensor
    norm: Tensor

    def to(self, device: str) -> AttnResInputs:
        """A copy on `device`."""
        names = ("prefix", "blocks", "delta", "res_norm", "res_proj", "norm")
        return AttnResInputs(**{name: getattr(self, name).to(device, copy=True) for name in names})


@dataclass(frozen=True, slots=True, kw_only=True)
class AttnResCase:
    """A name and what it does to random inputs with a number of finished blocks."""

    name: str
    change: Callable[[AttnResInputs, int], AttnResInputs]


def random_inputs(num_rows: int, num_blocks: int, seed: int = 0) -> AttnResInputs:
    """Inputs on the CPU with scores of about one, and NaN in blocks that are not finished."""
    gen = torch.Generator().manual_seed(seed)

    def randn(*shape: int, scale: float = 1.0) -> Tensor:
        return (torch.randn(*shape, generator=gen) * scale).bfloat16()

    blocks = randn(num_rows, MAX_BLOCKS, HIDDEN)
    blocks[:, num_blocks:] = float("nan")
    return AttnResInputs(
        prefix=randn(num_rows, HIDDEN),
        blocks=blocks,
        delta=randn(num_rows, HIDDEN),
        res_norm=(1 + randn(HIDDEN, scale=0.3)).bfloat16(),
        res_proj=randn(HIDDEN, scale=HIDDEN**-0.5),
        norm=(1 + randn(HIDDEN, scale=0.3)).bfloat16(),
    )


def _dominant(inputs: AttnResInputs, num_blocks: int) -> AttnResInputs:
    blocks = inputs.blocks.clone()
    if num_blocks:
        blocks[:, num_blocks - 1] = inputs.res_proj * 1e4
    return replace(inputs, blocks=blocks)


def _equal_sources(inputs: AttnResInputs, num_blocks: int) -> AttnResInputs:
    blocks = inputs.blocks.clone()
    blocks[:, :num_blocks] = inputs.prefix.unsqueeze(1)
    return replace(inputs, blocks=blocks, delta=torch.zeros_like(inputs.delta))


def _cancelling(inputs: AttnResInputs, num_blocks: int) -> AttnResInputs:
    """Half of the sources are the negative of the others, and all scores are zero."""
    blocks = inputs.blocks.clone()
    signs = torch.tensor([(-1.0) ** (j + 1) for j in range(num_blocks)]).bfloat16()
    if num_blocks:
        blocks[:, :num_blocks] = inputs.prefix.unsqueeze(1) * signs.view(1, -1, 1)
        blocks[:, num_blocks - 1, ::64] += 0.125
    return replace(
        inputs,
        blocks=blocks,
        delta=torch.zeros_like(inputs.delta),
        res_proj=torch.zeros_like(inputs.res_proj),
    )


def _norms_far_apart(inputs: AttnResInputs, num_blocks: int) -> AttnResInputs:
    blocks = inputs.blocks.clone()
    for j in range(num_blocks):
        blocks[:, j] = inputs.blocks[:, j] * (1e4 if j % 2 else 1e-4)
    return replace(inputs, blocks=blocks)


def _scaled(scale: float) -> Callable[[AttnResInputs, int], AttnResInputs]:
    def change(inputs: AttnResInputs, num_blocks: int) -> AttnResInputs:
        del num_blocks
        return replace(
            inputs, prefix=inputs.prefix * scale, delta=inputs.delta * scale, blocks=inputs.blocks * scale
        )

    return change


def _near_ties(inputs: AttnResInputs, num_blocks: int) -> AttnResInputs:
    """The first block's score is the FP32 number next above all others', whatever the order of the sums.

    Sources are signs, so that their squares add up exactly, and the query sees two columns: 1 and 2^-23. The prefix is
    all delta, which is what it becomes by adding and by replacing.
    """

    def signs(values: Tensor, *, above: bool) -> Tensor:
        found = torch.where(values < 0, -1.0, 1.0).bfloat16()
        found[..., :3] = torch.tensor([1.0, above, not above])
        return found

    blocks, query = inputs.blocks.clone(), torch.zeros_like(inputs.res_proj)
    blocks[:, :num_blocks] = signs(blocks[:, :num_blocks], above=False)
    blocks[:, :1] = torch.where(blocks[:, :1].isnan(), blocks[:, :1], signs(blocks[:, :1], above=True))
    query[:2] = torch.tensor([1.0, 2.0**-23])
    return replace(
        inputs,
        prefix=torch.zeros_like(inputs.prefix),
        delta=signs(inputs.delta, above=False),
        blocks=blocks,
        res_norm=torch.ones_like(inputs.res_norm),
        res_proj=query,
    )


CASES = (
    AttnResCase(name="random", change=lambda inputs, _: inputs),
    AttnResCase(name="one source dominates", change=_dominant),
    AttnResCase(name="all sources equal", change=_equal_sources),
    AttnResCase(name="sources cancel", change=_cancelling),
    AttnResCase(name="delta is minus prefix", change=lambda inputs, _: replace(inputs, delta=-inputs.prefix)),
    AttnResCase(name="zero rows", change=_scaled(0.0)),
    AttnResCase(name="norms of 1e4 and 1e-4", change=_norms_far_apart),
    AttnResCase(name="denormals", change=_scaled(1e-39)),
    AttnResCase(name="large rows", change=_scaled(1e4)),
    AttnResCase(name="scores an ulp apart", change=_near_ties),
)
