"""Which steps of Kimi K3 run on the path, and that every kernel that they launch is known beforehand."""

from types import SimpleNamespace

import pytest
import torch

from specialized_path.kernels.mla.variants import QUERY_SPLIT_ROWS, query_variant
from specialized_path.kernels.moe_experts.packing import MarlinExperts
from specialized_path.kernels.moe_experts.shared_launch import PackedSharedExperts
from specialized_path.kernels.moe_experts.shared_variants import find_shared_variant
from specialized_path.kernels.moe_latent.variants import find_product, front_variants, tail_variants
from specialized_path.kernels.projection.variants import find_variant
from specialized_path.kimi_k3.mlp import DenseMlp, LatentMoe
from specialized_path.kimi_k3.steps import decide_step
from specialized_path.kimi_k3.switch import MAX_BATCH
from specialized_path.kimi_k3.weights import KdaLayer, Layer, MlaLayer
from specialized_path.kimi_k3.workspace import step_variants
from specialized_path.runtime.limits import Limits
from specialized_path.runtime.plan import StepPlanner

PLANNER = StepPlanner(
    ("kda",), ("mla",), Limits(max_num_reqs=MAX_BATCH, max_num_drafts=0, max_context_len=4096)
)


def _context(mode="NONE", max_seq_len=100, **counts):
    shape = {"num_prefills": 0, "num_decodes": 0, "num_spec_decodes": 0, "uniform_spec_sequence_length": None}
    kda = SimpleNamespace(**(shape | {"num_actual_tokens": counts.get("num_decodes", 0)} | counts))
    metadata = {"kda": kda, "mla": SimpleNamespace(max_seq_len=max_seq_len)}
    return SimpleNamespace(cudagraph_runtime_mode=SimpleNamespace(name=mode), attn_metadata=metadata)


@pytest.mark.parametrize("mode", ["NONE", "FULL"])
@pytest.mark.parametrize("batch", [1, 3, 64])
def test_pure_decode_runs_on_the_path_eagerly_and_in_a_graph(batch, mode):
    reason, plan = decide_step(PLANNER, _context(mode, num_decodes=batch), batch, True)
    assert (reason, plan.num_reqs) == ("pure-decode", batch)


@pytest.mark.parametrize(
    ("context", "num_rows", "has_token_ids", "reason"),
    [
        (None, 4, True, "no-metadata"),
        (_context("PIECEWISE", num_decodes=4), 4, True, "piecewise"),
        (_context(num_decodes=3), 4, True, "padded"),
        (_context(num_decodes=65), 65, True, "batch-over-limit"),
        (_context(num_decodes=4, max_seq_len=5000), 4, True, "context-over-limit"),
        (_context(num_decodes=3, num_prefills=1, num_actual_tokens=10), 10, True, "mixed"),
        (
            _context(num_spec_decodes=2, num_actual_tokens=4, uniform_spec_sequence_length=2),
            4,
            True,
            "drafts-over-limit",
        ),
        (_context(num_decodes=4), 4, False, "input-embeddings"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_every_other_step_is_vllms_and_says_why(context, num_rows, has_token_ids, reason):
    assert decide_step(PLANNER, context, num_rows, has_token_ids) == (reason, None)


def _layer(kind, index, num_outputs):
    own = {} if kind is KdaLayer else {"w_uv": None}
    w_in, w_o = (torch.empty(*shape, device="meta") for shape in ((num_outputs, 7168), (7168, 1536)))
    return Layer(
        layer_idx=index,
        before_attention=None,
        attention=kind(module=None, w_in=w_in, weights=None, **own),
        w_o=w_o,
        after_attention=None,
    )


def _meta(*shape):
    return torch.empty(*shape, dtype=torch.bfloat16, device="meta")


def _mlps():
    dense = PackedSharedExperts(gate_up=_meta(8448, 7168), down=_meta(7168, 4224))
    experts = MarlinExperts(w13=None, w2=_meta(896, 24, 7168), w13_scale=None, w2_scale=None)
    moe = LatentMoe(
        w_front=_meta(6016, 7168),
        bias=_meta(896),
        experts=experts,
        w_norm=_meta(3584),
        w_tail=_meta(7168, 3584 + 768),
        space=None,
    )
    return DenseMlp(weights=dense, hidden=_meta(64, 4224)), moe


def _known():
    return step_variants((_layer(KdaLayer, 0, 6288), _layer(MlaLayer, 1, 3648)), _mlps(), 12)


def test_every_kernel_of_a_step_is_compiled_beforehand_at_every_batch():
    known = _known()
    shapes = ((6288, 7168), (3648, 7168), (7168, 1536))
    needed = {
        find_variant(*shape, batch).kernel.name for shape in shapes for batch in range(1, MAX_BATCH + 1)
    }
    for batch in range(1, MAX_BATCH + 1):
        needed |= {find_product(front_variants(), (6016, 7168), batch).kernel.name}
        needed |= {find_product(tail_variants(), (7168, 4352), batch).kernel.name}
        needed |= {find_shared_variant(part, 4224, batch).kernel.name for part in ("gate_up", "down")}
    needed |= {query_variant("bf16", 1 if batch <= QUERY_SPLIT_ROWS else 2).name for batch in (1, MAX_BATCH)}
    assert needed <= known.keys()


def test_the_kernels_of_a_step_serve_every_contract_of_its_layers():
    served = {name for variant in _known().values() for name in variant.operator.split(", ")}
    attention = {"OC-2", "OC-13", "OC-3", "OC-4..6", "OC-8", "OC-9", "OC-10", "OC-12"}
    assert served == attention | {"OC-1", "OC-14", "OC-15", "OC-16", "OC-17", "OC-18", "OC-19", "OC-20"}


def test_the_experts_kernels_are_compiled_beforehand_too():
    cuts = ("batch=1-2", "batch=3-64")
    needed = {f"moe {kind} tp8 {cut}" for kind in ("gate_up", "down") for cut in cuts}
    assert needed <= _known().keys()
