"""Boxes of ranks on several GPUs of one host: each process allocates its ranks' own and maps everyone else's.

A process serves one rank, or several neighbouring ones where there are more ranks than GPUs. Peers' memory is reached
by plain loads and stores; no multicast object is made.

Source: CUDA driver API, interprocess communication (`cuIpcGetMemHandle`, `cuIpcOpenMemHandle`).
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from specialized_path.kernels.exchange.boxes import empty_box, make_table
from specialized_path.kernels.exchange.protocol import BoxLayout

Gather = Callable[[bytes], Sequence[bytes]]
"""Gives what every process brought, in their order; all of them call it."""
_GRANULE = 2 << 20
"""Smaller allocations share a block, and a handle names the whole block."""


class PeerError(RuntimeError):
    """Memory could not be allocated, or not be shared between the processes."""


class PeerMemory(Protocol):
    """Memory of one GPU that other processes can map."""

    def allocate(self, num_bytes: int) -> int:
        """The address of new memory."""

    def free(self, address: int) -> None:
        """Gives back what `allocate` gave."""

    def handle(self, address: int) -> bytes:
        """What another process maps the memory by."""

    def map(self, handle: bytes) -> int:
        """Where another process's memory lies for this GPU."""

    def unmap(self, address: int) -> None:
        """Undoes `map`."""

    def words(self, address: int, num_words: int) -> Tensor:
        """The memory as int32."""


class CudaMemory:
    """Memory of a GPU, shared by the driver's handles; each failing call raises PeerError."""

    def __init__(self, device: torch.device) -> None:
        """Takes the GPU; the thread's own current device stays as it is."""
        self._device = device

    def allocate(self, num_bytes: int) -> int:
        """See `PeerMemory`."""
        return int(self._call("cuMemAlloc", num_bytes))

    def free(self, address: int) -> None:
        """See `PeerMemory`."""
        self._call("cuMemFree", address)

    def handle(self, address: int) -> bytes:
        """See `PeerMemory`."""
        from cuda.bindings import driver

        handle = self._call("cuIpcGetMemHandle", address)
        return ctypes.string_at(int(handle.getPtr()), driver.CU_IPC_HANDLE_SIZE)

    def map(self, handle: bytes) -> int:
        """See `PeerMemory`; switches peer access between the two GPUs on."""
        from cuda.bindings import driver

        opened = driver.CUipcMemHandle()
        ctypes.memmove(int(opened.getPtr()), handle, driver.CU_IPC_HANDLE_SIZE)
        lazily = driver.CUipcMem_flags.CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS
        return int(self._call("cuIpcOpenMemHandle", opened, int(lazily)))

    def unmap(self, address: int) -> None:
        """See `PeerMemory`."""
        self._call("cuIpcCloseMemHandle", address)

    def words(self, address: int, num_words: int) -> Tensor:
        """See `PeerMemory`; a view, valid until the memory is freed."""
        return torch.as_tensor(_Words(address, num_words), device=self._device)

    def _call(self, name: str, *arguments: Any) -> Any:
        """A driver's call in the GPU's context, which `synchronize` makes where there is none yet."""
        from cuda.bindings import driver

        with torch.cuda.device(self._device):
            torch.cuda.synchronize()
            error, *result = getattr(driver, name)(*arguments)
        if error != driver.CUresult.CUDA_SUCCESS:
            raise PeerError(f"{name}: {driver.CUresult(error).name}")
        return result[0] if result else None


class _Words:
    """Memory as PyTorch takes it without a copy."""

    def __init__(self, address: int, num_words: int) -> None:
        self.__cuda_array_interface__ = {
            "shape": (num_words,),
            "typestr": "<i4",
            "data": (address, False),
            "version": 2,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerBoxes:
    """One process's boxes, and where its ranks publish to."""

    boxes: Tensor
    """[L, copies, N, max_rows, width] BF16: of this process's L ranks, all words empty at first."""
    tables: Tensor
    """[L, copies, N] int64: where each of them publishes to, as `make_table`."""
    _memory: PeerMemory
    _own: int
    _mapped: tuple[int, ...]

    def close(self, gather: Gather) -> None:
        """Gives the memory back; every process calls it, when its GPU has done all that it was given."""
        for address in self._mapped:
            self._memory.unmap(address)
        # Memory that a peer has mapped may not be freed.
        gather(b"")
        self._memory.free(self._own)


def share_boxes(
    layout: BoxLayout,
    *,
    process: int,
    num_processes: int,
    device: torch.device | str,
    gather: Gather,
    memory: PeerMemory | None = None,
) -> PeerBoxes:
    """The boxes of this process's ranks, connected to those of all others; every process calls it at once.

    Args:
        layout: of one box.
        process: this process, which serves ranks `process * L ... + L - 1`.
        num_processes: a divisor N / L of the layout's ranks N.
        device: of this process.
        gather: see there.
        memory: None takes the device's own.

    Raises:
        ValueError: the ranks do not divide among the processes.
        PeerError: the driver refused.
    """
    num_local, rest = divmod(layout.num_ranks, num_processes)
    if rest or not 0 <= process < num_processes:
        raise ValueError(f"processes: got {process} of {num_processes} for {layout.num_ranks} ranks")
    memory = memory or CudaMemory(torch.device(device))
    box_bytes = math.prod(layout.shape) * 2
    own = memory.allocate(-(-num_local * box_bytes // _GRANULE) * _GRANULE)
    words = memory.words(own, num_local * box_bytes // 4)
    boxes = words.view(torch.bfloat16).view(num_local, *layout.shape)
    empty_box(boxes)
    if boxes.is_cuda:
        # A peer may publish as soon as it has the handle.
        torch.cuda.synchronize(boxes.device)
    handles = gather(memory.handle(own))
    bases = [own if p == process else memory.map(handle) for p, handle in enumerate(handles)]
    addresses = [base + local * box_bytes for base in bases for local in range(num_local)]
    ranks = range(process * num_local, (process + 1) * num_local)
    return PeerBoxes(
        boxes=boxes,
        tables=torch.stack([make_table(addresses, layout, rank, device) for rank in ranks]),
        _memory=memory,
        _own=own,
        _mapped=tuple(base for p, base in enumerate(bases) if p != process),
    )
