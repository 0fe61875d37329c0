"""What a kernel reads above its wait comes from grids that have completed, wherever the kernels in front trigger.

A grid that is launched early starts when all CTAs of the grid in front have triggered. If those trigger behind their
wait, every grid before that one has completed; if above it, only what had completed when that one started. So each
kernel in a row that triggers above its wait brings the ones behind it one launch nearer to what they may not read yet.
"""

import ast
import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from specialized_path.kernels import inventory

ROOT = Path(__file__).parents[3] / "specialized_path"
SOURCES = {
    "embedding": "embedding/kernel.py",
    "attn_res": "attn_res/kernel.py",
    "projection": "projection/kernel.py",
    "kda": "kda/kernel.py",
    "mla query": "mla/query.py",
    "mla attention": "mla/attention_parts.py",
    "mla value": "mla/value.py",
    "moe front": "projection/kernel.py",
    "moe selection": "moe_latent/selection.py",
    "moe gate_up": "moe_experts/gate_up.py",
    "moe down": "moe_experts/down.py",
    "moe norm": "moe_latent/norm.py",
    "moe tail": "projection/kernel.py",
    "moe dense_gate_up": "projection/kernel.py",
    "moe dense_down": "projection/kernel.py",
}
"""Where the trigger of a step's kernels stands, by the first words of their variants' names."""
NOT_SERVED = {"common/device.py", "exchange/kernel.py", "exchange/rows.py", "mla/merge.py"}
"""They have triggers or define them, and no kernel of a decode step of one rank."""
READS_EARLY = {
    "attn_res": {2: "blocks"},
    "kda": {6: "windows", 7: "states", 8: "step", 9: "step"},
    "mla query": {5: "step"},
    "mla attention": {2: "step", 3: "step"},
    "mla value": {4: "step"},
    "moe down": {1: "choice", 2: "choice"},
}
"""What the settled arguments are; "step" is what vLLM writes before a step's first kernel."""
WRITES = {
    "vLLM in front": {"step"},
    "attn_res": {"blocks"},
    "kda": {"windows", "states"},
    "moe selection": {"choice"},
}
LAUNCHES = {
    "embed": ["embedding"],
    "attn_res_before_attention": ["attn_res"],
    "attn_res_after_attention": ["attn_res"],
    "project": ["projection"],
    "kda_decode": ["kda"],
    "mla_query": ["mla query"],
    "mla_attention_partial": ["mla attention"],
    "mla_value_merged": ["mla value"],
    "front": ["moe front"],
    "select_experts": ["moe selection"],
    "routed_experts": ["moe gate_up", "moe down"],
    "latent_norm": ["moe norm"],
    "project_tail": ["moe tail"],
    "shared_experts": ["moe dense_gate_up", "moe dense_down"],
}
"""What a function of a launch module launches, in order."""
LAYER = {
    "kda": ["attn_res", "projection", "kda", "projection", "attn_res"],
    "mla": ["attn_res", "projection", "mla query", "mla attention", "mla value", "projection", "attn_res"],
}
MLP = {
    "dense": ["moe dense_gate_up", "moe dense_down"],
    "experts": ["moe front", "moe selection", "moe gate_up", "moe down", "moe norm", "moe tail"],
}


@dataclass(frozen=True)
class Grid:
    kernel: str
    is_early: bool = True
    """Launched early."""


FRONT = Grid("vLLM in front", is_early=False)


def step(layers):
    """The grids of a decode step, and in front of it what vLLM does for it, which nothing of ours overtakes."""
    kernels = [kernel for attention, mlp in layers for kernel in (*LAYER[attention], *MLP[mlp])]
    return [
        FRONT,
        Grid("embedding", is_early=False),
        *map(Grid, kernels),
        Grid("vLLM", is_early=False),
    ]


STEPS = 2 * step([("kda", "dense"), ("kda", "experts"), ("kda", "experts"), ("mla", "experts")])


