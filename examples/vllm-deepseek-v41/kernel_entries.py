"""Entry points that compile every kernel of vLLM 0.33.0's DeepSeek-V4.1 decode path, one generator per launch.

Each calls the path's own compile function. Nothing runs on a GPU: the pointers are placeholders, and the
constructors that would also allocate symmetric memory are stopped after their kernels are built. Without a
GPU vLLM itself cannot be imported; `vllm_without_gpu` imports its kernel folders alone.
"""

from __future__ import annotations

import contextlib
import importlib
import os
from collections.abc import Iterator
from types import SimpleNamespace
from unittest import mock

import torch

if not torch.cuda.is_available():
    importlib.import_module("vllm_without_gpu")

PATH = "vllm.models.deepseek_v41.nvidia.specialized_decode"
HIDDEN, HC, TOP_K, TP, ROWS = 5120, 4, 6, 4, 384
MAILBOX, STAGE = 1 << 32, 1 << 20
"""Addresses that the publishing GEMM is compiled for; nothing lies there."""


def module(name: str):
    return importlib.import_module(f"{PATH}.{name}")


def routed_experts() -> Iterator[str]:
    """Routing, the fused front, and both GEMMs of the low-batch experts."""
    gemm = module("moe.routed_expert_gemm")
    gemm._route_kernel(0)
    yield "route"
    for image in (False, True):
        gemm._front_kernel(0, image)
        yield f"front image={int(image)}"
    gemm._gemm1_kernel(0)
    yield "gemm1"
    gemm._gemm2_kernel(0)
    yield "gemm2"


def publishing_gemm() -> Iterator[str]:
    """The output projection that stores into the boundary's mailbox."""
    publishing = module("boundary.publishing_gemm")
    linear = object.__new__(publishing.PublishingMxfp8Linear)
    linear._compiled = {}
    linear.all_reduce = SimpleNamespace(
        publish_target=lambda: (MAILBOX, STAGE), tp=TP, rank=0, capacity=ROWS, hidden_size=HIDDEN
    )
    for tactic in ((256, 4, 1, 2), (256, 6, 1, 1), (128, 10, 1, 4), (256, 4, 1, 1)):
        linear._compile(tactic, torch.device("cuda", 0))
        yield "tactic=" + ".".join(map(str, tactic))


class _Built(Exception):
    """Raised in place of the allocation of symmetric memory."""


def boundary() -> Iterator[str]:
    """Publish kernels and the fused all-reduce with the hyper-connection mixing, in all its variants."""
    kernels = importlib.import_module("vllm.models.deepseek_v41.nvidia.ops.cute_dsl.all_reduce_mhc")
    compiled: list[tuple[str, tuple[object, ...]]] = []

    def keep(kernel: object, *arguments: object, **options: object) -> mock.MagicMock:
        compiled.append((type(kernel).__name__, (kernel, arguments, options)))
        return mock.MagicMock()

    real = kernels.cute.compile
    stop = mock.patch.object(kernels.symm_mem, "empty", side_effect=_Built)
    world = mock.patch.object(kernels.dist, "get_world_size", return_value=TP)
    rank = mock.patch.object(kernels.dist, "get_rank", return_value=0)
    stream = mock.patch.object(kernels, "current_cu_stream", kernels_stream)
    fake = mock.patch.object(kernels, "to_cute", lambda *_: None)
    kept = mock.patch.object(kernels.cute, "compile", keep)
    with stop, world, rank, stream, fake, kept, contextlib.suppress(_Built):
        kernels.AllReduceMHC(
            hidden_size=HIDDEN,
            hc_mult=HC,
            max_num_tokens=ROWS,
            top_k=TOP_K,
            device=torch.device("cpu"),
            quantize_layer_input=True,
            residual_only=True,
        )
    for number, (name, (kernel, arguments, options)) in enumerate(compiled):
        real(kernel, *arguments, **options)
        yield f"{name} {number}"


def kernels_stream():
    return importlib.import_module("cutlass.cute.runtime").make_fake_stream()


def triton_kernels() -> Iterator[object]:
    """The path's Triton kernels: candidate blocks and the index-key store."""
    triton = importlib.import_module("triton")
    compiler = importlib.import_module("triton.compiler")
    backends = importlib.import_module("triton.backends.compiler")
    capability = int("".join(c for c in os.environ["CUTE_DSL_ARCH"] if c.isdigit()))
    target = backends.GPUTarget("cuda", capability, 32)
    topk, store = module("attention.candidate_topk"), module("attention.indexer_k_store")
    f32, i32, i64, u8, bf16 = "*fp32", "*i32", "*i64", "*u8", "*bf16"
    jobs = (
        (
            topk._block_scores_kernel,
            {"logits": f32, "ends": i32, "scores": f32, "lengths": i32, "out": i32}
            | {"stride_row": "i64", "stride_col": "i64", "width": "i32", "nblocks": "i32"},
            {"BLOCK_SIZE": 64, "K": 512, "TILE": 128},
        ),
        (
            topk._finalize_candidates_kernel,
            {"out": i32, "scores": f32, "lengths": i32, "nblocks": "i32"},
            {"K": 512, "TILE": 1024},
        ),
        (
            store._k_norm_rope_mxfp4_store_kernel,
            {"k_pre_ptr": f32, "k_pre_stride": "i32", "positions_ptr": i64, "rms_norm_weight_ptr": bf16}
            | {"rms_norm_eps": "fp32", "cos_sin_cache_ptr": f32, "cos_sin_stride": "i32", "k_cache_ptr": u8}
            | {"kv_slot_mapping_ptr": i64, "kv_cache_block_size": "i32"},
            {"HEAD_SIZE": 128, "ROPE_HEAD_DIM": 64, "COMPRESS_RATIO": 2, "TOKEN_STRIDE": 64}
            | {"SCALE_DIM": 4, "KV_BLOCK_STRIDE": 4352},
        ),
    )
    for function, signature, constants in jobs:
        everything = signature | dict.fromkeys(constants, "constexpr")
        source = compiler.ASTSource(fn=function, signature=everything, constexprs=constants)
        yield triton.compile(source, target=target, options={"num_warps": 4})
