"""A stage of a ring is given back to the copy engine only when its reads are ordered before the copies."""

import os
import re
import subprocess
import sys

import pytest

pytest.importorskip("cutlass")
COMPILE = """
from specialized_path.kernels.mla.variants import core_variant
from specialized_path.kernels.projection.variants import find_variant
find_variant(7168, 768, 8).kernel.build()
for schedule in ("lockstep", "roles"):
    core_variant("bf16", 1, schedule).build()
"""
UNFENCED = {"ProjectionKernel": 0, "LockstepCore": 0, "RolesCore": 1}
"""Arrivals behind reads of what threads write, and no copy: the roles' probabilities."""
READ, FENCE, ARRIVAL = r"ld\.shared|ldmatrix", r"fence\.proxy\.async", r"mbarrier\.arrive(?!\.expect_tx)"


@pytest.fixture(scope="module")
def ptx(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ptx")
    settings = {"CUTE_DSL_ARCH": "sm_90a", "CUTE_DSL_KEEP_PTX": "1", "CUTE_DSL_DUMP_DIR": str(folder)}
    subprocess.run([sys.executable, "-c", COMPILE], env=os.environ | settings, check=True, timeout=120)
    return {name: next(folder.glob(f"*{name}*.ptx")).read_text(encoding="utf-8") for name in UNFENCED}


@pytest.mark.parametrize("name", UNFENCED)
def test_no_read_of_a_stage_stands_between_the_fence_and_the_arrival(ptx, name):
    is_fenced, unfenced, arrivals = True, 0, 0
    for match in re.finditer(f"({READ})|({FENCE})|({ARRIVAL})", ptx[name]):
        if match[3]:
            unfenced, arrivals = unfenced + (not is_fenced), arrivals + 1
        else:
            is_fenced = bool(match[2])
    assert (unfenced, arrivals > unfenced) == (UNFENCED[name], True)
