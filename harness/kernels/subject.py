"""The subject's kernels as the manifest names them, and the process that runs its code."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from harness.audit.toolchain.compiler import CompileRequest
from harness.config import load_kernels, read_configuration
from harness.kernels.records import (
    VariantRecord,
)
from harness.model.errors import ConfigurationError, FasttrackError
from harness.model.kernels import KernelsSection
from harness.model.words import ExitCode

_TAIL_LINES = 15
_INTERRUPTED = 130
"""The status of a process that an interrupt ended, as a shell gives it."""


class KernelRunError(FasttrackError):
    """The process that runs the subject's code ended badly."""


class MachineGapError(FasttrackError):
    """This machine lacks what the run needs: nothing was shown, and all is open."""

    exit_code = ExitCode.UNDECIDED


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

    def requests(self, arches: Sequence[str], variants: Collection[str] | None) -> list[CompileRequest]:
        """The manifest's entry points for the architectures asked for; all of theirs when none is.

        Where variants are given, those that by their globs can give one of them.
        """
        wanted = [entry for entry in self.section.entries if _gives(entry.variants, variants)]
        section = self.section.model_copy(update={"entries": tuple(wanted)})
        return [
            CompileRequest(
                entry=entry,
                arch=arch,
                import_roots=self.roots,
                environment=tuple(sorted(self.section.environment.items())),
            )
            for entry, arch in section.requests()
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

    def inventory(self, match: str = "*", launches: str = "") -> tuple[VariantRecord, ...]:
        """Every variant that the subject lists and the glob names.

        Raises:
            ConfigurationError: the subject lists some, and the glob names none of them; or there is no function
                `launches`, where it is given.
        """
        found: list[VariantRecord] = []
        options = ["--launches", launches]
        self.work("list", "inventory", lambda line: found.append(VariantRecord(**line["variant"])), options)
        named = tuple(variant for variant in found if fnmatchcase(variant.name, match))
        if found and not named:
            raise ConfigurationError(
                "no-variants",
                f"--match: none of {len(found)} variants matches {match!r}.",
                "`fasttrack kernels list` shows their names.",
            )
        return named

    def work(
        self, action: str, key: str, take: Callable[[dict[str, Any]], None], options: Sequence[str] = ()
    ) -> None:
        """Runs one action of the worker and gives each line of its result to `take`, also when it ends badly.

        Raises:
            ConfigurationError: the interpreter does not run the worker, or what the manifest or the command names
                is not there.
            MachineGapError: the machine lacks what the action needs.
            KernelRunError: the process did not end with 0; what it had written has been taken.
            KeyboardInterrupt: there was an interrupt before the process had written anything.
        """
        with tempfile.TemporaryDirectory(prefix="fasttrack-kernels-") as name:
            out = Path(name) / "lines.jsonl"
            command = [str(self.python), "-m", "harness.kernels.worker", action, "--out", str(out)]
            command += ["--folder", str(self.manifest.resolve().parent)]
            command += ["--function", self.function(key), *options]
            command += [word for root in self.roots for word in ("--root", str(root))]
            status, tail = self._run(command)
            lines = out.read_text(encoding="utf-8").splitlines() if out.is_file() else []
            if status == _INTERRUPTED and not lines:
                raise KeyboardInterrupt
            if not out.is_file():
                raise _not_an_interpreter(self.python, f"it ended with status {status}: {tail or 'no word'}")
            for text in lines:
                line = json.loads(text)
                if "refused" in line:
                    raise _refusal(**line)
                take(line)
        if status:
            raise KernelRunError("kernels-worker", f"{action} ended with status {status}:\n{tail}")

    def _run(self, command: Sequence[str]) -> tuple[int, str]:
        """How a command ended, and its last words."""
        try:
            result = subprocess.run(
                command,
                env=self.environment,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
                check=False,
            )
        except OSError as error:
            raise _not_an_interpreter(self.python, str(error.strerror)) from error
        except KeyboardInterrupt:
            return _INTERRUPTED, "an interrupt"
        return result.returncode, "\n".join(result.stderr.strip().splitlines()[-_TAIL_LINES:])


def _gives(glob: str, variants: Collection[str] | None) -> bool:
    return variants is None or any(fnmatchcase(name, glob) for name in variants)


def _not_an_interpreter(python: Path, why: str) -> ConfigurationError:
    message = f"--python: {python} is no Python that runs fasttrack's worker: {why}"
    return ConfigurationError(
        "python", message, "Name an interpreter (3.11 or later) that has the kernels' DSL."
    )


def _refusal(refused: str, is_usage: bool) -> FasttrackError:
    if is_usage:
        return ConfigurationError("kernels-usage", refused, "docs/manifest.md describes [kernels].")
    return MachineGapError("no-gpu", refused, "docs/gpu-machine.md says how to come by one.")


def load_subject(manifest: Path, python: Path) -> KernelSubject:
    """The subject of a manifest; raises ConfigurationError for one that cannot be read."""
    section = load_kernels(read_configuration(manifest, "manifest"), manifest.as_posix())
    return KernelSubject(manifest=manifest, section=section, python=python)
