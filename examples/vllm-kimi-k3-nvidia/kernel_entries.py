"""Entry points that compile every kernel of vLLM 0.33.0's Kimi K3 decode path, one generator per launch.

Each calls the path's own compile function with the argument values that its build makes for tensor-parallel
sizes 8 and 16, batch by batch. Nothing runs on a GPU: tensors are fake or on the meta device. Without a
GPU vLLM itself cannot be imported; `vllm_without_gpu` imports its kernel folders alone.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator
from types import SimpleNamespace
from unittest import mock

import torch

if not torch.cuda.is_available():
    importlib.import_module("vllm_without_gpu")

ROOT = "vllm.models.kimi_k3.nvidia.specialized_decode"
PATH = f"{ROOT}.cutedsl"
ARCH = os.environ.get("CUTE_DSL_ARCH", "sm_103a")
SMS = 152
BATCHES = (1, 2, 3, 4, 5, 6, 7, 8, 16, 32, 64)


def module(name: str):
    return importlib.import_module(f"{PATH}.{name}")


def meta(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype, device="meta")


def specs(*tensors: torch.Tensor):
    return tuple(module("common.host").layout(tensor) for tensor in tensors)


def attn_res() -> Iterator[str]:
    """AttnRes before attention: ordinary rows (slots 0) and the tail's mailbox ring (one slot)."""
    build = module("attn_res.prepared").compile_consumer
    for slots, cap in ((0, 0), (1, 64)):
        for nb, delta, write, final in (
            (0, False, 0, False),
            (0, True, -1, False),
            (1, True, -1, False),
            (1, False, 1, False),
            (4, True, -1, False),
            (4, True, 4, False),
            (8, True, -1, False),
            (8, True, -1, True),
        ):
            build(nb, delta, write, final, slots, cap, ARCH)
            yield f"slots={slots} blocks={nb} delta={int(delta)} write={write} final={int(final)}"
        build(4, True, -1, False, slots, cap, ARCH, True)
        yield f"slots={slots} blocks=4 aux"


def oproj() -> Iterator[str]:
    """Output projection, its all-reduce and the AttnRes after attention."""
    prepared = module("oproj.prepared")
    for tp in (8, 16):
        for mla in (False, True):
            for batch in BATCHES:
                fused = tp == 16 and (not mla or batch >= 5) and batch <= 8
                twoshot = batch in prepared.twoshot_batches(tp) and not fused
                front = batch in ((1,) if tp == 8 else (1, 2))
                for kind in ("fused",) if fused else ("producer", "consumer"):
                    publish = front and kind != "producer"
                    for nb, delta in ((4, True), (5, False)) if kind != "producer" else ((4, True),):
                        prepared.compile_oproj(
                            kind, 12288 // tp, batch, tp, nb, delta, mla, publish, 64, twoshot
                        )
                        yield f"tp={tp} mla={int(mla)} batch={batch} {kind} blocks={nb} twoshot={int(twoshot)}"


def kda() -> Iterator[str]:
    """The KDA core, one-token decode and verify steps."""
    prepared = module("kda.prepared")
    for tp in (8, 16):
        heads = 96 // tp
        dim = heads * 128
        pitch = 4 * dim + 128 + heads
        attention = SimpleNamespace(
            conv1d=SimpleNamespace(bias=None, weight=meta(3 * dim, 1, 4)),
            dt_bias=meta(dim, dtype=torch.float32),
            A_log=meta(heads, dtype=torch.float32),
            f_b_proj=SimpleNamespace(weight=meta(dim, 128)),
            o_norm=SimpleNamespace(weight=meta(128), eps=1e-5),
            gate_lower_bound=-5.0,
        )
        width = pitch + (-pitch % 16)
        for key in (*BATCHES, (1, 4), (2, 4), (4, 4), (8, 8), (16, 4)):
            batch = key[0] * key[1] if isinstance(key, tuple) else key
            mode = (1 if batch == 1 else 2 if batch <= 8 else 0) if tp == 8 else 0
            mode = int(tp == 8) if isinstance(key, tuple) else mode
            tokens = key[1] if isinstance(key, tuple) else 1
            caches = (meta(9, 3 * dim, 2 + tokens), meta(9, heads, 128, 128, dtype=torch.float32))
            core = prepared.PreparedKda(attention, {key: (width, mode)}, True)
            core.prepare_caches(caches)
            yield f"tp={tp} batch={batch} tokens={tokens}"


