"""Every kernel variant there is, and the entry points that compile them without a GPU."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

from specialized_path.kernels.benchmark import BenchmarkCell
from specialized_path.kernels.variant import KernelVariant

FAMILIES = ("attn_res", "embedding", "exchange", "kda", "mla", "moe_experts", "moe_latent", "projection")
"""Folders beside this file; each has a module `variants` with a function `variants()`."""
TIMED = ("attn_res", "kda", "mla", "moe_experts", "moe_latent", "projection")
"""Those with a module `benchmarks` with a function `cells()`: an exchange is timed between GPUs (docs/peers.md)."""


def family_variants(family: str) -> tuple[KernelVariant, ...]:
    """The variants of one family, in the order in which it lists them."""
    module = importlib.import_module(f"specialized_path.kernels.{family}.variants")
    found: tuple[KernelVariant, ...] = module.variants()
    return found


def variants() -> tuple[KernelVariant, ...]:
    """The variants of all families. Needs neither a GPU nor the DSL."""
    return tuple(variant for family in FAMILIES for variant in family_variants(family))


def _compile(family: str) -> Iterator[tuple[str, Any]]:
    for variant in family_variants(family):
        yield variant.name, variant.build()


def attn_res() -> Iterator[tuple[str, Any]]:
    """Entry point: compiles each variant of the attention residuals for the architecture in the environment."""
    return _compile("attn_res")


def projection() -> Iterator[tuple[str, Any]]:
    """Entry point: compiles each variant of the projections."""
    return _compile("projection")


def exchange() -> Iterator[tuple[str, Any]]:
    """Entry point: compiles each variant of the exchange behind the output projection."""
    return _compile("exchange")


def kda() -> Iterator[tuple[str, Any]]:
    """Entry point: compiles each variant of KDA decode and verify."""
    return _compile("kda")


def mla() -> Iterator[tuple[str, Any]]:
    """Entry point: compiles each variant of multi-head latent attention."""
    return _compile("mla")


def embedding() -> Iterator[tuple[str, Any]]:
    """Entry point: compiles each variant of the embedding."""
    return _compile("embedding")


def moe_experts() -> Iterator[tuple[str, Any]]:
    """Entry point: compiles each variant of the routed experts."""
    return _compile("moe_experts")


def moe_latent() -> Iterator[tuple[str, Any]]:
    """Entry point: compiles each variant of what surrounds the routed experts."""
    return _compile("moe_latent")


def benchmarks() -> tuple[BenchmarkCell, ...]:
    """What all families are timed on."""
    found: list[BenchmarkCell] = []
    for family in TIMED:
        found += importlib.import_module(f"specialized_path.kernels.{family}.benchmarks").cells()
    return tuple(found)
