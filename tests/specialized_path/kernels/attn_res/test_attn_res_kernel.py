"""Attention residuals on a GPU against the oracle in float64."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from specialized_path import reference
from specialized_path.kernels.attn_res import launch
from specialized_path.kernels.attn_res.cases import CASES, AttnResCase, AttnResInputs, random_inputs
from tests.specialized_path.kernels.replay import captured
from tests.specialized_path.kernels.tolerance import T1, T2, assert_close, assert_same_bits

pytestmark = pytest.mark.gpu

LAYERS = tuple(range(0, 96, 12)) + tuple(range(1, 96, 12)) + (92,)
"""Every number of blocks, with and without a block write; 92 is the model's last."""
Run = Callable[..., tuple[Tensor, Tensor]]


def inputs_on_gpu(case: AttnResCase, num_rows: int, num_blocks: int, seed: int = 0) -> AttnResInputs:
    return case.change(random_inputs(num_rows, num_blocks, seed), num_blocks).to("cuda")


def run(
    function: Run, inputs: AttnResInputs, delta: Tensor | None, **options: object
) -> tuple[Tensor, Tensor]:
    """The kernel or the oracle on the same arguments."""
    weights = (inputs.res_norm, inputs.res_proj, inputs.norm)
    return function(inputs.prefix, inputs.blocks, delta, *weights, **options)


def term_magnitudes(inputs: AttnResInputs, prefix: Tensor, num_blocks: int) -> Tensor:
    """What each element of the result adds up, in magnitudes: the error of FP32 sums is relative to it."""
    sources = torch.cat([inputs.blocks[:, :num_blocks], prefix.unsqueeze(1)], dim=1).double()
    query = inputs.res_norm.double() * inputs.res_proj.double()
    scores = (sources @ query) * torch.rsqrt(sources.square().mean(dim=-1) + 1e-5)
    probs = torch.softmax(scores, dim=1).unsqueeze(-1)
    inverse = torch.rsqrt((probs * sources).sum(dim=1).square().mean(dim=-1, keepdim=True) + 1e-5)
    return (probs * sources.abs()).sum(dim=1) * inverse * inputs.norm.double().abs()


def poisoned(like: Tensor) -> Tensor:
    return torch.full_like(like, float("nan"))


def wide(function: Run) -> Run:
    """The oracle in float64, its result rounded once: the contract's value."""
    return lambda *args, **options: function(*args, acc_dtype=torch.float64, **options)


