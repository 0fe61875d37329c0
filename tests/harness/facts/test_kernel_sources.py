"""Which files hold kernels: by what names mean and what texts say, whatever they are called."""

from __future__ import annotations

import pytest

from harness.facts.kernel_sources.read import find_kernel_sources
from harness.facts.python_source.tree import SourceTree

KERNEL = "\n@{}\ndef k(x): ...\n"
MAKES = {
    "alias": "import cutlass.cute as c" + KERNEL.format("c.kernel"),
    "renamed import": "from triton import jit as fast" + KERNEL.format("fast"),
    "assigned": "from cutlass import cute\nmake = cute.jit" + KERNEL.format("make"),
    "configured": "import triton" + KERNEL.format("triton.jit(do_not_specialize=['x'])"),
    "the engine's own name": "from vllm.triton_utils import triton" + KERNEL.format("triton.jit"),
    "re-exported": "from own.compat import kernel as k2" + KERNEL.format("k2"),
    "starred": "from own.compat import *" + KERNEL.format("kernel"),
    "wrapped": "from own.compat import tuned" + KERNEL.format("tuned"),
    "looked up": "import triton" + KERNEL.format("getattr(triton, 'j' + 'it')"),
    "called": "import triton\ndef f(x): ...\nk = triton.jit(f)\n",
    "by name": "import importlib" + KERNEL.format("importlib.import_module('triton').jit"),
    "source in a string": "SOURCE = 'extern __global__ void k() {}'\n",
}
MAKES_NONE = {
    "comment": "# @triton.jit\nx = 1\n",
    "docstring": '"""Like @triton.jit and __global__ void k()."""\n',
    "another jit": "import jax" + KERNEL.format("jax.jit"),
    "own decorator": "def jit(f):\n    return f\n" + KERNEL.format("jit"),
    "types only": "import triton.language as tl\ndef f(x: tl.tensor): ...\n",
}
COMPAT = "from cutlass.cute import kernel\nimport triton\ndef tuned(f):\n    return triton.jit(f)\n"


def found(path: str, content: bytes) -> tuple[str, ...]:
    files = {path: content, "own/compat.py": COMPAT.encode(), "own/__init__.py": b""}
    python = SourceTree({p: c for p, c in files.items() if p.endswith(".py")})
    return tuple(source.path for source in find_kernel_sources({path: content}, python)[0])


@pytest.mark.parametrize("text", MAKES.values(), ids=MAKES)
def test_a_python_file_that_makes_kernels_is_found_however_it_names_the_maker(text: str) -> None:
    assert found("own/k.py", text.encode()) == ("own/k.py",)


@pytest.mark.parametrize("text", MAKES_NONE.values(), ids=MAKES_NONE)
def test_a_python_file_that_only_speaks_of_kernels_is_none(text: str) -> None:
    assert found("own/k.py", text.encode()) == ()


@pytest.mark.parametrize(
    ("path", "content"),
    [
        ("k.cu", b""),
        ("k.CUH", b""),
        ("k.h", b"__global__ void k() {}"),
        ("k.txt", b".version 8.7\n.target sm_90a\n.visible .entry k()\n"),
        ("k.bin", b"\x7fELF" + bytes(14) + b"\xbe\x00"),
        ("k.so", b"\x7fELF" + bytes(14) + b"\x3e\x00" + b".nv_fatbin"),
    ],
)
def test_a_file_that_holds_a_kernel_is_found_by_its_name_or_its_content(path: str, content: bytes) -> None:
    assert found(path, content) == (path,)


@pytest.mark.parametrize("content", [b"// __global__ void k();\n", b"\x7fELF" + bytes(14) + b"\x3e\x00"])
def test_a_comment_and_a_library_without_kernels_are_none(content: bytes) -> None:
    assert found("k.h", content) == ()
