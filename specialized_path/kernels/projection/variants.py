"""Variants of the projections: by weight shape and batch bucket, with the cuts of `tactics.json`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

from specialized_path.kernels.projection.tactics import Tactic
from specialized_path.kernels.variant import KernelVariant

BATCHES = (1, 2, 4, 8, 16, 32, 64)
"""Batches that cuts are fitted at; a cut serves the batches above the one before it."""
TABLE = Path(__file__).with_name("tactics.json")
ROLES = {"0": "activation", "2": "static", "3": "output"}
"""Parameters 0 and 2 are the descriptors of activations and weights; 1 and 4 are numbers of rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightShape:
    """A weight matrix of one rank."""

    name: str
    operator: str
    rank_shape: str
    num_outputs: int
    num_inputs: int

    @property
    def num_bytes(self) -> int:
        """Bytes of the BF16 weight."""
        return 2 * self.num_outputs * self.num_inputs


SHAPES = tuple(
    WeightShape(name=f"{rank} {name}", operator=operator, rank_shape=rank, num_outputs=n, num_inputs=k)
    for name, operator, sizes in (
        ("in_proj", "OC-3", {"tp8": (6288, 7168), "tp16": (3216, 7168)}),
        ("mla_in_proj", "OC-8", {"tp8": (3648, 7168), "tp16": (2880, 7168)}),
        ("o_proj", "OC-12", {"tp8": (7168, 1536), "tp16": (7168, 768)}),
    )
    for rank, (n, k) in sizes.items()
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectionVariant:
    """A variant, and what it multiplies."""

    shape: WeightShape
    tactic: Tactic
    kernel: KernelVariant


def build(num_outputs: int, num_inputs: int, tactic: Tactic) -> Any:
    """Compiles the kernel for a weight shape and a tactic that fits it."""
    import cutlass
    import cutlass.cute as cute

    from specialized_path.kernels.common.host import fake_pointer, fake_stream
    from specialized_path.kernels.projection.kernel import ProjectionKernel

    kernel = ProjectionKernel(num_outputs=num_outputs, num_inputs=num_inputs, tactic=tactic)
    addresses = [fake_pointer() for _ in range(3)]
    return cute.compile(kernel, *addresses, cutlass.Int32(1), cutlass.Int32(1), fake_stream())


def parse_table(text: str) -> dict[str, dict[int, Tactic]]:
    """Cuts by shape name and largest batch, from the table's JSON.

    Raises:
        ValueError: a shape or batch is missing, or a cut does not fit its shape or batch.
    """
    cuts = json.loads(text)["cuts"]
    found: dict[str, dict[int, Tactic]] = {}
    for shape in SHAPES:
        rows = cuts.get(shape.name, {})
        if sorted(map(int, rows)) != list(BATCHES):
            raise ValueError(f"{shape.name}: got cuts for {sorted(map(int, rows))}, expected {list(BATCHES)}")
        found[shape.name] = {batch: Tactic(**rows[str(batch)]) for batch in BATCHES}
        for batch, tactic in found[shape.name].items():
            problems = tactic.problems(shape.num_outputs, shape.num_inputs)
            if problems or tactic.columns < batch:
                raise ValueError(f"{shape.name} at batch {batch}: {problems or 'too few columns'}")
    return found


def render_table(cuts: Mapping[str, Mapping[int, Tactic]], fitted: str) -> str:
    """The table's JSON; `fitted` says when and on what hardware."""
    rows = {name: {str(b): asdict(t) for b, t in sorted(row.items())} for name, row in cuts.items()}
    return json.dumps({"fitted": fitted, "cuts": rows}, indent=1) + "\n"


@cache
def projection_variants() -> tuple[ProjectionVariant, ...]:
    """All variants, with their shapes and cuts."""
    table = parse_table(TABLE.read_text(encoding="utf-8"))
    return tuple(variant for shape in SHAPES for variant in _of_shape(shape, table[shape.name]))


def _of_shape(shape: WeightShape, cuts: Mapping[int, Tactic]) -> list[ProjectionVariant]:
    """One variant for neighbouring batches with the same cut."""
    found: list[tuple[int, int, Tactic]] = []
    low = 1
    for batch in BATCHES:
        if found and found[-1][2] == cuts[batch]:
            found[-1] = (found[-1][0], batch, cuts[batch])
        else:
            found.append((low, batch, cuts[batch]))
        low = batch + 1
    return [_variant(shape, *bucket) for bucket in found]


def _variant(shape: WeightShape, low: int, high: int, tactic: Tactic) -> ProjectionVariant:
    kernel = KernelVariant(
        name=f"projection {shape.name} batch={low}-{high}",
        operator=shape.operator,
        family="projection",
        rank_shape=shape.rank_shape,
        batches=(low, high),
        roles=ROLES,
        build=partial(build, shape.num_outputs, shape.num_inputs, tactic),
    )
    return ProjectionVariant(shape=shape, tactic=tactic, kernel=kernel)


def variants() -> tuple[KernelVariant, ...]:
    """All variants of the family."""
    return tuple(variant.kernel for variant in projection_variants())


def shape_variants(shape_name: str) -> tuple[ProjectionVariant, ...]:
    """The variants of one weight shape, by batch."""
    return tuple(variant for variant in projection_variants() if variant.shape.name == shape_name)


def find_variant(num_outputs: int, num_inputs: int, batch: int) -> ProjectionVariant:
    """The variant for a weight shape and a batch; raises ValueError where there is none."""
    for variant in projection_variants():
        low, high = variant.kernel.batches
        if (variant.shape.num_outputs, variant.shape.num_inputs) == (num_outputs, num_inputs) and (
            low <= batch <= high
        ):
            return variant
    known = [(s.num_outputs, s.num_inputs) for s in SHAPES]
    raise ValueError(
        f"projection: got weight ({num_outputs}, {num_inputs}) at batch {batch}, expected one of {known} at 1 ... 64"
    )
