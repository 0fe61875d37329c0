"""What every process of a served slice is told by its environment."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from random import SystemRandom

NO_MULTICAST = {
    "NCCL_NVLS_ENABLE": "0",
    "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1",
    "NVSHMEM_DISABLE_NVLS": "1",
    # vLLM's own ways to a multicast object (0.33): symmetric memory, FlashInfer's and the fused all-reduce. Its custom
    # all-reduce has none but by PyTorch's symmetric memory, which the second switch above keeps from it.
    "VLLM_ALLREDUCE_USE_SYMM_MEM": "0",
    "VLLM_USE_NCCL_SYMM_MEM": "0",
    "VLLM_ALLREDUCE_USE_FLASHINFER": "0",
    "VLLM_FLASHINFER_ALLREDUCE_BACKEND": "trtllm",
    "VLLM_KIMI_K3_GEMM_AR": "0",
    "VLLM_ENABLE_GEMM_RS": "0",
}
"""Some hosts do not bear multicast objects, and a program that makes one ends their service."""
ONE_HOST = {"GLOO_SOCKET_IFNAME": "lo", "VLLM_HOST_IP": "127.0.0.1", "VLLM_NO_USAGE_STATS": "1"}
"""All processes are of one host, which may have no network."""
_PORTS = range(20_000, 30_000)
"""Below those that the system hands out by itself, so that a port stays free until its engine takes it."""


def rank_environment(rank: int, count: int, port: int) -> Mapping[str, str]:
    """Of one rank of vLLM's external launcher."""
    return {
        **NO_MULTICAST,
        **ONE_HOST,
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(count),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    }


def engine_environment(count: int, step_limit_s: int) -> Mapping[str, str]:
    """Of an engine that starts its ranks itself, and waits so long for one step."""
    return {
        **NO_MULTICAST,
        **ONE_HOST,
        "WORLD_SIZE": str(count),
        "VLLM_ENABLE_V1_MULTIPROCESSING": "1",
        "VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS": str(step_limit_s),
    }


def refuse_multicast() -> None:
    """Raises RuntimeError where a switch is not set, or PyTorch offers multicast all the same."""
    if unset := [name for name, value in NO_MULTICAST.items() if os.environ.get(name) != value]:
        raise RuntimeError(f"switches against multicast are not set: {', '.join(unset)}")
    from torch._C._autograd import DeviceType
    from torch._C._distributed_c10d import _SymmetricMemory

    try:
        is_offered = _SymmetricMemory.has_multicast_support(DeviceType.CUDA, 0)
    except RuntimeError:
        # A PyTorch that has no symmetric memory on this machine makes no multicast object of it.
        return
    if is_offered:
        raise RuntimeError("PyTorch offers multicast in spite of TORCH_SYMM_MEM_DISABLE_MULTICAST")


def free_ports(count: int) -> list[int]:
    """As many unlike ports of 127.0.0.1 that nobody listens on."""
    found: list[int] = []
    drawn = SystemRandom().sample(_PORTS, len(_PORTS))
    for port in drawn:
        if len(found) == count:
            break
        with socket.socket() as tried:
            try:
                tried.bind(("127.0.0.1", port))
            except OSError:
                continue
        found.append(port)
    return found
