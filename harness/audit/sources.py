"""The source lint over files: which inline-assembly waits they hold and whether compilers may move loads across."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from harness.audit.source_lint import lint_source
from harness.model.kernel_audit import Decision, WaitStatement

_WAIT = b"griddepcontrol.wait"


def source_name(path: Path, roots: Iterable[Path]) -> str:
    """A source without the folders of this machine: by its path below a root, else from its package on."""
    resolved = path.resolve()
    for root in roots:
        if resolved.is_relative_to(root.resolve()):
            return resolved.relative_to(root.resolve()).as_posix()
    parts = resolved.parts
    marks = [i for i, part in enumerate(parts) if part in ("site-packages", "dist-packages")]
    return Path(*parts[marks[-1] + 1 :]).as_posix() if marks else resolved.name


def lint_files(files: Iterable[tuple[str, Path]]) -> tuple[int, list[WaitStatement]]:
    """How many files were read, and every wait in them; each file is given with the name that messages use."""
    read, found = 0, []
    for name, path in files:
        try:
            data = path.read_bytes()
        except OSError as error:
            reason = f"The file could not be read: {error.strerror}."
            found.append(
                WaitStatement(path=name, line=1, text="", decision=Decision.UNDECIDED, reason=reason)
            )
            continue
        read += 1
        if _WAIT not in data:
            continue
        found += [
            WaitStatement(
                path=name,
                line=result.line,
                text=result.text,
                decision=result.decision,
                reason=result.reason,
            )
            for result in lint_source(data.decode("utf-8", "replace"))
        ]
    return read, found
