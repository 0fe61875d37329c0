"""Boxes shared among processes: every table points into every box, and all memory goes back."""

import ctypes
from contextlib import nullcontext

import pytest
import torch

from specialized_path.kernels.exchange.boxes import count_full_words
from specialized_path.kernels.exchange.peers import CudaMemory, PeerError, share_boxes
from specialized_path.kernels.exchange.protocol import BoxLayout

LAYOUT = BoxLayout(num_ranks=4, max_rows=3, width=16, copies=2)
PROCESSES = 2
BOX_BYTES = 2 * 4 * 3 * 16 * 2


class FakeMemory:
    """Memory of one of several processes; another process's lies elsewhere in each of them."""

    def __init__(self, process):
        self.process, self.held, self.log = process, {}, []

    def allocate(self, num_bytes):
        words = torch.zeros(num_bytes // 4, dtype=torch.int32)
        self.held[words.data_ptr()] = words
        return words.data_ptr()

    def free(self, address):
        self.log.append("free")
        del self.held[address]

    def handle(self, address):
        return b"handle of %d" % self.process

    def map(self, handle):
        return 1_000_000 * (1 + int(handle.split()[-1])) + 100_000_000 * self.process

    def unmap(self, address):
        self.log.append(f"unmap {address}")

    def words(self, address, num_words):
        return self.held[address][:num_words]


def share(process):
    memory = FakeMemory(process)

    def gather(mine):
        memory.log.append("meet")
        return [mine if p == process else b"handle of %d" % p for p in range(PROCESSES)]

    shared = share_boxes(
        LAYOUT,
        process=process,
        num_processes=PROCESSES,
        device="cpu",
        gather=gather,
        memory=memory,
    )
    return shared, memory, gather


def test_the_boxes_of_a_process_are_its_own_ranks_and_empty():
    shared, _, _ = share(1)
    assert (shared.boxes.shape, count_full_words(shared.boxes)) == ((2, *LAYOUT.shape), 0)


@pytest.mark.parametrize("process", range(PROCESSES))
def test_a_table_points_to_its_ranks_rows_in_every_box_where_this_process_sees_it(process):
    shared, memory, _ = share(process)
    bases = [
        shared.boxes.data_ptr() if p == process else memory.map(b"handle of %d" % p) for p in range(PROCESSES)
    ]
    boxes = [base + local * BOX_BYTES for base in bases for local in range(2)]
    rows = 3 * 16 * 2
    wanted = [
        [[box + (copy * 4 + 2 * process + local) * rows for box in boxes] for copy in range(2)]
        for local in range(2)
    ]
    assert shared.tables.tolist() == wanted


def test_memory_is_freed_after_all_processes_have_let_go_of_it():
    shared, memory, gather = share(0)
    memory.log.clear()
    shared.close(gather)
    assert memory.log == ["unmap 2000000", "meet", "free"] and not memory.held


@pytest.mark.parametrize(("process", "processes"), [(0, 3), (2, 2), (-1, 2)])
def test_ranks_that_do_not_divide_among_the_processes_are_refused(process, processes):
    with pytest.raises(ValueError, match="for 4 ranks"):
        share_boxes(
            LAYOUT, process=process, num_processes=processes, device="cpu", gather=lambda mine: [mine]
        )


@pytest.fixture
def cuda_memory(monkeypatch):
    """The driver's calls as this process would make them, without a GPU."""
    monkeypatch.setattr(torch.cuda, "device", lambda _device: nullcontext())
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    return CudaMemory(torch.device("cuda", 0))


def test_a_handle_reaches_the_driver_byte_for_byte(monkeypatch, cuda_memory):
    from cuda.bindings import driver

    seen = []

    def opened(handle, flags):
        seen.append((ctypes.string_at(int(handle.getPtr()), 64), flags))
        return driver.CUresult.CUDA_SUCCESS, driver.CUdeviceptr(4096)

    monkeypatch.setattr(driver, "cuIpcOpenMemHandle", opened)
    sent = bytes(range(64))
    assert (cuda_memory.map(sent), seen) == (4096, [(sent, 1)])


def test_the_bytes_of_a_handle_are_what_the_driver_wrote(monkeypatch, cuda_memory):
    from cuda.bindings import driver

    handle = driver.CUipcMemHandle()
    ctypes.memmove(int(handle.getPtr()), bytes(range(64)), 64)
    monkeypatch.setattr(driver, "cuIpcGetMemHandle", lambda _address: (driver.CUresult.CUDA_SUCCESS, handle))
    assert cuda_memory.handle(4096) == bytes(range(64))


def test_a_call_that_the_driver_refuses_says_which_and_why(monkeypatch, cuda_memory):
    from cuda.bindings import driver

    refused = driver.CUresult.CUDA_ERROR_PEER_ACCESS_UNSUPPORTED
    monkeypatch.setattr(driver, "cuIpcCloseMemHandle", lambda _address: (refused,))
    with pytest.raises(PeerError, match="cuIpcCloseMemHandle: CUDA_ERROR_PEER_ACCESS_UNSUPPORTED"):
        cuda_memory.unmap(4096)
