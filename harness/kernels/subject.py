"""The subject's kernels as the manifest names them, and the process that runs its code."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.audit.toolchain.compiler import CompileRequest
from harness.config import load_kernels, read_configuration
from harness.kernels.records import VariantRecord
from harness.model.errors import ConfigurationError, FasttrackError
from harness.model.kernels import KernelsSection

_TAIL_LINES = 15


class KernelRunError(FasttrackError):
    """The process that runs the subject's code ended badly."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelSubject:
    """Where the manifest is, what it says about kernels, and which interpreter runs them."""

    manifest: Path
    section: KernelsSection
    python: Path

    @property
    def roots(self) -> tuple[Path, ...]:
        """Folders from which the subject is imported."""
        folder = self.manifest.resolve().parent
        return tuple((folder / root).resolve() for root in self.section.import_roots or ("",))

    @property
    def environment(self) -> dict[str, str]:
        """What the subject's processes see: the judge's own package stays importable."""
        own = str(Path(__file__).resolve().parents[2])
        paths = [own, *filter(None, [os.environ.get("PYTHONPATH")])]
        return {**os.environ, **self.section.environment, "PYTHONPATH": os.pathsep.join(paths)}

    def requests(self, arches: Sequence[str]) -> list[CompileRequest]:
        """The manifest's entry points for the architectures asked for; all of theirs when none is."""
        return [
            CompileRequest(
                entry=entry,
                arch=arch,
                import_roots=self.roots,
                environment=tuple(sorted(self.section.environment.items())),
            )
            for entry, arch in self.section.requests()
            if not arches or arch in arches
        ]

    def function(self, key: str) -> str:
        """The function that the manifest names under `key`; raises ConfigurationError when it names none."""
        name = getattr(self.section, key)
        if not name:
            raise ConfigurationError(
                "no-kernels", f"{self.manifest}: [kernels] has no {key!r}.", "docs/manifest.md describes it."
            )
        return str(name)

    def inventory(self) -> tuple[VariantRecord, ...]:
        """Every variant that the subject lists."""
        found: list[VariantRecord] = []
        self.work("list", "inventory", lambda line: found.append(VariantRecord(**line["variant"])))
        return tuple(found)

    def work(
        self, action: str, key: str, take: Callable[[dict[str, Any]], None], options: Sequence[str] = ()
    ) -> None:
        """Runs one action of the worker and gives each line of its result to `take`, also when it ends badly.

        Raises:
            KernelRunError: the process did not end with 0; what it had written has been taken.
        """
        with tempfile.TemporaryDirectory(prefix="fasttrack-kernels-") as name:
            out = Path(name) / "lines.jsonl"
            command = [str(self.python), "-m", "harness.kernels.worker", action, "--out", str(out)]
            command += ["--function", self.function(key), *options]
            command += [word for root in self.roots for word in ("--root", str(root))]
            result = subprocess.run(
                command,
                env=self.environment,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
                check=False,
            )
            lines = out.read_text(encoding="utf-8").splitlines() if out.is_file() else []
            for line in lines:
                take(json.loads(line))
        if result.returncode:
            tail = "\n".join(result.stderr.strip().splitlines()[-_TAIL_LINES:])
            raise KernelRunError("kernels-worker", f"{action} ended with status {result.returncode}:\n{tail}")


def load_subject(manifest: Path, python: Path) -> KernelSubject:
    """The subject of a manifest; raises ConfigurationError for one that cannot be read."""
    section = load_kernels(read_configuration(manifest, "manifest"), manifest.as_posix())
    return KernelSubject(manifest=manifest, section=section, python=python)