def mla() -> Iterator[str]:
    """MLA query and value kernels; with decode-context parallelism their mailbox forms."""
    build = module("mla.prepared").compile_core
    for tp in (8, 16):
        heads = 96 // tp
        weights = specs(
            meta(1536),
            meta(512),
            meta(heads * 192, 1536),
            meta(heads, 128, 512),
            meta(heads, 512, 128).transpose(1, 2).contiguous().transpose(1, 2),
            meta(1, dtype=torch.float32),
            meta(1, dtype=torch.float32),
            meta(9, 64, 576, dtype=torch.uint8),
        )
        pitch = 2112 + heads * 128
        for dcp in (0, tp):
            for batch in BATCHES:
                build(batch, heads, pitch, weights, 0, dcp, SMS)
                yield f"tp={tp} dcp={dcp} batch={batch}"
            build(8, heads, pitch, weights, 0, dcp, SMS, 4)
            yield f"tp={tp} dcp={dcp} batch=8 q=4"


def projection() -> Iterator[tuple[str, object]]:
    """The split-K projections: into the attention cores, of the shared expert, of the dense MLP."""
    build = module("gemm.projection").compile_projection
    table = module("common.policy").batch_table
    tactics = set()
    for tp, rows in ((8, 6288), (16, 3216), (8, 3648), (16, 2880)):
        policies = importlib.import_module(f"{ROOT}.runtime.providers").projection_policies(tp, rows, BATCHES)
        tactics |= {(tactic, torch.bfloat16) for tactic in policies.values()}
    for gate_up, down in module("moe.front").SHARED_TACTICS.values():
        tactics |= {(table(gate_up)[batch], torch.float32) for batch in BATCHES}
        tactics |= {(table(down)[batch], torch.bfloat16) for batch in BATCHES}
    for tactic, dtype in sorted(tactics, key=str):
        name = f"tactic={'.'.join(map(str, tactic))} {str(dtype).removeprefix('torch.')}"
        yield name, build(tactic, dtype, ARCH)


def skinny() -> Iterator[str]:
    """The projection of batches 1 and 2, compiled by vLLM's shared kernel outside the path's folder."""
    gemm = importlib.import_module("vllm.model_executor.kernels.linear.cute_dsl.skinny_gemm")
    stream = importlib.import_module("cutlass.cute.runtime").make_fake_stream
    compiler = gemm.ShapeDynamicSkinnyGemm()
    with (
        mock.patch.object(gemm.ShapeDynamicSkinnyGemm, "_stream", lambda _: stream()),
        mock.patch.object(gemm.ShapeDynamicSkinnyGemm, "_use_pdl", lambda _: True),
    ):
        for batch, tactic in ((1, (128, 4, 1)), (2, (64, 4, 2))):
            config = gemm.SkinnyGemmConfig(batch, *tactic, 8, 7168)
            compiler._compile(torch.bfloat16, config, False)
            yield f"batch={batch}"


