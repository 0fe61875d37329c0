"""Which Python files make GPU kernels: by what their decorators and calls mean."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from harness.facts.kernel_sources.names import UNKNOWN, Meanings, Name
from harness.facts.kernel_sources.texts import quoted_form
from harness.facts.python_source.tree import SourceTree
from harness.facts.python_source.walk import statements, walk

MAKERS: dict[str, tuple[str, tuple[str, ...]]] = {
    "cutlass": ("CuTe DSL", ("jit", "kernel")),
    "cute": ("CuTe DSL", ("jit", "kernel")),
    "triton": ("Triton", ("jit",)),
    "gluon": ("Triton", ("jit",)),
    "tilelang": ("TileLang", ("jit",)),
    "warp": ("Warp", ("kernel",)),
    "cuda": ("CUDA", ("jit", "nvrtcCreateProgram", "Program", "_compile_kernel")),
    "nvrtc": ("CUDA C++", ("nvrtcCreateProgram",)),
    "cupy": ("CUDA C++", ("RawKernel", "RawModule", "ElementwiseKernel", "ReductionKernel")),
    "pycuda": ("CUDA C++", ("SourceModule",)),
    "cpp_extension": ("CUDA C++", ("load", "load_inline")),
}
"""By a package on the way to a name: what is made, and by which names."""
_DECORATORS = ("jit", "kernel")
_NO_KERNELS = ("jax", "numba", "torch")
"""Packages whose `jit` makes no kernel that the audit reads (numba's is `numba.cuda.jit`)."""


class KernelFiles:
    """Answers for the Python files of one tree."""

    def __init__(self, tree: SourceTree) -> None:
        self._meanings = Meanings(tree)
        self._wrappers: dict[Name, str] = {}
        self._definitions: dict[str, dict[str, list[ast.FunctionDef | ast.ClassDef]]] = {}

    def makes(self, path: str) -> tuple[str, tuple[int, ...]]:
        """What kernels a file makes ("CuTe DSL"), empty for none, and the lines that make them."""
        found = list(self._places(path))
        forms = dict.fromkeys(form for _, form in found)
        return ", ".join(forms), tuple(sorted({line for line, _ in found}))

    def _places(self, path: str) -> Iterator[tuple[int, str]]:
        module = self._meanings.tree.parse(path)
        nodes = [] if module is None else walk(module)
        documentation = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
        for node in nodes:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                forms = [self._of_decorator(path, decorator) for decorator in node.decorator_list]
            elif isinstance(node, ast.Call):
                forms = [self._of_names(self._meanings.of(path, part)) for part in (node.func, *node.args)]
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                forms = [] if id(node) in documentation else [quoted_form(node.value)]
            else:
                continue
            yield from ((node.lineno, form) for form in forms if form)

    def _of_decorator(self, path: str, decorator: ast.expr) -> str:
        names = self._meanings.of(path, decorator)
        form = self._of_names(names)
        for where, name in sorted(names):
            form = form or (self._of_wrapper(where, name) if where else _of_stranger(name))
        return form

    def _of_names(self, names: set[Name]) -> str:
        return next((form for where, name in sorted(names) if not where and (form := made_by(name))), "")

    def _of_wrapper(self, path: str, name: str) -> str:
        """What a function or class of the tree makes of what it decorates: by the names in its body."""
        if (path, name) not in self._wrappers:
            self._wrappers[path, name] = ""  # while a cycle is looked at
            bodies = self._definitions_of(path).get(name.rpartition(".")[2], ())
            parts = [part for body in bodies for part in walk(body) if isinstance(part, ast.expr)]
            meant = {meaning for part in parts for meaning in self._meanings.of(path, part)}
            inner = (self._of_wrapper(*n) for n in sorted(meant) if n[0] and n != (path, name))
            self._wrappers[path, name] = self._of_names(meant) or next(filter(None, inner), "")
        return self._wrappers[path, name]

    def _definitions_of(self, path: str) -> dict[str, list[ast.FunctionDef | ast.ClassDef]]:
        """Functions and classes of a file by name, at any depth."""
        if path not in self._definitions:
            found = self._definitions[path] = {}
            module = self._meanings.tree.parse(path)
            for node in statements(module) if module is not None else ():
                if isinstance(node, ast.FunctionDef | ast.ClassDef):
                    found.setdefault(node.name, []).append(node)
        return self._definitions[path]


def made_by(name: str) -> str:
    """What kind of kernel a function outside of the tree makes, by its absolute name; empty for none."""
    *packages, last = name.split(".")
    known = (MAKERS[package] for package in packages if package in MAKERS)
    return next((form for form, names in known if last in names), "")


def _of_stranger(name: str) -> str:
    """For a decorator that nobody knows: its name tells, or hides it in a package that makes kernels."""
    *packages, last = name.split(".")
    if last == UNKNOWN and any(package in MAKERS for package in packages):
        return f"by a decorator that is looked up in {'.'.join(packages)}"
    is_strange = last in _DECORATORS and packages and packages[0] not in _NO_KERNELS
    return f"by a decorator that is not known ({name})" if is_strange else ""
