"""The last lines of a server's log, safe to show: no secrets, no paths of this machine, no control characters."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Mapping
from pathlib import Path

_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|[^\t\x20-\x7e\xa0-\U0010ffff]")
_SECRET_NAME = re.compile(r"token|secret|passw|credential|api_?key|access_?key|private", re.IGNORECASE)
_SECRET_TEXT = re.compile(r"\b(hf_|ghp_|gho_|ghs_|github_pat_|sk-|xox[abpr]-|AKIA)[A-Za-z0-9_\-]{8,}")
_MAX_LINE = 500
_BEFORE = r"(?:^|ERROR.*?\] |Error while finding module specification.*?\()"
"""What stands before an exception's name: nothing, a logger's head, or what `python -m` says of a module not found."""
_ERROR = re.compile(_BEFORE + r"((?:[a-z_]\w*\.)*[A-Z]\w*(?:Error|Exception): .+)")


def read_log_tail(path: Path, num_lines: int, names: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """The last lines of a log; `names` says what to write for paths of this machine. Empty without a log."""
    try:
        with path.open("rb") as log:
            log.seek(max(0, path.stat().st_size - num_lines * 2000))
            text = log.read().decode("utf-8", errors="replace")
    except FileNotFoundError:
        return ()
    lines = [line for line in re.split(r"[\r\n]+", text) if line.strip()]
    return tuple(_clean(line, names or {})[:_MAX_LINE] for line in lines[-num_lines:])


def read_first_error(path: Path, names: Mapping[str, str] | None = None) -> str:
    """The first exception in a log, which is mostly the cause of the later ones; empty when there is none."""
    try:
        with path.open(encoding="utf-8", errors="replace") as log:
            found = next((m[1] for line in log if (m := _ERROR.search(_CONTROL.sub("", line)))), "")
    except FileNotFoundError:
        return ""
    return _clean(found, names or {})[:_MAX_LINE]


def _clean(line: str, names: Mapping[str, str]) -> str:
    line = _SECRET_TEXT.sub(r"\1***", _CONTROL.sub("", line))
    for name, value in os.environ.items():
        if len(value) >= 8 and _SECRET_NAME.search(name):
            line = line.replace(value, "***")
    for value in sorted(names, key=len, reverse=True):
        if len(value) > 1:
            line = line.replace(value, names[value])
    return line.replace(socket.gethostname(), "{host}")