def triggers_first(kernel):
    """Whether the kernel's source has anything but waits, each with its trigger behind it."""
    text = (ROOT / "kernels" / SOURCES[kernel]).read_text(encoding="utf-8")
    calls = re.findall(r"(wait_for_dep|release_dep|griddepcontrol_wait|griddepcontrol_launch)\w*\(\)", text)
    words = ["wait" if "wait" in call else "trigger" for call in calls]
    assert set(words) == {"wait", "trigger"}, kernel
    return words != ["wait", "trigger"] * (len(words) // 2)


def too_soon(grids, triggering_first):
    """(place, kernel, what) of each early read whose last writer may still run."""
    found, completed, written = [], -1, {}
    for place, grid in enumerate(grids):
        # Of the grids up to `completed` it is known that they have when this one starts.
        if not grid.is_early:
            completed = place - 1
        elif place and grids[place - 1].kernel not in triggering_first:
            completed = max(completed, place - 2)
        reads = set(READS_EARLY.get(grid.kernel, {}).values())
        found += [(place, grid.kernel, what) for what in sorted(reads) if written.get(what, -1) > completed]
        written |= dict.fromkeys(WRITES.get(grid.kernel, ()), place)
    return found


EARLY = {kernel for kernel in SOURCES if triggers_first(kernel)}


def test_residuals_selection_and_norm_trigger_above_their_wait_and_nothing_else_does():
    assert {"attn_res", "moe selection", "moe norm"} == EARLY


def test_nothing_reads_above_its_wait_what_a_grid_may_still_write():
    assert too_soon(STEPS, EARLY) == []


@pytest.mark.parametrize(("kernel", "reader"), [("moe gate_up", "moe down"), ("moe down", None)])
def test_a_trigger_above_a_wait_is_refused_where_the_kernel_behind_reads_early_what_the_one_in_front_writes(
    kernel, reader
):
    found = {reader for _, reader, _ in too_soon(STEPS, EARLY | {kernel})}
    assert found == ({reader} if reader else set())


def test_kernels_that_all_trigger_above_their_wait_are_refused():
    assert {what for *_, what in too_soon(STEPS, set(SOURCES))} == {"blocks", "windows", "states", "choice"}


def test_an_embedding_that_starts_early_would_need_kernels_that_trigger_behind_their_wait():
    grids = [FRONT, *map(Grid, ("embedding", *LAYER["kda"]))]
    assert too_soon(grids, EARLY) == []
    assert (4, "kda", "step") in too_soon(grids, EARLY | {"embedding", "projection"})


def test_a_residual_right_behind_another_one_is_refused():
    assert too_soon([FRONT, Grid("attn_res"), Grid("attn_res")], EARLY) == [(2, "attn_res", "blocks")]


def test_two_launches_lie_between_a_writer_and_an_early_reader():
    late = EARLY - {"attn_res"}
    assert too_soon([Grid("attn_res"), Grid("projection"), Grid("attn_res")], late) == []
    assert too_soon([Grid("attn_res"), Grid("projection"), Grid("attn_res")], late | {"projection"}) != []


def test_every_settled_argument_of_a_steps_kernels_is_known_here():
    for variant in inventory.variants():
        for kernel in (
            kernel for kernel in SOURCES if variant.name.startswith(kernel + " ") or variant.name == kernel
        ):
            settled = {int(place) for place, role in variant.roles.items() if role == "settled"}
            assert settled == set(READS_EARLY.get(kernel, {})), variant.name


def test_every_kernel_with_a_trigger_is_known_here():
    calls = re.compile("release_dependents|griddepcontrol_launch_dependents")
    found = {
        str(path.relative_to(ROOT / "kernels"))
        for path in (ROOT / "kernels").rglob("*.py")
        if calls.search(path.read_text(encoding="utf-8"))
    }
    assert found == {*SOURCES.values(), *NOT_SERVED}


def launched(method, cls, source):
    """The kernels that a method launches, in the order of its text."""
    tree = ast.parse((ROOT / "kimi_k3" / source).read_text(encoding="utf-8"))
    body = next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == cls)
    function = next(node for node in body.body if isinstance(node, ast.FunctionDef) and node.name == method)
    calls = [node for node in ast.walk(function) if isinstance(node, ast.Call)]
    calls.sort(key=lambda call: (call.func.end_lineno, call.func.end_col_offset))
    names = [getattr(call.func, "attr", getattr(call.func, "id", "")) for call in calls]
    return [
        kernel
        for name in names
        for kernel in LAUNCHES.get(name, [name] if name in ("_attend", "_kda", "_mla") else [])
    ]


def test_a_step_launches_what_is_looked_at_here_in_this_order():
    run = launched("run", "K3Decode", "decode.py")
    assert run == ["embedding", "attn_res", "_attend", "attn_res"]
    assert launched("_attend", "K3Decode", "decode.py") == ["projection", "_kda", "_mla", "projection"]
    both = {name: launched(f"_{name}", "K3Decode", "decode.py") for name in LAYER}
    assert {
        name: ["attn_res", "projection", *middle, "projection", "attn_res"] for name, middle in both.items()
    } == LAYER
    mlps = {"dense": "DenseMlp", "experts": "LatentMoe"}
    assert {name: launched("run", cls, "mlp.py") for name, cls in mlps.items()} == MLP
