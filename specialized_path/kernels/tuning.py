"""Refits tables of tactics from timings; the timing loop is the judge's."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from specialized_path.kernels.benchmark import Calls
from specialized_path.kernels.projection.acceptance import (
    ExpectedProduct,
    expected_products,
    require_right,
)
from specialized_path.kernels.projection.benchmarks import draw
from specialized_path.kernels.projection.tactics import Tactic, candidates
from specialized_path.kernels.projection.variants import (
    BATCHES,
    SHAPES,
    TABLE,
    WeightShape,
    build,
    parse_table,
    render_table,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectionTask:
    """The cut of one weight shape at one batch."""

    shape: WeightShape
    batch: int

    @property
    def name(self) -> str:
        """As it stands in a table."""
        return f"projection {self.shape.name} batch={self.batch}"

    def choices(self) -> dict[str, Tactic]:
        """What is timed, by name: the candidates and the cut in use."""
        shape, n_tiles = self.shape, -(-self.batch // 8)
        sms = torch.cuda.get_device_properties().multi_processor_count
        in_use = parse_table(TABLE.read_text(encoding="utf-8"))[shape.name][self.batch]
        cuts = candidates(shape.num_outputs, shape.num_inputs, n_tiles, num_sms=sms)
        return {cut.name: cut for cut in (in_use, *cuts)}

    def prepare(self) -> Mapping[str, Callable[[], Calls]]:
        """For each choice, what compiles it and gives its calls; one whose result is wrong raises ValueError."""
        x, weights = draw(self.shape, self.batch)
        expected = expected_products(self.batch, self.shape.num_outputs, self.shape.num_inputs)
        return {
            name: partial(self._calls, tactic, x, weights, expected)
            for name, tactic in self.choices().items()
        }

    def _calls(
        self, tactic: Tactic, x: Tensor, weights: list[Tensor], expected: list[ExpectedProduct]
    ) -> Calls:
        from cutlass import Int32

        from specialized_path.kernels.common.host import current_stream, pointer

        kernel = build(self.shape.num_outputs, self.shape.num_inputs, tactic)

        def run(x: Tensor, weight: Tensor, out: Tensor) -> None:
            stream = current_stream(x.device)
            kernel(pointer(x), pointer(weight), pointer(out), Int32(self.batch), Int32(1), stream)

        require_right(expected, run)
        out = torch.empty(self.batch, self.shape.num_outputs, dtype=x.dtype, device=x.device)
        return [partial(run, x, weight, out) for weight in weights]


class ProjectionTuner:
    """Fits the table of the projections' cuts."""

    def tasks(self) -> tuple[ProjectionTask, ...]:
        """One task a shape and batch."""
        return tuple(ProjectionTask(shape=shape, batch=batch) for shape in SHAPES for batch in BATCHES)

    def save(self, chosen: Mapping[str, str], gpu: str) -> str:
        """Writes the fastest cuts into the table, and leaves the others as they are; gives the table's name."""
        cuts = parse_table(TABLE.read_text(encoding="utf-8"))
        for task in self.tasks():
            if task.name in chosen:
                cuts[task.shape.name][task.batch] = task.choices()[chosen[task.name]]
        TABLE.write_text(render_table(cuts, f"{gpu}, {time.strftime('%Y-%m-%d', time.gmtime())}"))
        return TABLE.name


def tuner() -> ProjectionTuner:
    """What `fasttrack kernels tune` asks for tasks."""
    return ProjectionTuner()
