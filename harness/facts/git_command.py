"""Runs git so that only a repository's objects and refs decide what it says."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from harness.model.errors import ConfigurationError, FasttrackError

_TIMEOUT_S = 120
_SETTINGS = ("core.quotepath=off", "core.fsmonitor=false", "core.hooksPath=/dev/null", "safe.directory=*")
_ISOLATED = {
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_GRAFT_FILE": os.devnull,
}


@dataclass(frozen=True, slots=True)
class GitAnswer:
    """What one git process said."""

    code: int
    out: bytes
    err: bytes

    @property
    def line(self) -> str:
        """The output as one line of text."""
        return self.out.decode("utf-8", errors="backslashreplace").strip()

    @property
    def reason(self) -> str:
        """The last line on stderr, without git's own prefix."""
        lines = self.err.decode("utf-8", errors="backslashreplace").strip().splitlines()
        return (
            lines[-1].removeprefix("fatal: ").removeprefix("error: ") if lines else f"exit code {self.code}"
        )


class GitCommand:
    """git in one folder. Replaced objects, grafts, hooks and missing-object downloads are switched off."""

    def __init__(self, folder: Path, extra: Mapping[str, str] | None = None) -> None:
        executable = shutil.which("git")
        if executable is None:
            raise ConfigurationError("no-git", "git is not installed.", "Install git and run again.")
        self._git = executable
        self._folder = folder
        self._extra = dict(extra or {})
        self._objects: str | None = None

    def run(
        self, *args: str, ok: Collection[int] = (0,), stdin: bytes = b"", user_config: bool = False
    ) -> GitAnswer:
        """One git command.

        Args:
            args: subcommand and its arguments.
            ok: exit codes that are an answer; any other one raises.
            stdin: what the process reads.
            user_config: whether the user's and the system's git configuration count.
        """
        settings = [part for setting in _SETTINGS for part in ("-c", setting)]
        try:
            done = subprocess.run(
                [self._git, *settings, *args],
                cwd=self._folder,
                env=self._environment(user_config),
                input=stdin,
                capture_output=True,
                timeout=_TIMEOUT_S,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise FasttrackError("git-slow", f"git {args[0]} took longer than {_TIMEOUT_S} s.") from error
        except OSError as error:
            raise ConfigurationError("no-git", f"git cannot be started: {error.strerror}.") from error
        answer = GitAnswer(done.returncode, done.stdout, done.stderr)
        if answer.code not in ok:
            raise ConfigurationError("git-failed", f"git {args[0]}: {answer.reason}")
        return answer

    @contextmanager
    def objects_only(self) -> Iterator[GitCommand]:
        """The same objects seen from an empty bare repository.

        Neither the repository's configuration nor attribute files, in the commit, the working tree or
        `info/attributes`, can then change what a diff calls binary or how many lines it counts.
        """
        if self._objects is None:
            answer = self.run("rev-parse", "--path-format=absolute", "--git-path", "objects")
            self._objects = os.fsdecode(answer.out.rstrip(b"\n"))
        with tempfile.TemporaryDirectory(prefix="fasttrack-git-") as name:
            folder = Path(name)
            (folder / "refs").mkdir()
            (folder / "HEAD").write_text("ref: refs/heads/none\n")
            (folder / "config").write_text("[core]\n\trepositoryformatversion = 0\n\tbare = true\n")
            yield GitCommand(folder, {"GIT_DIR": name, "GIT_OBJECT_DIRECTORY": self._objects})

    def _environment(self, user_config: bool) -> dict[str, str]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith("GIT_") or k == "GIT_EXEC_PATH"}
        always = {
            "LC_ALL": "C",
            "LANGUAGE": "",
            "GIT_NO_REPLACE_OBJECTS": "1",
            "GIT_NO_LAZY_FETCH": "1",
            "GIT_OPTIONAL_LOCKS": "0",
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_LITERAL_PATHSPECS": "1",
        }
        return kept | always | ({} if user_config else _ISOLATED) | self._extra
