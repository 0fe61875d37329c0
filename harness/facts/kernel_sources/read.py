"""The files of a change that hold GPU kernels: by their text, whatever they are called."""

from __future__ import annotations

from collections.abc import Mapping

from harness.facts.kernel_sources.python_kernels import KernelFiles
from harness.facts.kernel_sources.texts import kernel_text
from harness.facts.python_source.tree import SourceTree
from harness.model.kernel_audit import KernelSource


def find_kernel_sources(
    files: Mapping[str, bytes], tree: SourceTree
) -> tuple[tuple[KernelSource, ...], tuple[str, ...]]:
    """Kernel sources among `files`, and the Python files among them that do not parse, with the reason.

    Args:
        files: By repository path; what is looked at.
        tree: Every Python file of the commit, through which names are followed.
    """
    kernels = KernelFiles(tree)
    found, unreadable = [], []
    for path, content in sorted(files.items()):
        if not path.endswith(".py"):
            form = kernel_text(path, content)
            lines: tuple[int, ...] = ()
        elif tree.parse(path) is None:
            unreadable.append(f"{path}: {tree.problem(path)}")
            continue
        else:
            form, lines = kernels.makes(path)
        if form:
            found.append(KernelSource(path=path, form=form, lines=lines))
    return tuple(found), tuple(unreadable)
