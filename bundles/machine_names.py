"""What this machine and whoever uses it are called, read from the system: what evidence must not say."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from bundles.scrub import MIN_NAME_CHARACTERS, MachineNames, Scrubber

_ROLE_NAMES = """
root user admin administrator ubuntu debian centos fedora ec2-user azureuser runner ci build builder jenkins vagrant
buildkite-agent gitlab-runner nobody daemon docker app worker node host localhost localdomain default test
home email secret ip mac gpu uuid serial machine cwd python
"""
ROLES = frozenset(_ROLE_NAMES.split())
"""Names of accounts and hosts that name nobody, and the words that scrubbing writes itself."""
MIN_SECRET_CHARACTERS = 8
_SECRET_NAME = re.compile(
    r"token|secret|passw|passphrase|credential|api_?key|access_?key|private|(?:^|_)(?:keys?|pass|pat)(?:_|$)",
    re.IGNORECASE,
)
_USER_VARIABLES = ("USER", "LOGNAME", "USERNAME", "SUDO_USER", "GIT_AUTHOR_NAME", "GIT_COMMITTER_NAME")


def this_machine(public: str = "", verbatim: str = "") -> Scrubber:
    """A scrubber for evidence that is made here.

    Args:
        public: What the repository publishes itself: its manifest, policy and paths.
        verbatim: A text that stays as it is where it stands by itself: the head's message.
    """
    return Scrubber(names=collect_machine_names(os.environ), public=public, verbatim=verbatim)


def collect_machine_names(environment: Mapping[str, str]) -> MachineNames:
    """Names of user and host, the folders that are this machine's own, and the values of secret variables."""
    words = dict.fromkeys(filter(_is_a_name, _hosts()), "host")
    words |= dict.fromkeys(filter(_is_a_name, _users(environment)), "user")
    folders = {str(Path.cwd()): "cwd"}
    if sys.prefix != sys.base_prefix:
        folders[sys.prefix] = "python"
    folders |= dict.fromkeys(_homes(environment), "home")
    secrets = {
        value: name
        for name, value in environment.items()
        if _SECRET_NAME.search(name) and len(value) >= MIN_SECRET_CHARACTERS
    }
    return MachineNames(
        folders={path: written for path, written in folders.items() if len(Path(path).parts) > 1},
        words=words,
        secrets=secrets,
    )


def _is_a_name(name: str) -> bool:
    return len(name) >= MIN_NAME_CHARACTERS and name.lower() not in ROLES and not name.isdigit()


def _hosts() -> Iterator[str]:
    for name in (socket.gethostname(), os.uname().nodename):
        yield name
        yield name.partition(".")[0]


def _users(environment: Mapping[str, str]) -> Iterator[str]:
    yield from (environment[name] for name in _USER_VARIABLES if environment.get(name))
    account = _account()
    if account is not None:
        yield account[0]
        yield account[1]
    yield _git_author()
    yield from (Path(home).name for home in _homes(environment) if home != "/root")


def _homes(environment: Mapping[str, str]) -> Iterator[str]:
    yield from (environment[name].rstrip("/") for name in ("HOME", "USERPROFILE") if environment.get(name))
    account = _account()
    if account is not None:
        yield account[2].rstrip("/")


def _git_author() -> str:
    """The name that git writes into this user's commits; empty where none is set."""
    try:
        found = subprocess.run(
            ("git", "config", "--global", "--get", "user.name"), capture_output=True, timeout=10, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return found.stdout.decode("utf-8", "replace").strip()


def _account() -> tuple[str, str, str] | None:
    """Login, full name and home of the process's user; None where the system has no list of users."""
    try:
        import pwd

        entry = pwd.getpwuid(os.getuid())
    except (ImportError, KeyError):
        return None
    return entry.pw_name, entry.pw_gecos.partition(",")[0], entry.pw_dir