@pytest.mark.parametrize("case", [pytest.param(c, id=c.name) for c in CASES])
@pytest.mark.parametrize("layer_idx", LAYERS)
def test_before_attention_agrees_with_the_oracle(layer_idx: int, case: AttnResCase) -> None:
    inputs = inputs_on_gpu(case, 3, -(-layer_idx // 12))
    delta = inputs.delta if layer_idx else None
    expected_blocks = inputs.blocks.clone()
    oracle = AttnResInputs(**{**vars_of(inputs), "blocks": expected_blocks})
    x, prefix = run(wide(reference.attn_res_before_attention), oracle, delta, layer_idx=layer_idx)
    aux = torch.full((3, 5, 7168), float("nan"), dtype=torch.bfloat16, device="cuda")
    out, new = poisoned(inputs.prefix), poisoned(inputs.prefix)
    run(
        launch.attn_res_before_attention,
        inputs,
        delta,
        layer_idx=layer_idx,
        out=out,
        prefix_out=new,
        aux_out=aux[:, 2],
    )
    assert_close(out, x, T1, term_magnitudes=term_magnitudes(oracle, prefix, -(-layer_idx // 12)))
    assert_same_bits(new, prefix)
    assert_same_bits(aux[:, 2], prefix)
    assert_same_bits(inputs.blocks, expected_blocks)
    assert bool(aux[:, [0, 1, 3, 4]].isnan().all())


def vars_of(inputs: AttnResInputs) -> dict[str, Tensor]:
    return {name: getattr(inputs, name) for name in inputs.__slots__}


@pytest.mark.parametrize("case", [pytest.param(c, id=c.name) for c in CASES])
@pytest.mark.parametrize("layer_idx", [*range(0, 85, 12), *range(1, 86, 12), 92])
def test_after_attention_agrees_with_the_oracle(layer_idx: int, case: AttnResCase) -> None:
    inputs = inputs_on_gpu(case, 3, layer_idx // 12 + 1)
    x, prefix = run(wide(reference.attn_res_after_attention), inputs, inputs.delta, layer_idx=layer_idx)
    before = inputs.blocks.clone()
    out, new = poisoned(inputs.prefix), poisoned(inputs.prefix)
    run(launch.attn_res_after_attention, inputs, inputs.delta, layer_idx=layer_idx, out=out, prefix_out=new)
    assert_close(out, x, T1, term_magnitudes=term_magnitudes(inputs, prefix, layer_idx // 12 + 1))
    assert_same_bits(new, prefix)
    assert_same_bits(inputs.blocks, before)


@pytest.mark.parametrize("case", [pytest.param(c, id=c.name) for c in CASES])
def test_the_output_agrees_with_the_oracle(case: AttnResCase) -> None:
    inputs = inputs_on_gpu(case, 3, 8)
    hidden, prefix = run(wide(reference.attn_res_output), inputs, inputs.delta)
    out, new = poisoned(inputs.prefix), poisoned(inputs.prefix)
    run(launch.attn_res_output, inputs, inputs.delta, out=out, prefix_out=new)
    # The mixture is rounded on the way: an element next to a midpoint may fall on either side.
    assert_close(out, hidden, T2, term_magnitudes=term_magnitudes(inputs, prefix, 8))
    assert_same_bits(new, prefix)


@pytest.mark.parametrize("num_rows", [1, 2, 7, 64])
def test_every_batch_agrees_with_the_oracle(num_rows: int) -> None:
    inputs = inputs_on_gpu(CASES[0], num_rows, 5, seed=num_rows)
    x, prefix = run(wide(reference.attn_res_before_attention), inputs, inputs.delta, layer_idx=59)
    out, new = run(launch.attn_res_before_attention, inputs, inputs.delta, layer_idx=59)
    assert_close(out, x, T1, term_magnitudes=term_magnitudes(inputs, prefix, 5))
    assert_same_bits(new, prefix)


def test_a_row_has_the_same_bits_at_every_position_of_a_batch() -> None:
    one = inputs_on_gpu(CASES[0], 1, 8)
    alone, _ = run(launch.attn_res_after_attention, one, one.delta, layer_idx=92)
    many = AttnResInputs(
        **{
            **vars_of(one),
            "prefix": one.prefix.expand(64, -1).contiguous(),
            "blocks": one.blocks.expand(64, -1, -1).contiguous(),
            "delta": one.delta.expand(64, -1).contiguous(),
        }
    )
    together, _ = run(launch.attn_res_after_attention, many, many.delta, layer_idx=92)
    assert_same_bits(together, alone.expand(64, -1).contiguous())


def test_every_replay_of_a_graph_has_the_same_bits() -> None:
    inputs = inputs_on_gpu(CASES[0], 8, 8)
    out, new = poisoned(inputs.prefix), poisoned(inputs.prefix)
    graph = captured(
        lambda: run(
            launch.attn_res_after_attention, inputs, inputs.delta, layer_idx=92, out=out, prefix_out=new
        )
    )
    first, _ = run(launch.attn_res_after_attention, inputs, inputs.delta, layer_idx=92, use_pdl=False)
    seen = []
    for _ in range(50):
        out.fill_(float("nan"))
        graph.replay()
        seen.append(out.clone())
    assert_same_bits(torch.stack(seen), first.expand(50, -1, -1).contiguous())


def test_the_prefix_may_be_updated_in_place() -> None:
    inputs = inputs_on_gpu(CASES[0], 8, 3)
    _, expected = run(wide(reference.attn_res_before_attention), inputs, inputs.delta, layer_idx=30)
    run(launch.attn_res_before_attention, inputs, inputs.delta, layer_idx=30, prefix_out=inputs.prefix)
    assert_same_bits(inputs.prefix, expected)


def test_blocks_may_lie_block_first() -> None:
    inputs = inputs_on_gpu(CASES[0], 8, 8)
    x, prefix = run(wide(reference.attn_res_after_attention), inputs, inputs.delta, layer_idx=92)
    blocks = inputs.blocks.transpose(0, 1).contiguous().transpose(0, 1)
    turned = AttnResInputs(**{**vars_of(inputs), "blocks": blocks})
    out, _ = run(launch.attn_res_after_attention, turned, turned.delta, layer_idx=92)
    assert_close(out, x, T1, term_magnitudes=term_magnitudes(inputs, prefix, 8))


def test_a_chain_of_dependent_kernels_reads_what_the_one_before_wrote() -> None:
    inputs = inputs_on_gpu(CASES[0], 4, 8)
    expected, got = inputs.prefix, inputs.prefix.clone()
    for _ in range(20):
        x, expected = run(
            wide(reference.attn_res_after_attention),
            AttnResInputs(**{**vars_of(inputs), "prefix": expected}),
            inputs.delta,
            layer_idx=92,
        )
    for _ in range(20):
        chained = AttnResInputs(**{**vars_of(inputs), "prefix": got})
        out, _ = run(launch.attn_res_after_attention, chained, inputs.delta, layer_idx=92, prefix_out=got)
    assert_same_bits(got, expected)
    assert_close(out, x, T1, term_magnitudes=term_magnitudes(inputs, expected, 8))


def boundaries() -> list[tuple[str, Run, int, dict[str, int]]]:
    """Each kernel of the inventory by its boundary: function, finished blocks, layer."""
    after = launch.attn_res_after_attention
    return [
        ("first layer", launch.attn_res_before_attention, 0, {"layer_idx": 0}),
        *((f"add to {n}", after, n, {"layer_idx": 12 * n - 11}) for n in range(1, 9)),
        *((f"replace behind {n}", after, n, {"layer_idx": 12 * n - 12}) for n in range(1, 9)),
        ("output", launch.attn_res_output, 8, {}),
    ]


@pytest.mark.parametrize(
    ("function", "num_blocks", "options"), [pytest.param(*rest, id=name) for name, *rest in boundaries()]
)
def test_bits_depend_on_no_run_replay_position_or_neighbour(
    function: Run, num_blocks: int, options: dict[str, int]
) -> None:
    """Eight rows that differ, at every position and alone; the first layer has no delta and writes its block."""
    inputs = inputs_on_gpu(CASES[0], 8, num_blocks)

    def outputs(rows: Tensor) -> tuple[Tensor, Tensor]:
        per_row = {name: getattr(inputs, name)[rows].clone() for name in ("prefix", "blocks", "delta")}
        delta = per_row["delta"] if num_blocks else None
        return run(function, AttnResInputs(**{**vars_of(inputs), **per_row}), delta, **options)

    everyone = torch.arange(8, device="cuda")
    wanted = torch.stack(outputs(everyone))
    for shift in range(8):
        rows = everyone.roll(shift)
        assert_same_bits(torch.stack(outputs(rows)), wanted[:, rows])
        assert_same_bits(torch.stack(outputs(rows[:1])), wanted[:, rows[:1]])
    found: list[Tensor] = []
    graph = captured(lambda: found.append(torch.stack(outputs(everyone))))
    for _ in range(5):
        found[-1].fill_(float("nan"))
        graph.replay()
        assert_same_bits(found[-1], wanted)
