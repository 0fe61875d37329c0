"""Sizes of the products around the routed experts, and where the front's outputs lie. Pure numbers: no GPU, no DSL."""

from __future__ import annotations

from dataclasses import dataclass

HIDDEN = 7168
LATENT = 3584
NUM_EXPERTS = 896
TOP_K = 16
MAX_TOKENS = 64
AHEAD_MIB = {8: 12, MAX_TOKENS: 24}
"""Of the tail's weights, that come to L2 while the experts run, by the largest batch (timed: docs/kernels/moe.md)."""
LOGITS_BYTE = MAX_TOKENS * LATENT * 2
"""Where, in the front's buffer, the FP32 logits begin: behind the BF16 latents of 64 tokens."""
TAIL_BYTE = LOGITS_BYTE + MAX_TOKENS * NUM_EXPERTS * 4
"""Where the BF16 rows of the product behind the experts begin."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontShape:
    """What one product of the MLP input gives: latent, router logits, gates and ups of a rank's shared experts."""

    name: str
    shared: int
    """Intermediate size of the shared experts on this rank."""

    @property
    def num_outputs(self) -> int:
        """Rows of the weight."""
        return LATENT + NUM_EXPERTS + 2 * self.shared

    @property
    def tail_inputs(self) -> int:
        """Columns of the product behind the experts: normed latents, then the shared experts' hidden values."""
        return LATENT + self.shared

    @property
    def buffer_bytes(self) -> int:
        """Room for the outputs of 64 tokens."""
        return TAIL_BYTE + MAX_TOKENS * self.tail_inputs * 2


FRONTS = (FrontShape(name="tp8", shared=768), FrontShape(name="tp16", shared=384))
