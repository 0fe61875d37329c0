"""A kernel variant: one compiled kernel, what it serves, and what its arguments are to the grids around it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from specialized_path.kernels.launches import record_launch


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelVariant:
    """One kernel, compiled for one shape of work. Equal names mean the same variant."""

    name: str
    """Unique in the inventory; says family, rank shape and what was fixed at compile time."""
    operator: str
    """Contracts that it serves, e.g. "OC-4..6"."""
    family: str
    rank_shape: str
    """"tp8", "tp16", or "any" where the shape does not depend on the number of ranks."""
    batches: tuple[int, int]
    """Smallest and largest number of rows that it serves, both included."""
    roles: Mapping[str, str]
    """Role by kernel parameter number, in the words of the audit: static, activation, state, mailbox, output, scratch,
    settled. A parameter that is not an address is not listed."""
    build: Callable[[], Any]
    """Compiles the kernel with fake arguments for the architecture in `CUTE_DSL_ARCH`, or of the GPU that is there."""
    launch: str = "pdl"
    dependents: str = "wait"
    allowed_spill_bytes: int = 0
    _cache: list[Any] = field(default_factory=list, compare=False, repr=False)

    def compiled(self) -> Any:
        """What `build` gives, built once a process."""
        if not self._cache:
            self._cache.append(self.build())
        return self._cache[0]

    def run(self, *arguments: Any) -> None:
        """Launches the kernel and records that it was launched; compile before capturing a CUDA graph."""
        kernel = self.compiled()
        record_launch(self.name)
        kernel(*arguments)
