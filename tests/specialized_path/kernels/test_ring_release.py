"""A stage of a ring is given back to the copy engine only when its reads are ordered before the copies."""

import os
import re
import subprocess
import sys

import pytest

pytest.importorskip("cutlass")
COMPILE = """
from specialized_path.kernels.moe_experts.shape import SHAPES
from specialized_path.kernels.moe_experts.variants import down_variants, gate_up_variants
from specialized_path.kernels.projection.variants import find_variant
for variant in (gate_up_variants()[1], down_variants()[1], find_variant(7168, 768, 8)):
    variant.kernel.build()
"""
KERNELS = ("GateUpKernel", "DownKernel", "ProjectionKernel")


@pytest.fixture(scope="module")
def ptx(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ptx")
    settings = {"CUTE_DSL_ARCH": "sm_90a", "CUTE_DSL_KEEP_PTX": "1", "CUTE_DSL_DUMP_DIR": str(folder)}
    subprocess.run([sys.executable, "-c", COMPILE], env=os.environ | settings, check=True, timeout=120)
    return {name: next(folder.glob(f"*_{name}*.ptx")).read_text(encoding="utf-8") for name in KERNELS}


@pytest.mark.parametrize("name", KERNELS)
def test_no_read_of_a_stage_stands_between_the_fence_and_the_arrival(ptx, name):
    products = ptx[name][ptx[name].index("mma.sync") :]
    release = products[: products.index("mbarrier.arrive")]
    reads = [match.start() for match in re.finditer(r"ld\.shared|ldmatrix", release)]
    assert release.rfind("fence.proxy.async") > max(reads, default=0)
