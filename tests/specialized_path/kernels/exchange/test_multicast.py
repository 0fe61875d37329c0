"""Multicast is chosen when a kernel is compiled, and by no kernel of the inventory. Cross-compiled here; never run."""

import os
import subprocess
import sys

import pytest

pytest.importorskip("cutlass")

import cutlass.cute as cute

from specialized_path.kernels.exchange.kernel import PublishKernel
from specialized_path.kernels.exchange.variants import variants
from specialized_path.kernels.projection.variants import find_variant

COMPILE = """
import sys
import cutlass.cute as cute
from cutlass import Int32
from specialized_path.kernels.common.host import fake_pointer, fake_stream
from specialized_path.kernels.exchange.kernel import PublishKernel, ReduceKernel
from specialized_path.kernels.projection.variants import find_variant

form = {"num_ranks": 8, "is_multicast": sys.argv[1] == "multicast"}
shape = {"num_outputs": 7168, "num_inputs": 1536, "tactic": find_variant(7168, 1536, 1).tactic}
addresses = [fake_pointer() for _ in range(3)]
cute.compile(PublishKernel(**shape, **form), *addresses, *[Int32(1)] * 2, fake_stream())
cute.compile(ReduceKernel(max_rows=64, **form), *addresses, *[Int32(1)] * 3, fake_stream())
"""
KERNELS = ("PublishKernel", "ReduceKernel")
TO_ALL, TO_ONE = "multimem.st.relaxed.sys.global.v4.bf16x2", "st.relaxed.sys.global.v4.b32"


def stores(form, arch, folder):
    """By kernel: stores into all boxes at once, and into one."""
    settings = {"CUTE_DSL_ARCH": arch, "CUTE_DSL_KEEP_PTX": "1", "CUTE_DSL_DUMP_DIR": str(folder)}
    subprocess.run([sys.executable, "-c", COMPILE, form], env=os.environ | settings, check=True, timeout=120)
    texts = {name: next(folder.glob(f"*{name}*.ptx")).read_text(encoding="utf-8") for name in KERNELS}
    return {name: (text.count(TO_ALL), text.count(TO_ONE)) for name, text in texts.items()}


# The owner empties eight chunks in its own box in either form.


def test_by_pointer_table_a_fragment_is_stored_once_for_each_of_eight_ranks(tmp_path):
    assert stores("unicast", "sm_90a", tmp_path) == {"PublishKernel": (0, 8), "ReduceKernel": (0, 8 + 8)}


@pytest.mark.parametrize("arch", ["sm_90a", "sm_100a", "sm_103a"])
def test_by_multicast_it_is_stored_once(tmp_path, arch):
    assert stores("multicast", arch, tmp_path) == {"PublishKernel": (1, 0), "ReduceKernel": (1, 8)}


def test_no_kernel_of_the_inventory_is_compiled_for_multicast(monkeypatch):
    monkeypatch.setattr(cute, "compile", lambda kernel, *_: kernel)
    kernels = [variant.build() for variant in variants()]
    assert sum(hasattr(kernel, "is_multicast") for kernel in kernels) > 2
    assert not any(getattr(kernel, "is_multicast", False) for kernel in kernels)


def test_fragments_for_one_owner_each_are_not_published_by_multicast():
    shape = {"num_outputs": 7168, "num_inputs": 1536, "tactic": find_variant(7168, 1536, 1).tactic}
    with pytest.raises(ValueError, match="multicast"):
        PublishKernel(**shape, num_ranks=8, is_two_shot=True, is_multicast=True)