def route() -> Iterator[str]:
    """Front GEMM that publishes, polled routing, SiTU of the shared expert."""
    front, shared = module("moe.front"), {8: 768, 16: 384}
    for tp in (8, 16):
        rows = 896 // tp
        n = rows + (-rows % 16) + 3584 // tp
        for batch in BATCHES:
            front.compile_publish(n, n - 3584 // tp, rows, batch, 0, front.front_ks(batch, n))
            yield f"publish tp={tp} batch={batch}"
            front.compile_route(batch, shared[tp], True, (True, True, False), 0, True, batch > 8)
            yield f"route tp={tp} batch={batch}"
            front.compile_route(batch, shared[tp], True, (False, False, True), 0)
            yield f"situ tp={tp} batch={batch}"


def shared_expert() -> Iterator[str]:
    """Fused shared expert above batch 8, whole, split, and merged with the front rows."""
    shared = module("moe.shared")
    for tp in (8, 16):
        rows = 896 // tp
        padded = rows + (-rows % 16)
        geometry = (padded + 3584 // tp, padded, rows, 3584 + 2 * 896)
        for batch in (b for b in BATCHES if b > 8):
            shared.compile_shared(tp, batch, 0)
            yield f"whole tp={tp} batch={batch}"
            shared.compile_shared(tp, batch, 0, True)
            yield f"gate tp={tp} batch={batch}"
            shared.compile_shared(tp, batch, 0, True, geometry)
            yield f"merged tp={tp} batch={batch}"
            shared.compile_down(tp, batch, 0, 32)
            yield f"down tp={tp} batch={batch}"


def experts() -> Iterator[str]:
    """Persistent routed experts, their unit table and plan."""
    runtime = module("moe.experts_runtime")
    tail = module("moe.tail_runtime")
    for tp, grid in ((8, 136), (16, 152)):
        for batch in BATCHES:
            mode: object = tail.published(tp, batch)
            if batch in tail.twoshot_batches(tp):
                mode = "twoshot"
            grouped = runtime.pregrouped(tp, batch)
            knobs = (runtime.streamed(batch), grouped, runtime.stealing(batch))
            runtime.compile_experts(tp, 896, batch, grid, 0, mode, *knobs)
            yield f"experts tp={tp} batch={batch}"
            if grouped:
                runtime.compile_group(tp, 896, batch, grid, 0, runtime.early_group(tp, batch))
                yield f"group tp={tp} batch={batch}"
            if batch > 8 and tp == 8:
                runtime.compile_plan(batch, 0)
                yield f"plan batch={batch}"


def tail() -> Iterator[str]:
    """MoE tail: combine, latent all-reduce, norm, up projection, output multicast."""
    runtime = module("moe.tail_runtime")
    for tp in (8, 16):
        for batch in BATCHES:
            mode = "publish" if runtime.published(tp, batch) else "front"
            mode = "twoshot" if batch in runtime.twoshot_batches(tp) else mode
            umma = mode != "front" and batch in runtime.umma_batches(tp)
            early = batch in runtime.early_batches(tp)
            runtime.compile_tail(tp, batch, 0, mode, early=early, umma=umma)
            yield f"{mode} tp={tp} batch={batch} umma={int(umma)}"
            if runtime.published(tp, batch):
                runtime.compile_push(batch, 0, tp)
                yield f"push tp={tp} batch={batch}"
    runtime.compile_tail(8, 1, 0, "front_poll", 3)
    yield "front_poll tp=8 batch=1"
    for batch in (1, 2):
        runtime.compile_tail(16, batch, 0, "front_poll", 2)
        yield f"front_poll tp=16 batch={batch}"


def dense() -> Iterator[str]:
    """Activation of the dense MLP of layer 0."""
    build = module("moe.dense")._compile_activation
    for hidden, padded in ((4224, 4224), (2112, 2176)):
        build(hidden, padded, ARCH)
        yield f"hidden={hidden}"


def small_batch() -> Iterator[str]:
    """The small-batch chain: front, cluster experts, shared expert and its look-up tables."""
    chain = module("moe.small_batch.chain")
    f32, i32, u32 = torch.float32, torch.int32, torch.uint32
    head = (meta(896, 7168), meta(896, dtype=f32), meta(2, 1, 4, 7168), meta(256, dtype=u32))
    w, s = meta(3, 8, 16), meta(3, 8, 7168)
    h2 = meta(2, 8, 3584)
    front8 = (*head, meta(7168, dtype=u32), meta(16, dtype=i32), w, meta(448, 7168), h2)
    front8 += (meta(3584), meta(1536, 7168), meta(6144, dtype=u32))
    chain._compile("front", specs(*front8), 0, grid=SMS - 8, renorm=True)
    yield "front tp=8"
    tables = meta(131072, dtype=f32)
    chain._compile("tables", specs(tables), 0)
    yield "tables"
    shared = (head[2], meta(7168, 768), tables, meta(6144, dtype=u32), s)
    chain._compile("shared", specs(*shared), 0, grid=SMS - 96)
    yield "shared tp=8"
    u8 = torch.uint8
    scales8 = (meta(896 * 768 * 112, dtype=u8), meta(896 * 3584 * 12, dtype=u8))
    routed = (meta(3584), meta(16, dtype=i32), meta(3, 128, dtype=u8), *scales8, meta(16, 3584))
    chain._compile("experts_tp8", specs(*routed, meta(1, dtype=i32)), 0)
    yield "experts tp=8"
    for batch in (1, 2):
        front16 = (*head, meta(2 * batch * 896 * 2, dtype=u32), meta(batch * 16, dtype=i32), w)
        front16 += (meta(224, 7168), h2, meta(768, 7168), meta(2 * batch * 768, dtype=u32))
        front16 += (meta(7168, 384), s, meta(SMS + 16, dtype=i32))
        chain._compile("front16", specs(*front16), 0, batch, grid=SMS - 7 * batch, renorm=True)
        yield f"front tp=16 batch={batch}"
        scales16 = (meta(896 * 384 * 112, dtype=u8), meta(896 * 3584 * 6, dtype=u8))
        routed = (meta(batch * 3584), meta(batch * 16, dtype=i32), meta(2, 128, dtype=u8), *scales16)
        chain._compile("experts_tp16", specs(*routed, meta(batch * 16, 3584)), 0, batch)
        yield f"experts tp=16 batch={batch}"


def support() -> Iterator[str]:
    """Embedding gather and L2 prefetch."""
    gather = module("common.embedding").compile_gather
    for dtype in (torch.int32, torch.int64):
        gather(dtype, 20480, ARCH)
        yield f"embedding {str(dtype).removeprefix('torch.')}"
    prefetch = module("common.prefetch").compile_kernel
    for count, grid, carveout in ((1, 8, 100), (3, 32, 100), (8, 32, None)):
        prefetch(count, grid, carveout, 0)
        yield f"prefetch ranges={count}"
    module("moe.small_batch.front_tp16")._compile_probe(0, 4, 304)
    yield "placement probe"
